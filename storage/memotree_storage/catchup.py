"""Bringing the mirror to where Git is: after a crash, after commits from outside, and from nothing in a rebuild."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from memotree_storage import faults, trailers
from memotree_storage.codec import InvalidFileError, decode_entry, parse_path
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.repository import GitRepository
from memotree_storage.node import Entry
from memotree_storage.ports import CommitInfo, TagDraft
from memotree_storage.postgres import projector, registry, staging
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.workspaces import KEEP_PREFIX, service_signature

Report = Callable[[str, int, int], None]
"""Told of progress: the step, units done, units in all."""

_BATCH: Final = 200
"""Commits per transaction: a crash loses at most that much work."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What was brought up to date."""

    commits: int
    refs_changed: bool


def mirrored_refs(refs: Mapping[str, str]) -> dict[str, str]:
    """The refs that the mirror follows: branches and tags."""
    return {name: target for name, target in refs.items() if name.startswith(("refs/heads/", "refs/tags/"))}


async def is_behind(conn: Connection, workspace_id: str, repository: GitRepository) -> bool:
    """Whether the watermark of the mirror differs from the repository's refs."""
    actual = mirrored_refs(await asyncio.to_thread(repository.refs))
    cursor = await conn.execute("select name, object_id from mirror.ref where workspace_id = %s", (workspace_id,))
    return actual != {row[0]: row[1] for row in await cursor.fetchall()}


async def catch_up(
    database: Database, workspace_id: str, repository: GitRepository, report: Report | None = None
) -> CatchUp:
    """Mirror every commit that a ref reaches and the mirror lacks, then the refs; safe to interrupt and repeat.

    A tag that a commit of an interrupted `CommitChanges` asked for is made, and the staged changes that it committed
    are settled.
    """
    tell = report or (lambda *_: None)
    async with database.connection() as conn:
        if not await is_behind(conn, workspace_id, repository):
            return CatchUp(0, refs_changed=False)
        known = await projector.known_commits(conn, workspace_id)
        waiting = await _waiting_sessions(conn, workspace_id)
    commits = await asyncio.to_thread(_missing, repository, known)
    done = 0
    for batch in _batches(commits):
        async with database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")  # a commit may be as big as an import
            await registry.lock_workspace(conn, workspace_id)
            # Somebody else may have mirrored some of them since `known` was read.
            there = await projector.known_commits(conn, workspace_id, [commit.commit_id for commit in batch])
            missing = [commit for commit in batch if commit.commit_id not in there]
            await _mirror(conn, workspace_id, repository, missing, waiting)
            faults.point("recovery.projected")
            await _make_tags(repository, missing, waiting)
            faults.point("recovery.tagged")
        done += len(batch)
        tell("commits", done, len(commits))
    faults.point("recovery.mirrored")
    async with database.transaction() as conn:
        await registry.lock_workspace(conn, workspace_id)
        await follow_refs(conn, workspace_id, repository)
    return CatchUp(len(commits), refs_changed=True)


async def catch_up_within(conn: Connection, workspace_id: str, repository: GitRepository) -> None:
    """The same inside a transaction that holds the workspace already; for a few commits from outside."""
    known = await projector.known_commits(conn, workspace_id)
    waiting = await _waiting_sessions(conn, workspace_id)
    commits = await asyncio.to_thread(_missing, repository, known)
    await _mirror(conn, workspace_id, repository, commits, waiting)
    await _make_tags(repository, commits, waiting)
    await follow_refs(conn, workspace_id, repository)


async def replay_within(
    conn: Connection, workspace_id: str, repository: GitRepository, report: Report | None = None
) -> None:
    """Mirror the whole history of a workspace whose mirror is empty, inside the caller's transaction.

    No session is settled and no tag made: they have heard of all these commits when they were made.
    """
    commits = await asyncio.to_thread(_missing, repository, set())
    for done, batch in enumerate(_batches(commits)):
        await _mirror(conn, workspace_id, repository, batch, frozenset())
        if report is not None:
            report("commits", min((done + 1) * _BATCH, len(commits)), len(commits))
    await follow_refs(conn, workspace_id, repository)


async def follow_refs(conn: Connection, workspace_id: str, repository: GitRepository) -> None:
    """Set the mirrored refs to the repository's, and detach the sessions whose branch is gone."""
    peeled: dict[str, tuple[str, str]] = {}
    refs = mirrored_refs(await asyncio.to_thread(repository.refs))
    for name, target in refs.items():
        try:
            peeled[name] = (target, (await asyncio.to_thread(repository.commit_info, target)).commit_id)
        except ObjectMissingError:
            continue  # a tag of a tree or blob names no state
    known = await projector.known_commits(conn, workspace_id, {commit for _, commit in peeled.values()})
    await projector.set_refs(conn, workspace_id, {name: pair for name, pair in peeled.items() if pair[1] in known})
    branches = [name.removeprefix("refs/heads/") for name in peeled if name.startswith("refs/heads/")]
    await conn.execute(
        "update work.session set state = 'detached' where workspace_id = %s and state = 'open' and branch <> all(%s)",
        (workspace_id, branches),
    )


def _missing(repository: GitRepository, known: set[str]) -> list[CommitInfo]:
    refs = repository.refs()
    tips = set(mirrored_refs(refs).values()) | {target for name, target in refs.items() if name.startswith(KEEP_PREFIX)}
    commits = []
    for tip in sorted(tips):
        try:
            commits.append(repository.commit_info(tip).commit_id)
        except ObjectMissingError:
            continue
    return repository.history(commits, known.__contains__)


async def _waiting_sessions(conn: Connection, workspace_id: str) -> set[str]:
    """The sessions that may not have heard of their own last commit: the commit they stand on is mirrored.

    When it is not, the mirror is being built again; then the session has heard of all its commits, and replaying them
    would take later edits for committed ones and move the session back.
    """
    cursor = await conn.execute(
        "select s.session_id from work.session s join mirror.commit c on c.workspace_id = s.workspace_id"
        " and c.commit_id = s.base_commit where s.workspace_id = %s",
        (workspace_id,),
    )
    return {row[0] for row in await cursor.fetchall()}


async def _mirror(
    conn: Connection,
    workspace_id: str,
    repository: GitRepository,
    commits: Iterable[CommitInfo],
    waiting: AbstractSet[str],
) -> None:
    """Mirror commits, and settle the waiting sessions that they came from."""
    async for commit, changes, broken in _read_changes(repository, commits):
        await projector.project(conn, workspace_id, commit, changes, broken)
        session_id = trailers.trailers_of(commit.message).get(trailers.SESSION)
        if session_id and session_id in waiting:
            await staging.settle(conn, workspace_id, session_id, commit.commit_id, changes)


async def _read_changes(
    repository: GitRepository, commits: Iterable[CommitInfo]
) -> AsyncIterator[tuple[CommitInfo, list[EntryChange], dict[str, str]]]:
    for commit in commits:
        changes, broken = await asyncio.to_thread(changes_of, repository, commit)
        yield commit, changes, broken


def changes_of(repository: GitRepository, commit: CommitInfo) -> tuple[list[EntryChange], dict[str, str]]:
    """What a commit changes against its first parent, and the files in it that cannot be read as entries.

    A file that cannot be read stands for an entry that is not alive there: the state is a function of the commit alone.
    """
    changes: list[EntryChange] = []
    broken: dict[str, str] = {}
    seen: set[str] = set()
    for change in repository.diff(commit.parents[0] if commit.parents else None, commit.commit_id):
        parsed = parse_path(change.path)
        if parsed is None:
            continue
        entry: Entry | None = None
        if change.new_blob is not None:
            try:
                entry = decode_entry(change.path, repository.read_blob(change.new_blob))
            except (InvalidFileError, ObjectMissingError) as error:
                broken[change.path] = error.message
        if parsed[1] in seen:
            broken[change.path] = f"Another file of this commit has the id {parsed[1]}."
            continue
        seen.add(parsed[1])
        changes.append(EntryChange(parsed[1], change.new_blob or "" if entry else "", entry))
    return changes, broken


async def _make_tags(repository: GitRepository, commits: Iterable[CommitInfo], waiting: AbstractSet[str]) -> None:
    """Make the tags that a crash kept from being made; the trailer of the commit names them.

    Only for commits of waiting sessions: another commit that lacks the tag it asked for has had it, and somebody has
    deleted it since.
    """
    for commit in commits:
        found = trailers.trailers_of(commit.message)
        if trailers.TAG in found and found.get(trailers.SESSION) in waiting:
            await asyncio.to_thread(_make_tag, repository, found[trailers.TAG], commit)


def _make_tag(repository: GitRepository, name: str, commit: CommitInfo) -> None:
    ref = f"refs/tags/{name}"
    if ref in repository.refs():
        return
    subject = commit.message.split("\n", 1)[0]
    draft = TagDraft(name, subject + "\n", service_signature(commit.committer.when))
    try:
        repository.move_ref(ref, None, repository.write_tag(draft, commit.commit_id))
    except UnavailableError:
        raise  # a full disk, say: the commit is mirrored, and its tag made, at the next try
    except MemoTreeError:
        return  # a trailer that a person made up names no tag


def _batches(commits: list[CommitInfo]) -> Iterator[list[CommitInfo]]:
    for start in range(0, len(commits), _BATCH):
        yield commits[start : start + _BATCH]
