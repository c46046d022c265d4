"""Commits many entries at once without staging them in a session: for documents and migrations.

A crash leaves either nothing, or a commit that the next start mirrors.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from memotree_storage.commit.transaction import WorkspaceTransaction, workspace_transaction
from memotree_storage.commit.write_path import NewCommit, write_commit
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.conflicts import Conflict, ConflictKind
from memotree_storage.errors import AbortedError, FailedPreconditionError, FieldViolation, MemoTreeError
from memotree_storage.mirror.tree_check import check_tree, named_by
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, tree
from memotree_storage.postgres.registry import RevisionNotFoundError
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import blob_id
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

_MOST_TOLD: Final = 10
_ATTEMPTS: Final = 5

T = TypeVar("T")


class ImportRacedError(AbortedError):
    """The branch differs from what the import expected."""

    reason = "IMPORT_RACED"


class ImportBrokenError(FailedPreconditionError):
    """The import would break the tree."""

    reason = "IMPORT_BROKEN"

    @classmethod
    def of(cls, faults_found: Iterable[tuple[str, str]]) -> "ImportBrokenError":
        """The error for (entry id, sentence) pairs."""
        found = [FieldViolation(entry_id, sentence) for entry_id, sentence in faults_found]
        told = " ".join(fault.description for fault in found[:_MOST_TOLD])
        more = f" {len(found) - _MOST_TOLD} more entries have such faults." if len(found) > _MOST_TOLD else ""
        sentence = f"The import would leave the tree broken, and nothing was committed. {told}{more}"
        return cls(f"{sentence} Give what is missing as well, or leave these out.", found)


async def retry_if_raced(work: Callable[[], Awaitable[T]], *others: type[MemoTreeError]) -> T:
    """Run work that reads a branch, prepares an import and commits it; repeat it if the branch changed meanwhile.

    Args:
        work: Makes one attempt; safe to repeat.
        others: Further errors that a race may cause.

    Raises:
        ImportRacedError: The branch changed during each of five attempts; or one of the other errors, likewise.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception_type((ImportRacedError, *others)), stop=stop_after_attempt(_ATTEMPTS), reraise=True
    )
    return await retrying(work)


@dataclass(frozen=True, slots=True)
class _ImportRequest:
    """What to commit."""

    workspace_id: str
    branch: str
    entries: Mapping[str, Entry]
    removals: frozenset[str]
    expected: Mapping[str, str | None]
    message: str
    author: Signature
    committer: Signature
    passes_protection: bool


async def commit_entries(
    store: Store,
    workspace_id: str,
    branch: str,
    entries: Iterable[Entry],
    message: str,
    author: Signature | None = None,
    *,
    committer: Signature | None = None,
    removals: Iterable[str] = (),
    expected: Mapping[str, str | None] | None = None,
    passes_protection: bool = False,
) -> str:
    """Write entries to the head of a branch and remove others, in one commit; return the commit's id.

    An entry that equals the one on the head is no change, nor is the removal of an entry that does not exist. If
    nothing changes, nothing is committed, and the id of the head is returned.

    Args:
        store: An open store.
        workspace_id: The workspace.
        branch: An existing branch.
        entries: Valid entries (see `validation`) whose parents and archives are among them or on the branch.
        message: The whole commit message, with its trailers (see `trailers`).
        author: Its author; MemoTree itself if ``None``.
        committer: Its committer; MemoTree itself if ``None``.
        removals: Ids of entries to remove. Nodes below them must be removed or moved by the same import.
        expected: The blob that each of these entries must have on the head that becomes the parent; ``None`` if it must
            not be alive there. Other entries are not compared.
        passes_protection: Whether the branch may be a protected one.

    Raises:
        ImportRacedError: An entry differs from what was expected, or the branch moved; nothing was committed.
        ImportBrokenError: A parent or archive would be missing, a node would stay below a removed one, nodes would form
            a cycle, or two archives would have one name; nothing was committed.
        RevisionNotFoundError: There is no such branch.
        BranchProtectedError: The branch is protected.
        ValueError: An id is both in ``entries`` and in ``removals``.
    """
    by_id = {entry.id: entry for entry in entries}
    gone = frozenset(removals)
    if both := sorted(gone & by_id.keys()):
        sentence = f"{both[0]} is both written and removed"
        raise ValueError(sentence)
    order = _ImportRequest(
        workspace_id=workspace_id,
        branch=branch,
        entries=by_id,
        removals=gone,
        expected=dict(expected or {}),
        message=message.rstrip("\n") + "\n",
        author=author or service_signature(),
        committer=committer or service_signature(),
        passes_protection=passes_protection,
    )
    try:
        return await finish_past_commit_point(partial(_import, store, order))
    except (ImportRacedError, ImportBrokenError):
        # The rollback took back that the mirror followed Git; who reads again has to read what this was compared with.
        await store.catch_up(workspace_id)
        raise


async def _import(store: Store, order: _ImportRequest, commit_point: CommitPoint) -> str:
    async with workspace_transaction(store, order.workspace_id, commit_point) as transaction:
        head = await _head(transaction, order)
        snapshot = Snapshot(transaction.conn, head)
        wanted: dict[str, Entry | None] = {**order.entries, **dict.fromkeys(order.removals)}
        at_head = await tree.versions(snapshot, named_by(wanted) | order.expected.keys())
        _check_expected(order, at_head)
        wanted = await in_store_thread(_changing, wanted, at_head)
        if not wanted:
            return head.commit_id
        await _check_tree(snapshot, wanted, at_head)
        outcome = await write_commit(
            transaction,
            NewCommit(
                branch=order.branch,
                parent=head.commit_id,
                entries=wanted,
                at_parent=at_head,
                message=order.message,
                author=order.author,
                committer=order.committer,
                passes_protection=order.passes_protection,
            ),
        )
        if outcome is None:
            raise ImportRacedError(
                f"Branch {order.branch} moved while the import was written; nothing was committed. Run the import "
                "again."
            )
    store.notice_commit(order.workspace_id)
    return outcome.commit_id


async def _head(transaction: WorkspaceTransaction, order: _ImportRequest) -> State:
    """The head of the branch in the mirror. The import is checked against it, and the swap of the ref demands it."""
    head = await refs.branch_head(transaction.conn, order.workspace_id, order.branch)
    if head is None:
        raise RevisionNotFoundError(order.branch)
    return head


def _check_expected(order: _ImportRequest, at_head: Mapping[str, Version]) -> None:
    raced = sorted(
        entry_id
        for entry_id, blob in order.expected.items()
        if (at_head[entry_id].blob if entry_id in at_head else None) != blob
    )
    if raced:
        told = ", ".join(raced[:_MOST_TOLD]) + (f" and {len(raced) - _MOST_TOLD} more" if raced[_MOST_TOLD:] else "")
        raise ImportRacedError(
            f"On branch {order.branch}, {told} changed since the import was prepared; nothing was committed. Read them "
            "again and repeat the import.",
            [
                Conflict(
                    ConflictKind.BOTH_CHANGED, entry_id, "", None, None, None, f"{entry_id} was changed meanwhile."
                )
                for entry_id in raced
            ],
        )


def _changing(wanted: Mapping[str, Entry | None], at_head: Mapping[str, Version]) -> dict[str, Entry | None]:
    """The changes that differ from the head."""
    return {
        entry_id: entry
        for entry_id, entry in wanted.items()
        if (
            entry_id in at_head
            if entry is None
            else entry_id not in at_head or at_head[entry_id].blob != blob_id(encode_entry(entry))
        )
    }


async def _check_tree(snapshot: Snapshot, wanted: Mapping[str, Entry | None], at_head: Mapping[str, Version]) -> None:
    verdict = await check_tree(snapshot, wanted, set(), at_head=at_head)
    faults_found = [(found.node_id, _sentence(found)) for found in verdict.conflicts]
    faults_found += [
        (entry_id, f"{entry_id} hangs below itself.") for entry_id in await in_store_thread(_circling, wanted)
    ]
    if faults_found:
        raise ImportBrokenError.of(faults_found)


def _sentence(found: Conflict) -> str:
    """The first sentence of a text; the sentences after it are advice that applies only to sessions."""
    return found.description.split(". ", 1)[0].rstrip(".") + "."


def _circling(wanted: Mapping[str, Entry | None]) -> list[str]:
    """One node of each cycle among the nodes given; `check_tree` finds cycles that involve others."""
    above = {entry.id: entry.parent_id for entry in wanted.values() if isinstance(entry, Node)}
    seen: dict[str, str] = {}
    found = []
    for start in above:
        step: str | None = start
        while step is not None and step in above and step not in seen:
            seen[step] = start
            step = above[step]
        if step is not None and seen.get(step) == start and step in above:
            found.append(step)
    return found
