"""The one write path: every commit on a branch and every move of a branch or tag goes through this module.

Two things do not: the first commit of a workspace, which is made with its repository (`git.workspaces`), and a tag that
a crash prevented, which the replay makes (`mirror.catch_up`).

`write_commit` does, in this order:

0. Refuse a protected branch, unless an approved proposal is merged.
1. Write blobs, trees, commit and tag object as one pack, and sync it. No ref names it yet.
2. Move the branch by compare and swap from the commit that the changes were checked against. This is the commit point.
3. In the transaction that holds the workspace: mirror the commit and the branch, and settle the session it came from.
4. Make the tag.

In a group (`memotree_storage.commit.group_commit`), the commits of several calls share one pack and one move of their
branch: step 3 comes first for each of them, in a transaction that is not committed yet, then steps 1 and 2 for all.

A crash before step 2 changes nothing. If it happens later, the mirror lacks the commit; the next start mirrors it
and settles its session, which the commit's trailers name (see `memotree_storage.mirror.catch_up`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, Self

from memotree_storage import faults
from memotree_storage.commit.transaction import PendingHead, WorkspaceTransaction
from memotree_storage.concurrency.threads import in_store_thread, in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.protections import refuse_protected
from memotree_storage.git.refs import RefNameTakenError
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.staged_merge import carry_over
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import entry_path
from memotree_storage.model.readme import README_PATH, raise_version
from memotree_storage.ports import (
    CommitDraft,
    CommitInfo,
    CommitStore,
    FileContent,
    OpenPack,
    Signature,
    TagDraft,
    WrittenCommit,
)
from memotree_storage.postgres import projector, refs, staging
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.postgres.refs import BRANCHES, TAGS
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_FEW: Final = 50
"""More changes are prepared in a thread, so that other calls can run."""


class _Target(Protocol):
    """Takes a commit: a repository, or an open pack of it."""

    def write_commit(self, draft: CommitDraft) -> WrittenCommit: ...


@dataclass(frozen=True, slots=True)
class SettledSession:
    """The session of a commit.

    Attributes:
        session_id: The session.
        changes: Each chosen change with the blob that was staged.
        has_conflicts: Whether it had conflicts.
        brings: Whether something was brought into it.
    """

    session_id: str
    changes: Sequence[EntryChange]
    has_conflicts: bool = False
    brings: bool = False


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit to be written on a branch, checked against ``parent``.

    Attributes:
        branch: A branch that is at ``parent``.
        parent: The parent of the commit.
        entries: What changes, by id; ``None`` removes the entry.
        at_parent: The alive versions at ``parent`` of the entries that change.
        message: The whole message with its trailers.
        author: Its author.
        committer: Its committer.
        tag: An annotated tag to make with it.
        session: The session that it came from.
        merged: The further parents of a merge commit.
        files: Files to write that are no entries, by path; ``None`` removes the file.
        passes_protection: Whether it may be made on a protected branch: it merges an approved proposal, or has the
            automatic summaries that follow.
    """

    branch: str
    parent: str
    entries: Mapping[str, Entry | None]
    at_parent: Mapping[str, Version]
    message: str
    author: Signature
    committer: Signature
    tag: TagDraft | None = None
    session: SettledSession | None = None
    merged: Sequence[str] = ()
    files: Mapping[str, FileContent | None] = field(default_factory=dict)
    passes_protection: bool = False


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """A commit that was made.

    Attributes:
        commit_id: The commit.
        remaining: How many changes are still staged in the session.
        conflicts: Why some of these do not fit the commit.
        warnings: Why the tag was not made, if it was not.
    """

    commit_id: str
    remaining: int = 0
    conflicts: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()


class BranchMovedError(Exception):
    """Another program moved the branch of pending commits; nothing was published."""


@dataclass(slots=True)
class PendingCommits:
    """Commits on one branch that are published together: the last one has all others behind it.

    A context manager: leaving it without `publish` drops what was written.

    Attributes:
        pack: Takes their objects.
        ref: The branch; "" before the first commit.
        old: The commit that it is at in Git.
        head: The last commit; ``None`` if there is none.
        projected: How many commits have rows in the transaction, or some of them.
    """

    pack: OpenPack
    ref: str = ""
    old: str = ""
    head: PendingHead | None = None
    projected: int = 0

    @classmethod
    def on(cls, repository: CommitStore) -> Self:
        """No commits yet."""
        return cls(repository.open_pack())

    def __enter__(self) -> Self:
        self.pack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.pack.__exit__(None, None, None)

    @property
    def size(self) -> int:
        """Bytes of what was written, which are kept in memory."""
        return self.pack.size

    def head_of(self, ref: str) -> PendingHead | None:
        """The last commit of the branch ``ref``; ``None`` if there is none yet."""
        return self.head if ref == self.ref else None

    def begin_rows(self) -> None:
        """Note that the rows of a commit are written from here on."""
        self.projected += 1

    def add(self, ref: str, parent: str, head: PendingHead) -> None:
        """Note a commit of the branch ``ref``."""
        if self.head is None:
            self.ref, self.old = ref, parent
        elif (ref, parent) != (self.ref, self.head.commit_id):
            message = f"{head.commit_id} on {ref} does not follow {self.head.commit_id} on {self.ref}."
            raise ValueError(message)
        self.head = head

    async def publish(self, transaction: WorkspaceTransaction) -> None:
        """Sync what was written, and move the branch to the last commit; there must be one.

        Raises:
            BranchMovedError: Another program moved the branch meanwhile; nothing has changed.
        """
        assert self.head is not None  # noqa: S101 - the caller has looked
        await in_store_thread(self.pack.finish)
        faults.point("commit.before-swap")
        if not await transaction.swap(transaction.repository.move_ref, self.ref, self.old, self.head.commit_id):
            raise BranchMovedError
        faults.point("commit.swapped")


async def write_commit(transaction: WorkspaceTransaction, new: NewCommit) -> CommitOutcome | None:
    """Write a commit, move its branch, mirror it, settle its session and make its tag.

    Returns:
        The commit, or ``None`` if another program moved the branch meanwhile: then nothing has changed.

    Raises:
        BranchProtectedError: The branch takes no changes directly.
    """
    conn, workspace_id, repository = transaction.conn, transaction.workspace_id, transaction.repository
    pending = transaction.pending
    written, info = await in_store_thread(_write, repository, new, repository if pending is None else pending.pack)
    ref = BRANCHES + new.branch
    if pending is None:
        faults.point("commit.before-swap")
        if not await _move(transaction, ref, new.parent, written.commit_id, written.commit_id):
            return None
        faults.point("commit.swapped")
    changes = await in_store_thread_if(len(new.entries) > _FEW, _changes, transaction.store.entries, new, written)
    branch = projector.LineBranch(new.branch, moves=pending is not None)
    last = None if pending is None else pending.head_of(ref)
    if pending is not None:
        pending.begin_rows()
    tip = await projector.project(
        *(conn, workspace_id, info, changes),
        branch=branch,
        before=new.at_parent,
        after=None if last is None else last.tip,
        checked=True,
    )
    if pending is not None:
        pending.add(ref, new.parent, PendingHead(written.commit_id, tip))
    faults.point("commit.projected")
    remaining, conflicts = 0, list[Conflict]()
    if new.session is not None:
        remaining, conflicts = await _settle(transaction, new.session, written.commit_id)
    faults.point("commit.mirrored")
    warnings: tuple[str, ...] = ()
    if new.tag is not None and written.tag_id is not None:
        warnings = await place_tag(transaction, new.tag.name, written.tag_id, written.commit_id)
    faults.point("commit.tagged")
    return CommitOutcome(written.commit_id, remaining, tuple(conflicts), warnings)


async def move_ref(
    transaction: WorkspaceTransaction,
    ref: str,
    old: str | None,
    new: str | None,
    commit_id: str = "",
    *,
    passes_protection: bool = False,
) -> bool:
    """Move a branch or tag by compare and swap in Git, then in the mirror.

    Args:
        transaction: Holds the workspace.
        ref: The full name.
        old: The object that it must be at; ``None`` if it must not exist.
        new: The object that it shall be at; ``None`` to delete it.
        commit_id: The commit that ``new`` peels to.
        passes_protection: Whether a protected branch may be moved: an approved proposal is merged.

    Returns:
        Whether it was moved; if not, somebody else has moved it and nothing has changed.

    Raises:
        BranchProtectedError: It is a protected branch that is there already.
        RefNameTakenError: A ref exists that would be a folder of this one, or the other way round.
    """
    if old is not None and ref.startswith(BRANCHES) and not passes_protection:
        await in_store_thread(refuse_protected, transaction.repository, ref.removeprefix(BRANCHES))
    return await _move(transaction, ref, old, new, commit_id)


async def _move(transaction: WorkspaceTransaction, ref: str, old: str | None, new: str | None, commit_id: str) -> bool:
    if not await transaction.swap(transaction.repository.move_ref, ref, old, new):
        return False
    if new is None:
        await refs.delete_ref(transaction.conn, transaction.workspace_id, ref)
    else:
        await refs.put_ref(transaction.conn, transaction.workspace_id, ref, new, commit_id)
    return True


async def place_tag(transaction: WorkspaceTransaction, name: str, tag_id: str, commit_id: str) -> tuple[str, ...]:
    """Make the tag of a commit that was made.

    Returns:
        Why it was not made; nothing if it was.
    """
    try:
        made = await move_ref(transaction, TAGS + name, None, tag_id, commit_id)
    except RefNameTakenError as error:  # a push made the other ref at the same moment; the commit is made
        return (f"Tag {name} was not made: {error.message}",)
    return () if made else (f"Tag {name} was made by someone else at the same moment; the commit has no tag.",)


def _write(repository: CommitStore, new: NewCommit, target: _Target) -> tuple[WrittenCommit, CommitInfo]:
    if not new.passes_protection:
        refuse_protected(repository, new.branch)
    draft = CommitDraft(
        new.parent, _files(repository, new), new.message, new.author, new.committer, new.tag, new.merged
    )
    written = target.write_commit(draft)
    return written, repository.commit_info(written.commit_id)


def _files(repository: CommitStore, new: NewCommit) -> dict[str, FileContent | None]:
    """The files that the commit writes (``None``: removes), by path; each is encoded when it is written.

    The present name of an entry is read from its folder at the parent, which holds few files and is rewritten anyway.
    All files with its id are removed, whatever their slugs are, so that it has one file afterwards.
    """
    files = dict(new.files)
    for present in entry_files(repository, new.parent, sorted(new.entries)).values():
        files.update(dict.fromkeys(file.path for file in present))
    for entry in new.entries.values():
        if entry is not None:
            files[entry_path(entry)] = partial(encode_entry, entry)
    readme = repository.read_path(new.parent, README_PATH)
    if (merged := files.get(README_PATH)) is not None:
        readme = merged if isinstance(merged, bytes) else merged()
    raised = None if readme is None else raise_version(readme)
    return files if raised is None else {**files, README_PATH: raised}


def _changes(reader: EntryReader, new: NewCommit, written: WrittenCommit) -> list[EntryChange]:
    """The changes with the blobs that were written; their entries are in the reader's cache then."""
    changes = [_entry_change(entry_id, entry, written) for entry_id, entry in new.entries.items()]
    reader.remember({change.blob: change.entry for change in changes if change.entry is not None})
    return changes


def _entry_change(entry_id: str, entry: Entry | None, written: WrittenCommit) -> EntryChange:
    return EntryChange(entry_id, "" if entry is None else written.blobs[entry_path(entry)], entry)


async def _settle(
    transaction: WorkspaceTransaction, session: SettledSession, commit_id: str
) -> tuple[int, list[Conflict]]:
    """Remove the committed changes from the session and rebase the others onto the commit.

    Returns:
        How many others there are, and why some do not fit, which are marked.
    """
    conn, workspace_id, session_id = transaction.conn, transaction.workspace_id, session.session_id
    others = await staging.settle(conn, workspace_id, session_id, commit_id, session.changes)
    if not others and not session.has_conflicts:
        return 0, []
    store = transaction.store
    snapshot = Snapshot(conn, State(workspace_id, commit_id))
    brings = session.brings
    conflicts = await carry_over(snapshot, store.entries, session_id, store.max_depth, brings=brings)
    return await staging.count_staged(conn, session_id), conflicts  # what the branch has already is no change any more
