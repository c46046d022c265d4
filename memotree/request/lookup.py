"""Resolves the names in a request: workspaces, revisions, and ids given by a prefix."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree_storage.errors import AbortedError, InvalidInputError, NotFoundError
from memotree_storage.model.node import ID_LENGTH, MIN_PREFIX, is_id, is_id_prefix
from memotree_storage.postgres import archive_versions, registry, sessions, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Resolved, Workspace
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.request.pages import InvalidPageTokenError

_MOST_CANDIDATES = 20

_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")

MOST_NAME_CHARS: Final = 100_000
"""The most characters of a text that names something: the path of a node has a title of 500 for each level."""

PINNED: Final[Mapping[str, type]] = {"commit": str, "session": str}
"""The part of a cursor's shape that `pinned` fills."""


class NodeNotFoundError(NotFoundError):
    """No such node is alive at the revision."""

    reason = "NODE_NOT_FOUND"

    def __init__(self, text: str, sentence: str = "") -> None:
        usual = f"There is no node {text!r} at this revision. Search for it, or read the tree with GetTree."
        super().__init__(sentence or usual, "node", text)


class ArchiveNotFoundError(NotFoundError):
    """No such archive is alive at the revision."""

    reason = "ARCHIVE_NOT_FOUND"

    def __init__(self, text: str) -> None:
        super().__init__(
            f"There is no archive {text!r} at this revision. List them with ListArchives.", "archive", text
        )


class InvalidIdError(InvalidInputError):
    """A text that cannot be an id or a prefix of one."""

    reason = "INVALID_ID"

    @classmethod
    def of(cls, field: str, text: str) -> InvalidInputError:
        """The error for a text that is no id; its message describes ids."""
        return cls.at(
            field,
            f"{text[:40]!r} is no id: give {MIN_PREFIX} to {ID_LENGTH} characters of 0-9 and a-z without i, l, o, u, "
            "as a search or recall shows them. ResolveNode finds a node by its title.",
        )


class AmbiguousIdError(InvalidInputError):
    """A prefix that several nodes share (in a history also deleted ones); ``nodes`` lists them."""

    reason = "AMBIGUOUS_ID"
    nodes: Sequence[Version] = ()

    @classmethod
    def among(cls, field: str, text: str, nodes: Sequence[Version]) -> "AmbiguousIdError":
        """The error that lists the candidates."""
        listed = ", ".join(
            f"{node.entry_id} ({node.title}{', deleted' if node.dead else ''})" for node in nodes[:_MOST_CANDIDATES]
        )
        error = cls.at(field, f"{text!r} is ambiguous; give more characters. It could be {listed}.")
        assert isinstance(error, cls)  # noqa: S101 - for the type checker
        error.nodes = tuple(nodes[:_MOST_CANDIDATES])
        return error


class PageOutdatedError(AbortedError):
    """A session was committed or rebased between two pages of a list."""

    reason = "PAGE_OUTDATED"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id} was committed or rebased since the first page; begin at the first page again, "
            "without a token."
        )


@dataclass(frozen=True, slots=True)
class WorkspaceRevision:
    """A workspace and one state of its tree."""

    workspace: Workspace
    resolved: Resolved

    @property
    def state(self) -> State:
        """The state of the tree."""
        return self.resolved.state

    @property
    def scope(self) -> str:
        """The owner of views: a session's id, or the name of the branch, tag or commit."""
        return self.resolved.name


def needed(field: str, text: str) -> str:
    """Return a text that names something; refuse an empty one, and one that is too long to be an id, name or path.

    Raises:
        InvalidInputError: The text is empty, or too long.
    """
    if not text:
        raise InvalidInputError.at(field, "is needed.")
    if len(text) > MOST_NAME_CHARS:
        raise InvalidInputError.at(
            field,
            f"has {len(text)} characters, and no id, name or path has over {MOST_NAME_CHARS}; give a shorter one.",
        )
    return text


async def find_revision(conn: Connection, workspace: str, revision: str, field: str = "revision") -> WorkspaceRevision:
    """The workspace of that name or id, and the state that the revision names there."""
    named = needed(field, revision) if revision else ""
    return WorkspaceRevision(*await registry.resolve(conn, needed("workspace", workspace), named, field))


async def use_revision(conn: Connection, workspace: str, revision: str, field: str = "revision") -> WorkspaceRevision:
    """Like `find_revision`, for a call that reads the state: a named session counts as used, so it does not expire."""
    found = await find_revision(conn, workspace, revision, field)
    if found.resolved.is_use_due:
        await sessions.mark_used(conn, found.resolved.name)
    return found


def known_revision(store: Store, workspace: str, revision: str) -> WorkspaceRevision | None:
    """The workspace and the state that a call names, if that needs no statement; else `read_revision` finds it."""
    known = store.known_revisions.get(workspace, revision)
    return None if known is None else WorkspaceRevision(*known)


async def read_revision(store: Store, conn: Connection, workspace: str, revision: str) -> WorkspaceRevision:
    """Like `use_revision`; what the call names is known to the next one, as long as the workspace does not change."""
    known = known_revision(store, workspace, revision)
    if known is not None:
        return known
    since = store.known_revisions.moment
    found = await use_revision(conn, workspace, revision)
    store.known_revisions.put(workspace, revision, (found.workspace, found.resolved), since)
    return found


async def page_revision(
    conn: Connection, workspace: str, revision: str, cursor: Mapping[str, Any] | None
) -> WorkspaceRevision:
    """Like `use_revision`, for a page of a list: all pages read the commit of the first, whatever branches do.

    Otherwise a node that a commit moves between two pages could be on none of them. A session is read as it is, since
    its own agent changes it, but only over the base that it had.

    Args:
        conn: A connection.
        workspace: The workspace, by name or id.
        revision: What the request names.
        cursor: The cursor of the page, with the values of `pinned`; ``None`` for the first page.

    The caller may see the session of a cursor only if the request names it: the check of who calls has looked at the
    request alone.

    Raises:
        InvalidPageTokenError: The cursor holds another session than the request, or no commit.
        PageOutdatedError: The session was committed or rebased since the first page.
    """
    if cursor is None:
        return await use_revision(conn, workspace, revision)
    session_id, commit_id = str(cursor["session"]), str(cursor["commit"])
    if session_id not in {"", revision} or not _COMMIT_ID.fullmatch(commit_id):
        raise InvalidPageTokenError
    found = await use_revision(conn, workspace, session_id or commit_id)
    check_page(found.state, commit_id)
    return found


def pinned(place: WorkspaceRevision) -> dict[str, str]:
    """The part of a cursor that keeps the next pages at the same commit; its shape is `PINNED`."""
    return {"commit": place.state.commit_id, "session": place.state.session_id or ""}


def check_page(state: State, commit_id: str) -> None:
    """Check that a state, which a page reads, is still that commit, or a session over it.

    Raises:
        PageOutdatedError: It is not.
    """
    if state.commit_id != commit_id:
        raise PageOutdatedError(state.session_id or "")


async def full_id(snapshot: Snapshot, text: str, field: str = "node_id", *, archives: bool = False) -> str:
    """The whole id of the node that a text means; a full id is returned as it is, whether it is alive or not.

    Args:
        snapshot: The state.
        text: An id, or the beginning of one.
        field: The field of the request.
        archives: Whether it may also mean an archive. Otherwise an archive with that prefix does not matter.

    Raises:
        InvalidIdError: The text cannot be an id.
        AmbiguousIdError: The ids of several alive nodes begin with it.
        NodeNotFoundError: No id of an alive node begins with it.
    """
    if is_id(needed(field, text)):
        return text
    if not is_id_prefix(text):
        raise InvalidIdError.of(field, text)
    begun = await tree.versions(snapshot, await tree.with_prefix(snapshot, text))
    found = [version for version in begun.values() if archives or not version.is_archive]
    if not found:
        raise NodeNotFoundError(text)
    if len(found) > 1:
        raise AmbiguousIdError.among(field, text, sorted(found, key=lambda version: version.entry_id))
    return found[0].entry_id


async def node(snapshot: Snapshot, text: str, field: str = "node_id") -> Version:
    """The alive node that an id or a prefix names.

    Raises:
        NodeNotFoundError: The node is not alive at this revision.
    """
    return (await _alive(snapshot, [await full_id(snapshot, text, field)]))[0]


async def nodes(snapshot: Snapshot, texts: Iterable[str], field: str = "node_ids") -> list[Version]:
    """The alive nodes that ids or prefixes name, in their order."""
    ids = [await full_id(snapshot, text, f"{field}[{number}]") for number, text in enumerate(texts)]
    return await _alive(snapshot, ids)


async def _alive(snapshot: Snapshot, ids: Sequence[str]) -> list[Version]:
    found = await tree.versions(snapshot, ids)
    for entry_id in ids:
        if entry_id not in found or found[entry_id].is_archive:
            raise NodeNotFoundError(entry_id)
    return [found[entry_id] for entry_id in ids]


async def archive(snapshot: Snapshot, text: str, field: str = "archive") -> ArchiveVersion:
    """The alive archive with that id, name or unique prefix of an id, tried in this order.

    Raises:
        ArchiveNotFoundError: There is none.
        AmbiguousIdError: Several ids begin with the text.
    """
    if is_id(needed(field, text)):
        found = (await tree.versions(snapshot, [text])).get(text)
        if found is not None and found.is_archive:
            return ArchiveVersion.of(found)
    named = await archive_versions.archives_named(snapshot, [text])
    if not named and is_id_prefix(text):
        begun = await tree.versions(snapshot, await tree.with_prefix(snapshot, text))
        named = [ArchiveVersion.of(begun[entry_id]) for entry_id in sorted(begun) if begun[entry_id].is_archive]
    return archive_among(named, text, field)


def archive_among(found: Sequence[ArchiveVersion], text: str, field: str = "archive") -> ArchiveVersion:
    """The same, given the archives."""
    named = [one for one in found if one.entry_id == needed(field, text)]
    named = named or [one for one in found if one.name == text]
    if not named and is_id_prefix(text):
        named = [one for one in found if one.entry_id.startswith(text)]
    if not named:
        raise ArchiveNotFoundError(text)
    if len(named) > 1:
        raise AmbiguousIdError.among(field, text, [one.version for one in named])
    return named[0]


async def archives(snapshot: Snapshot, texts: Iterable[str], field: str = "archives") -> list[str]:
    """The ids of the archives that names, ids or prefixes name."""
    return [(await archive(snapshot, text, f"{field}[{number}]")).entry_id for number, text in enumerate(texts)]
