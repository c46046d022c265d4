"""Brings the mirror up to date with Git: after a crash, after commits by other programs, and in a rebuild."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import psycopg
import structlog

from memotree_storage import faults
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import CorruptError, MemoTreeError, UnavailableError
from memotree_storage.git.entry_files import EntryDecoder, SecondFile, diff_entries
from memotree_storage.git.erasures import rewritten_commits
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.refs import LONGEST_NAME
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.staged_merge import carry_over, merge_onto
from memotree_storage.model import trailers
from memotree_storage.model.codec import InvalidFileError
from memotree_storage.model.erasure import ERASURES_REF
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import shown_path
from memotree_storage.model.provenance import is_same_apart_from_summary
from memotree_storage.model.workspace import KEEP_PREFIX, SERVICE_EMAIL, service_signature
from memotree_storage.ports import CommitInfo, CommitParents, CommitReader, CommitStore, TagDraft
from memotree_storage.postgres import projector, refs, registry, sessions, staging, tree
from memotree_storage.postgres.database import Connection, Database, get_setting, put_setting
from memotree_storage.postgres.erasures import followed_erasures, put_rewritten
from memotree_storage.postgres.line_joins import join_lines
from memotree_storage.postgres.merge_bases import history_of
from memotree_storage.postgres.projector import EntryChange, LineBranch
from memotree_storage.postgres.refs import BRANCHES, FOLLOWED, TAGS
from memotree_storage.postgres.tree import Snapshot, State

Report = Callable[[str, int, int], None]
"""Called with progress: the name of the step, units done, units in total."""

_BATCH: Final = 200
"""Commits per transaction: a crash loses at most that much work."""

_SHOWN: Final = 200
"""Characters of an odd name that are shown."""

_COMMITTERS: Final = "committer_emails"
_log = structlog.get_logger(__name__)


class CommitNotMirroredError(CorruptError):
    """A commit of another program has a value that PostgreSQL refuses and that nobody has foreseen."""

    reason = "COMMIT_NOT_MIRRORED"

    def __init__(self, commit_id: str, cause: psycopg.Error) -> None:
        super().__init__(
            f"Commit {commit_id} cannot be mirrored ({cause.diag.message_primary or type(cause).__name__}), so this "
            "workspace takes no changes. Move the branches that have it back with git (git branch --force NAME "
            f"{commit_id}^), and report this commit."
        )
        self.commit_id = commit_id


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What a catch-up did: commits mirrored, and whether any ref had changed."""

    commits: int
    refs_changed: bool


def mirrored_refs(found: Mapping[str, str]) -> dict[str, str]:
    """The refs that the mirror follows: branches and tags, except those of `odd_refs`."""
    followed = {name: target for name, target in found.items() if name.startswith((BRANCHES, TAGS))}
    for name, why in odd_refs(followed).items():
        _tell_odd_name(name, why)
        del followed[name]
    return followed


def odd_refs(found: Iterable[str]) -> dict[str, str]:
    """The branches and tags that the mirror cannot follow, each with the reason, since people may push any name."""
    return {name: odd for name in found if name.startswith((BRANCHES, TAGS)) and (odd := _oddness(name))}


def shown_ref(name: str) -> str:
    """The beginning of an odd name, in ASCII."""
    return ascii(name)[:_SHOWN]


def _oddness(name: str) -> str:
    """Why PostgreSQL or gRPC cannot take a name; "" if they can."""
    if name.isascii() and len(name) <= LONGEST_NAME:
        return ""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return f"its name is longer than {LONGEST_NAME} bytes" if length > LONGEST_NAME else ""


@lru_cache(maxsize=1000)
def _tell_odd_name(name: str, why: str) -> None:
    """Log a name once, since refs are listed with every commit."""
    _log.warning("a ref is ignored; rename it with git", ref=shown_ref(name), why=why)


async def is_behind(conn: Connection, workspace_id: str, repository: CommitReader) -> bool:
    """Whether the mirrored refs differ from the repository's; refs that name no commit are ignored."""
    actual = mirrored_refs(await in_store_thread(repository.refs, *FOLLOWED))
    stored = await refs.object_ids(conn, workspace_id)
    if any(actual.get(name) != target for name, target in stored.items()):
        return True
    fresh = {name: target for name, target in actual.items() if name not in stored}
    return bool(fresh) and bool(await in_store_thread(_peeled, repository, fresh))


async def note_committer(conn: Connection, email: str) -> None:
    """Add the service's committer address to the remembered ones.

    The trailers of a commit are trusted only if its committer has one of these addresses.
    """
    known = await _committers(conn)
    if email not in known:
        await put_setting(conn, _COMMITTERS, "\n".join([*sorted(known), email]))


async def _committers(conn: Connection) -> set[str]:
    return set((await get_setting(conn, _COMMITTERS) or SERVICE_EMAIL).split("\n"))


async def catch_up(
    database: Database,
    workspace_id: str,
    repository: CommitStore,
    entries: EntryReader,
    report: Report | None = None,
) -> CatchUp:
    """Mirror every commit that a ref reaches and the mirror lacks, then the refs. Safe to interrupt and repeat.

    For a commit of an interrupted `CommitChanges` this also makes its tag and settles its session's staged changes.
    """
    tell = report or (lambda *_: None)
    async with database.connection() as conn:
        if not await is_behind(conn, workspace_id, repository):
            return CatchUp(0, refs_changed=False)
        known = await projector.known_commits(conn, workspace_id)
        waiting = await _waiting_sessions(conn, workspace_id, repository)
        default = await registry.default_branch(conn, workspace_id)
    commits, branches = await in_store_thread(_missing, repository, known, default)
    done = 0
    for batch in _batches(commits):
        async with database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")  # a commit may be as big as an import
            await registry.lock_workspace(conn, workspace_id)
            # Another task may have mirrored some of them since `known` was read.
            there = await projector.known_commits(conn, workspace_id, [commit.commit_id for commit in batch])
            lacking = [commit for commit in batch if commit.commit_id not in there]
            missing = await in_store_thread(_read, repository, lacking)
            await _mirror(conn, workspace_id, repository, missing, branches)
            await _settle(conn, workspace_id, entries, missing, waiting)
            faults.point("recovery.projected")
            await _make_tags(missing, waiting)
            faults.point("recovery.tagged")
        done += len(batch)
        tell("commits", done, len(commits))
    faults.point("recovery.mirrored")
    async with database.transaction() as conn:
        await registry.lock_workspace(conn, workspace_id)
        await follow_refs(conn, workspace_id, repository)
    return CatchUp(len(commits), refs_changed=True)


async def catch_up_in_transaction(
    conn: Connection, workspace_id: str, repository: CommitStore, entries: EntryReader
) -> None:
    """The same inside a transaction that holds the workspace; for a few commits by other programs."""
    known = await projector.known_commits(conn, workspace_id)
    waiting = await _waiting_sessions(conn, workspace_id, repository)
    default = await registry.default_branch(conn, workspace_id)
    commits, branches = await in_store_thread(_missing, repository, known, default)
    for batch in _batches(commits):
        missing = await in_store_thread(_read, repository, batch)
        await _mirror(conn, workspace_id, repository, missing, branches)
        await _settle(conn, workspace_id, entries, missing, waiting)
        await _make_tags(missing, waiting)
    await follow_refs(conn, workspace_id, repository)


async def replay_in_transaction(
    conn: Connection, workspace_id: str, repository: CommitReader, report: Report | None = None
) -> None:
    """Mirror the whole history of a workspace whose mirror is empty, inside the caller's transaction.

    Settles no session and makes no tag: both were done when the commits were made.
    """
    # Read once: with the refs of a later push, a branch would be missing.
    found = mirrored_refs(await in_store_thread(repository.refs, *FOLLOWED))
    default = await registry.default_branch(conn, workspace_id)
    commits, branches = await in_store_thread(_missing, repository, set(), default, found)
    for done, batch in enumerate(_batches(commits)):
        missing = await in_store_thread(_read, repository, batch)
        await _mirror(conn, workspace_id, repository, missing, branches)
        if report is not None:
            report("commits", min((done + 1) * _BATCH, len(commits)), len(commits))
    await follow_refs(conn, workspace_id, repository, found)


async def follow_refs(
    conn: Connection, workspace_id: str, repository: CommitReader, found: Mapping[str, str] | None = None
) -> None:
    """Make the mirrored refs equal to the repository's; note the sessions whose branch no longer exists or was rewound.

    A ref whose commit is not mirrored yet, since it was pushed a moment ago, stays where it was in the mirror; without
    ``found``, the refs of this moment are followed.
    """
    if found is None:
        found = mirrored_refs(await in_store_thread(repository.refs, *FOLLOWED))
    peeled = await in_store_thread(_peeled, repository, found)
    known = await projector.known_commits(conn, workspace_id, {commit for _, commit in peeled.values()})
    moved = {name: pair for name, pair in peeled.items() if pair[1] in known}
    in_use = await sessions.branches_in_use(conn, workspace_id)
    before = await refs.branch_heads(conn, workspace_id, in_use)
    await refs.set_refs(conn, workspace_id, moved, keep=peeled.keys() - moved.keys())
    default = await registry.default_branch(conn, workspace_id)
    if BRANCHES + default in moved:
        await join_lines(conn, workspace_id, default, moved[BRANCHES + default][1])
    branches = [name.removeprefix(BRANCHES) for name in peeled if name.startswith(BRANCHES)]
    await sessions.detach_without_branch(conn, workspace_id, branches)
    for branch in in_use:
        now = moved.get(BRANCHES + branch)
        if now is not None and now[1] != before.get(branch):
            await sessions.note_rewound(conn, workspace_id, branch, await history_of(conn, workspace_id, now[1]))
    await _follow_erasures(conn, workspace_id, repository)


async def _follow_erasures(conn: Connection, workspace_id: str, repository: CommitReader) -> None:
    """Let the old ids of commits that an erasure has rewritten lead to the new ones."""
    tip = await in_store_thread(repository.ref, ERASURES_REF) or ""
    if tip != await followed_erasures(conn, workspace_id):
        commits = await in_store_thread(rewritten_commits, repository) if tip else {}
        await put_rewritten(conn, workspace_id, tip, commits)


def _peeled(repository: CommitReader, found: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Each ref's object and the commit it peels to; tags of trees or blobs are left out, since they name no state."""
    peeled = {}
    for name, target in found.items():
        with suppress(ObjectMissingError):
            commit_id = repository.peel(target)
            if commit_id is not None:
                peeled[name] = (target, commit_id)
    return peeled


def _missing(
    repository: CommitReader, known: set[str], default_branch: str, followed: Mapping[str, str] | None = None
) -> tuple[list[CommitParents], "_Branches"]:
    """The commits to mirror, and their branches: what refs and sessions reach, and what is not known."""
    found = repository.refs()
    held = {target for name, target in found.items() if name.startswith(KEEP_PREFIX)}
    if followed is None:
        followed = mirrored_refs(found)
    tips = _peeled(repository, {target: target for target in sorted(held.union(followed.values()))})
    missing = repository.history([commit_id for _, commit_id in tips.values()], known.__contains__)
    heads = {name.removeprefix(BRANCHES): tip for name, tip in followed.items() if name.startswith(BRANCHES)}
    return missing, _Branches(missing, heads, default_branch)


class _Branches:
    """The branch of each commit that is to be mirrored: the default branch if that reaches it by first parents.

    Args:
        missing: The commits to mirror.
        heads: The commit of each branch by its name.
        default_branch: Comes first; the others follow in the order of their names.
    """

    def __init__(self, missing: Iterable[CommitParents], heads: Mapping[str, str], default_branch: str) -> None:
        parents = {commit.commit_id: next(iter(commit.parents), None) for commit in missing}
        self._of: dict[str, str] = {}
        self._passing: dict[str, set[str]] = defaultdict(set)
        for name in sorted(heads, key=lambda name: (name != default_branch, name)):
            commit_id: str | None = heads[name]
            while commit_id in parents and commit_id not in self._of:
                self._of[commit_id] = name
                self._passing[commit_id].add(name)
                commit_id = parents[commit_id]
            if commit_id is not None and commit_id not in parents:  # mirrored before
                self._passing[commit_id].add(name)

    def of(self, commit_id: str) -> LineBranch:
        """The branch on whose line a commit comes."""
        return LineBranch(self._of.get(commit_id, ""), self._passing)


class _Waiting:
    """Sessions whose last commit may not be settled, and the test which commits are theirs.

    A trailer alone proves nothing, because `git cherry-pick` copies it. A session's own commit was made by the service,
    on the session's branch, after the session's base commit.
    """

    def __init__(
        self, repository: CommitStore, committers: Collection[str], sessions: Mapping[str, tuple[str, str]]
    ) -> None:
        self.repository = repository
        self._committers = committers
        self._sessions = sessions
        self._since: dict[str, set[str]] = {}

    async def session_of(self, commit: CommitInfo) -> str | None:
        """The id of the waiting session that made a commit, or ``None``."""
        if commit.committer.email not in self._committers:
            return None
        session_id = trailers.trailers_of(commit.message).get(trailers.SESSION, "")
        if session_id not in self._sessions:
            return None
        if session_id not in self._since:
            self._since[session_id] = await in_store_thread(_since, self.repository, *self._sessions[session_id])
        return session_id if commit.commit_id in self._since[session_id] else None


def _since(repository: CommitReader, branch: str, base: str) -> set[str]:
    """The first-parent commits of a branch after ``base``; empty if ``base`` is not among them."""
    found: set[str] = set()
    commit_id = repository.ref(BRANCHES + branch)
    try:
        while commit_id is not None and commit_id != base:
            found.add(commit_id)
            commit_id = next(iter(repository.commit_info(commit_id).parents), None)
    except ObjectMissingError:
        return set()
    return found if commit_id == base else set()


async def _waiting_sessions(conn: Connection, workspace_id: str, repository: CommitStore) -> _Waiting:
    """The sessions whose base commit is mirrored.

    If it is not, the mirror is being rebuilt. Such a session is settled already; replaying its commits would mistake
    later edits for committed ones and move the session's base back.
    """
    standing = await sessions.base_is_mirrored(conn, workspace_id)
    return _Waiting(repository, await _committers(conn), standing)


async def _mirror(
    conn: Connection,
    workspace_id: str,
    repository: CommitReader,
    commits: Iterable[CommitInfo],
    branches: _Branches,
) -> None:
    async for commit, changes, broken in _read_changes(repository, commits):
        try:
            branch = branches.of(commit.commit_id)
            await projector.project(conn, workspace_id, commit, changes, broken, branch=branch)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            raise CommitNotMirroredError(commit.commit_id, error) from error


async def _settle(
    conn: Connection, workspace_id: str, entries: EntryReader, commits: Iterable[CommitInfo], waiting: _Waiting
) -> None:
    """Settle the waiting sessions that made the commits, as the commits would have done themselves.

    A staged change whose merge onto the parent of the commit gives what the commit has is in the commit, with another
    blob than in the session; the commit may have renewed a generated summary. What stays staged is carried over to the
    commit.
    """
    for commit in commits:
        session_id = await waiting.session_of(commit)
        if session_id is None:
            continue
        session = await sessions.find_if_there(conn, workspace_id, session_id)
        brings = session is not None and session.brings
        rows = await staging.staged(conn, session_id)
        made = Snapshot(conn, State(workspace_id, commit.commit_id))
        committed = await tree.versions(made, [row.entry_id for row in rows], dead=True)
        merging = await merge_onto(Snapshot(conn, State(workspace_id, commit.parents[0])), entries, rows, brings=brings)
        alive = await entries.load(workspace_id, [version for version in committed.values() if not version.dead])
        changes = []
        for item in merging.merged:
            version = committed.get(item.row.entry_id)
            entry = alive[version.blob] if version is not None and not version.dead else None
            if not item.conflicts and is_same_apart_from_summary(item.entry, entry):
                changes.append(EntryChange(item.row.entry_id, item.row.version.blob, entry))
            elif version is not None and version.commit_id == commit.commit_id:
                changes.append(EntryChange(item.row.entry_id, version.blob, entry))
        await staging.settle(conn, workspace_id, session_id, commit.commit_id, changes)
        await carry_over(made, entries, session_id, brings=brings)


async def _read_changes(
    repository: CommitReader, commits: Iterable[CommitInfo]
) -> AsyncIterator[tuple[CommitInfo, list[EntryChange], dict[str, str]]]:
    for commit in commits:
        changes, broken = await in_store_thread(changes_of, repository, commit)
        yield commit, changes, broken


def changes_of(repository: CommitReader, commit: CommitInfo) -> tuple[list[EntryChange], dict[str, str]]:
    """What a commit changes against its first parent; see `changes_between`."""
    return changes_between(repository, commit.parents[0] if commit.parents else None, commit.commit_id)


def changes_between(repository: CommitReader, old: str | None, new: str) -> tuple[list[EntryChange], dict[str, str]]:
    """What one commit changes against another, and why files that differ cannot be read as entries, by path.

    The entry of an unreadable file counts as not alive, and the first of several files with one id is the entry, so
    that the state is a function of the commit alone. A file that only got another name is no change.
    """
    changes: list[EntryChange] = []
    broken: dict[str, str] = {}
    decoder = EntryDecoder(repository)
    for found in diff_entries(repository, old, new):
        if isinstance(found, SecondFile):
            broken[shown_path(found.path)] = found.fault
        elif found.old != found.new:
            entry: Entry | None = None
            if found.new is not None:
                try:
                    entry = decoder.decode(found.new)
                except (InvalidFileError, ObjectMissingError) as error:
                    broken[shown_path(found.new.path)] = error.message
            if not found.same_entry:
                changes.append(EntryChange(found.entry_id, found.new.blob if found.new and entry else "", entry))
    return changes, broken


async def _make_tags(commits: Iterable[CommitInfo], waiting: _Waiting) -> None:
    """Make the tags that a crash prevented; the trailer of the commit names them.

    Does this only for commits of waiting sessions: if any other commit lacks its tag, the tag was deleted later.
    """
    for commit in commits:
        name = trailers.trailers_of(commit.message).get(trailers.TAG)
        if name is not None and await waiting.session_of(commit) is not None:
            await in_store_thread(_make_tag, waiting.repository, name, commit)


def _make_tag(repository: CommitStore, name: str, commit: CommitInfo) -> None:
    ref = TAGS + name
    if repository.ref(ref) is not None:
        return
    subject = commit.message.split("\n", 1)[0]
    draft = TagDraft(name, subject + "\n", service_signature(commit.committer.when))
    try:
        repository.move_ref(ref, None, repository.write_tag(draft, commit.commit_id))
    except UnavailableError:
        raise  # for example a full disk: the next attempt mirrors the commit and makes its tag
    except MemoTreeError:
        return  # a person wrote a trailer with a name that no tag can have


def _batches(commits: list[CommitParents]) -> Iterator[list[CommitParents]]:
    for start in range(0, len(commits), _BATCH):
        yield commits[start : start + _BATCH]


def _read(repository: CommitReader, commits: Iterable[CommitParents]) -> list[CommitInfo]:
    """The commits of a batch with their messages, which are in memory only as long as they are mirrored."""
    return [repository.commit_info(commit.commit_id) for commit in commits]
