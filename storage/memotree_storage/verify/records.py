"""Checks what is on refs below ``refs/memotree``: that it can be read, and that Git has the commits that it names.

Only Git has these records. What is lost of them comes back from a clone with all refs, or from a backup.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError
from memotree_storage.git.erasures import read_erasures, rewritten_commits
from memotree_storage.git.proposals import ProposalIndex, read_index, read_proposal
from memotree_storage.git.protections import read_protections
from memotree_storage.git.push_policies import read_push_policy
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.erasure import ERASURES_REF
from memotree_storage.model.proposal import EventKind, Proposal, ProposalStatus
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.erasures import rewritten_rows
from memotree_storage.verify.report import Difference, in_git, in_postgres

_AT_ONCE: Final = 100
"""Proposals that are read in one turn of a thread."""

_RESTORE: Final = "Fetch that ref and its commits from a clone with all refs (git clone --mirror) or restore a backup."


async def check_records(
    conn: Connection, workspace_id: str, repository: GitRepository, refs: Mapping[str, str]
) -> AsyncIterator[Difference]:
    """Compare the records with the commits of the repository, and what the mirror follows of them with the records.

    Args:
        conn: With a snapshot of the mirror.
        workspace_id: The workspace.
        repository: Its repository.
        refs: The refs of the same moment.
    """
    readers: tuple[Callable[[GitRepository], object], ...] = (read_protections, read_push_policy, read_erasures)
    for read in readers:
        for told in await in_store_thread(_unreadable, read, repository):
            yield told
    if await in_store_thread(repository.ref, ERASURES_REF) == refs.get(ERASURES_REF):  # else one came meanwhile
        async for told in _rewritten(conn, workspace_id, repository):
            yield told
    try:
        index = await in_store_thread(read_index, repository)
    except MemoTreeError as error:
        yield in_git("record", error.message)
        return
    for first in range(1, index.next_number, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, index.next_number))
        for told in await in_store_thread(lambda some: list(_of_proposals(repository, index, some)), numbers):
            yield told


def _unreadable(read: Callable[[GitRepository], object], repository: GitRepository) -> list[Difference]:
    try:
        read(repository)
    except MemoTreeError as error:
        return [in_git("record", error.message)]
    return []


def _of_proposals(repository: GitRepository, index: ProposalIndex, numbers: range) -> Iterator[Difference]:
    for number in numbers:
        try:
            proposal = read_proposal(repository, index, number)
        except MemoTreeError as error:
            yield in_git("record", error.message)
            continue
        if proposal is None:
            yield in_git("record", f"The record of proposal {number} is missing. {_RESTORE}")
            continue
        listed = number in index.open
        if listed != (proposal.status is ProposalStatus.OPEN):
            said = "as open" if listed else "as closed"
            yield in_git("record", f"Proposal {number} is {proposal.status.value}, and is listed {said}. {_RESTORE}")
        for commit_id, what in _named(proposal):
            if not _is_commit(repository, commit_id):
                sentence = f"Proposal {number} has {what} of commit {commit_id}, which Git does not have. {_RESTORE}"
                yield in_git("record", sentence, commit_id=commit_id)


def _named(proposal: Proposal) -> Iterator[tuple[str, str]]:
    """The commits that reviews and merges of a proposal name, each once, and what names them."""
    seen = set()
    for event in proposal.events:
        said = "an approval" if event.kind is EventKind.APPROVED else f"an event ({event.kind.value})"
        for commit_id, what in ((event.head, f"{said} by {event.by}"), (event.commit_id, f"a merge by {event.by}")):
            if commit_id and commit_id not in seen:
                seen.add(commit_id)
                yield commit_id, what


def _is_commit(repository: GitRepository, commit_id: str) -> bool:
    try:
        repository.commit_info(commit_id)
    except MemoTreeError:
        return False
    return True


async def _rewritten(conn: Connection, workspace_id: str, repository: GitRepository) -> AsyncIterator[Difference]:
    """Compare the commits that erasures have rewritten with the rows that lead from their old ids to the new ones."""
    try:
        expected = await in_store_thread(rewritten_commits, repository)
    except MemoTreeError as error:
        yield in_git("record", error.message)
        return
    found = await rewritten_rows(conn, workspace_id)
    wrong = [old for old in sorted(expected.keys() | found.keys()) if expected.get(old) != found.get(old)]
    for old in wrong[:_AT_ONCE]:
        sentence = f"Commit {old}, which an erasure rewrote, leads to {found.get(old) or 'no commit'}"
        yield in_postgres("commit", f"{sentence}, and Git says {expected.get(old) or 'it was not'}.", commit_id=old)
    if len(wrong) > _AT_ONCE:
        yield in_postgres("commit", f"{len(wrong) - _AT_ONCE} more commits that erasures rewrote lead elsewhere.")
