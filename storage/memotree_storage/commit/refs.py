"""Creating and deleting branches and tags: in Git first, then in the mirror, while the workspace is held.

After a crash between the two, the mirror lacks the change; it catches up before the next change and at the next start.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import move_ref
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import (
    AbortedError,
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
)
from memotree_storage.git.refs import RefNameTakenError
from memotree_storage.model.protection import BranchProtectedError
from memotree_storage.ports import TagDraft
from memotree_storage.postgres import refs, sessions
from memotree_storage.postgres.refs import BRANCHES, TAGS, RefRow

FindCommit: TypeAlias = Callable[[], Awaitable[str]]
"""Finds the commit that a new branch or tag shall name. It is called when the name is known to be free, so that a taken
name is reported before an unknown revision."""


class BranchNotFoundError(NotFoundError):
    """The workspace has no branch of that name."""

    reason = "BRANCH_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no branch {name!r}. List them with ListBranches, or create it.", "branch", name)


class BranchExistsError(AlreadyExistsError):
    """A branch of that name exists already."""

    reason = "BRANCH_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"Branch {name!r} exists already; nothing was written. Choose another name.", "branch", name)


class TagNotFoundError(NotFoundError):
    """The workspace has no tag of that name."""

    reason = "TAG_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tag {name!r}. List them with ListTags.", "tag", name)


class TagExistsError(AlreadyExistsError):
    """A tag of that name exists already."""

    reason = "TAG_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"Tag {name!r} exists already; nothing was written. Choose another name.", "tag", name)


class ConfusingNameError(InvalidInputError):
    """A name that can be mistaken: of a workspace for an id, or of a branch or tag for another revision."""

    reason = "CONFUSING_NAME"

    @classmethod
    def taken(cls, name: str, ref: str, field: str = "name") -> InvalidInputError:
        """The error for a branch named like an existing tag, or a tag like a branch; ``ref`` is the existing one."""
        return cls.at(
            field,
            f"{name!r} is the name of {ref} already, and a revision of that name would be ambiguous. Nothing was "
            "written. Choose another name.",
        )


class RefMovedError(AbortedError):
    """Another program moved the branch or tag at the same moment."""

    reason = "REF_MOVED"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} was moved at the same moment; nothing was deleted. Look at it and send this again.")


async def create_branch(transaction: WorkspaceTransaction, name: str, find_commit: FindCommit) -> RefRow:
    """Create a branch at a commit; nothing is copied.

    Raises:
        BranchExistsError: A branch has the name.
        ConfusingNameError: A tag has the name.
        RefNameTakenError: A ref exists that would be a folder of this one, or the other way round.
    """
    if await _find(transaction, BRANCHES, name):
        raise BranchExistsError(name)
    if await _find(transaction, TAGS, name):
        raise ConfusingNameError.taken(name, TAGS + name)
    commit_id = await find_commit()
    if not await move_ref(transaction, BRANCHES + name, None, commit_id, commit_id):
        raise BranchExistsError(name)
    return RefRow(name, commit_id, commit_id)


async def delete_branch(transaction: WorkspaceTransaction, name: str, *, default_branch: str) -> int:
    """Delete a branch and detach its open sessions.

    Returns:
        How many sessions were open on it.

    Raises:
        BranchNotFoundError: There is no such branch.
        BranchProtectedError: It is the default branch, or another protected one.
        RefMovedError: Another program moved it at the same moment.
    """
    found = await _find(transaction, BRANCHES, name)
    if found is None:
        raise BranchNotFoundError(name)
    if found.name == default_branch:
        raise BranchProtectedError(f"{found.name!r} is the default branch of its workspace and cannot be deleted.")
    if not await move_ref(transaction, BRANCHES + name, found.object_id, None):
        raise RefMovedError(name)
    return await sessions.detach_sessions(transaction.conn, transaction.workspace_id, name)


async def create_tag(transaction: WorkspaceTransaction, draft: TagDraft, find_commit: FindCommit) -> RefRow:
    """Make an annotated tag of a commit.

    Raises:
        TagExistsError: A tag has the name.
        ConfusingNameError: A branch has the name.
        RefNameTakenError: A ref exists that would be a folder of this one, or the other way round.
    """
    if await _find(transaction, TAGS, draft.name):
        raise TagExistsError(draft.name)
    if await _find(transaction, BRANCHES, draft.name):
        raise ConfusingNameError.taken(draft.name, BRANCHES + draft.name)
    commit_id = await find_commit()
    tag_id = await in_store_thread(transaction.repository.write_tag, draft, commit_id)
    if not await move_ref(transaction, TAGS + draft.name, None, tag_id, commit_id):
        raise TagExistsError(draft.name)
    return RefRow(draft.name, tag_id, commit_id)


async def delete_tag(transaction: WorkspaceTransaction, name: str) -> None:
    """Delete a tag.

    Raises:
        TagNotFoundError: There is no such tag.
        RefMovedError: Another program moved it at the same moment.
    """
    found = await _find(transaction, TAGS, name)
    if found is None:
        raise TagNotFoundError(name)
    if not await move_ref(transaction, TAGS + name, found.object_id, None):
        raise RefMovedError(name)


async def check_new_tag(transaction: WorkspaceTransaction, name: str, field: str = "tag_name") -> None:
    """Refuse the name of a tag that a commit cannot make, before anything is written.

    Raises:
        TagExistsError: The tag exists.
        ConfusingNameError: A branch has the name.
        RefNameTakenError: A ref exists that would be a folder of this one, or the other way round.
    """
    found = await refs.in_the_way(transaction.conn, transaction.workspace_id, name)
    if found == TAGS + name:
        raise TagExistsError(name)
    if found == BRANCHES + name:
        raise ConfusingNameError.taken(name, found, field)
    if found:
        raise RefNameTakenError(
            f"Tag {name!r} can't be made while {found} exists, since one would be a folder of the other; nothing was "
            "committed. Choose another name."
        )


async def _find(transaction: WorkspaceTransaction, prefix: str, name: str) -> RefRow | None:
    return await refs.find_ref(transaction.conn, transaction.workspace_id, prefix, name)
