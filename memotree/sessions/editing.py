"""Editing a session: one transaction that holds it, reads its tree, checks the edits and stages them.

Edits are staged one by one, so that a later edit of a call sees the earlier ones. If the call fails, all are undone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message
from memotree_storage import faults
from memotree_storage.commit.transaction import session_transaction
from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread_if
from memotree_storage.errors import AbortedError, FieldViolation, TooLargeError
from memotree_storage.mirror.staged_merge import recheck_tree
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.position import between
from memotree_storage.model.validation import canonical_node, check_archive, check_node, check_text
from memotree_storage.postgres import registry, sessions, staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version, staged_version
from memotree_storage.postgres.session_conflicts import has_tree_conflicts
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Edit, Staged
from memotree_storage.postgres.tree import PlacedVersion, Snapshot, State
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.idempotency import run_once
from memotree.request.limits import ServiceLimits

_NOTE_CHARS = 2000
_FEW: Final = 50
"""More entries are checked in a thread, so that other calls can run."""

Response = TypeVar("Response", bound=Message)

TranslateFault = Callable[[FieldViolation, Node], FieldViolation]
"""Translates a fault of a node (given with the node as checked) into a fault of the request that contains it."""


class StaleEtagError(AbortedError):
    """The entry has changed since the caller read it."""

    reason = "STALE_ETAG"


class ContentTooLargeError(TooLargeError):
    """The content of a node exceeds the limit."""

    reason = "CONTENT_TOO_LARGE"


class ChangeRequest(Protocol):
    """The fields of every request that stages a change."""

    @property
    def workspace(self) -> str: ...  # noqa: D102 - a field of the wire contract

    @property
    def session_id(self) -> str: ...  # noqa: D102

    @property
    def request_id(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class SessionEditor:
    """An open session that a transaction holds, and the tool that edits it.

    ``derived`` has, for each staged entry that was loaded, the blob it was derived from.
    """

    conn: Connection
    store: Store
    session: Session
    limits: ServiceLimits
    tool: str
    derived: dict[str, str | None] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The session's tree: its base with the staged changes over it."""
        return self.session.tree

    @property
    def snapshot(self) -> Snapshot:
        """The session's tree, read in this transaction."""
        return Snapshot(self.conn, self.state)

    async def load(self, version: Version) -> Entry:
        """The entry of a version of this session, with its content."""
        if version.commit_id is None:
            rows = await staging.staged(self.conn, self.session.session_id, ids=[version.entry_id])
            entry = await _entry_of(rows[0]) if rows else None
            if entry is not None:
                self.derived[version.entry_id] = rows[0].derived_blob
                return entry
        return (await self.store.entries.load(self.session.workspace_id, [version]))[version.blob]

    async def load_all(self, versions: Sequence[Version]) -> dict[str, Entry]:
        """The entries of versions of this session, with their contents, by id."""
        committed = [version for version in versions if version.commit_id is not None]
        read = await self.store.entries.load(self.session.workspace_id, committed)
        found = {version.entry_id: read[version.blob] for version in committed}
        others = [version.entry_id for version in versions if version.commit_id is None]
        if others:
            for row in await staging.staged(self.conn, self.session.session_id, ids=others):
                entry = await _entry_of(row)
                if entry is not None:
                    found[row.entry_id] = entry
                    self.derived[row.entry_id] = row.derived_blob
        return found

    async def load_node(self, version: Version) -> Node:
        """The node of a version, with its content."""
        entry = await self.load(version)
        if not isinstance(entry, Node):
            raise lookup.NodeNotFoundError(version.entry_id)
        return entry

    async def node(self, text: str, etag: str = "", field: str = "node_id") -> Version:
        """The alive node that an id or prefix names.

        Raises:
            NodeNotFoundError: It is not alive in the session.
            StaleEtagError: It has changed since the caller read it.
        """
        version = await lookup.node(self.snapshot, text, field)
        check_etag(version, etag)
        return version

    async def placed(self, text: str, etag: str = "", field: str = "node_id") -> PlacedVersion:
        """The same with its place in the tree; one round trip for a full id.

        Raises:
            NodeNotFoundError: It is not alive in the session.
            StaleEtagError: It has changed since the caller read it.
        """
        entry_id = await lookup.full_id(self.snapshot, text, field)
        found = await tree.one(self.snapshot, entry_id)
        if found is None or found.version.is_archive:
            raise lookup.NodeNotFoundError(entry_id)
        check_etag(found.version, etag)
        return found

    async def put(
        self, entry: Node, before: Version | None, message: str, translate: TranslateFault | None = None
    ) -> Version:
        """Stage a new or changed node in canonical form; return its version in the session.

        Args:
            entry: The node.
            before: Its version until now; ``None`` for a new node.
            message: The reason for the change.
            translate: Translates faults into faults of the request; without it they name the fields of a node.

        Raises:
            InvalidNodeError: A field breaks a rule.
            ContentTooLargeError: The content exceeds the limit.
        """
        is_long = len(entry.content) > LONG_BYTES
        node = await in_store_thread_if(is_long, _checked, entry, self.limits, translate)
        if await self._stage(node, before, message):
            return (await tree.versions(self.snapshot, [node.id]))[node.id]
        return await in_store_thread_if(is_long, _staged_version, node)

    async def put_archive(self, archive: Archive, before: Version | None, message: str) -> None:
        """Stage a new or changed archive.

        Raises:
            InvalidArchiveError: A field breaks a rule.
        """
        check_archive(archive, self.limits.node, _archive_fault)
        await self._stage(archive, before, message)

    async def put_all(self, changes: Sequence[tuple[Entry, Version]], message: str, paths: Mapping[str, str]) -> None:
        """Stage changed entries in canonical form, each with its version until now.

        Args:
            changes: The entries.
            message: The reason for the change.
            paths: The path of the argument that changes each entry, by its id, for faults.

        Raises:
            InvalidNodeError, InvalidArchiveError: A field breaks a rule.
            ContentTooLargeError: A content exceeds the limit.
        """
        check_note(message)
        is_much = len(changes) > _FEW or sum(map(_chars, changes)) > LONG_BYTES
        edits = await in_store_thread_if(is_much, self._edits, changes, message, paths)
        for entry_id in await staging.stage(self.conn, self.session, edits, self.derived):
            self.derived.pop(entry_id, None)

    def _edits(self, changes: Sequence[tuple[Entry, Version]], message: str, paths: Mapping[str, str]) -> list[Edit]:
        edits = []
        for entry, before in changes:

            def translate(fault: FieldViolation, _: object = None, *, entry_id: str = entry.id) -> FieldViolation:
                sentence = f"leads to {entry_id}, whose {fault.field} {fault.description}"
                return FieldViolation(paths[entry_id], sentence)

            if isinstance(entry, Node):
                edits.append(Edit(_checked(entry, self.limits, translate), before, message, self.tool))
            else:
                check_archive(entry, self.limits.node, translate)
                edits.append(Edit(entry, before, message, self.tool))
        return edits

    async def remove(self, versions: Sequence[Version], message: str) -> None:
        """Stage the removal of entries."""
        check_note(message)
        edits = [Edit(None, version, message, self.tool) for version in versions]
        await staging.stage(self.conn, self.session, edits)

    async def position(self, home_id: str, index: int | None, moving: str = "") -> str:
        """A position among the children of a node or the roots of an archive.

        Args:
            home_id: The node, or the archive.
            index: The number of siblings before it; last if ``None``.
            moving: A node that moves, which does not count as a sibling.
        """
        if index is None:
            return between(await tree.last_position(self.snapshot, home_id), None)
        siblings = [
            child.position
            for child in await tree.children(self.snapshot, home_id, limit=index + 2)
            if child.entry_id != moving
        ]
        before = siblings[index - 1] if 0 < index <= len(siblings) else (siblings[-1] if index and siblings else None)
        after = siblings[index] if index < len(siblings) else None
        if before is not None and after is not None and before >= after:
            after = next((place for place in siblings[index:] if place > before), None)
        return between(before, after)

    async def _stage(self, entry: Entry, before: Version | None, message: str) -> set[str]:
        check_note(message)
        edit = Edit(entry, before, message, self.tool)
        dropped = await staging.stage(self.conn, self.session, [edit], self.derived)
        for entry_id in dropped:  # what is staged next is derived from the base again
            self.derived.pop(entry_id, None)
        return dropped


def _chars(change: tuple[Entry, Version]) -> int:
    entry, _ = change
    return len(entry.content) if isinstance(entry, Node) else 0


def _checked(entry: Node, limits: ServiceLimits, translate: TranslateFault | None) -> Node:
    """The node in canonical form.

    Raises:
        InvalidNodeError: A field breaks a rule.
        ContentTooLargeError: The content exceeds the limit.
    """
    limit = limits.node.content_bytes
    if len(entry.content) > limit or len(entry.content.encode("utf-8", "surrogatepass")) > limit:
        raise ContentTooLargeError(
            f"The content of a node may have {limit} bytes; this one has more. Split it into several nodes."
        )
    node = canonical_node(entry)
    check_node(node, limits.node, limits.types, translate and (lambda fault: translate(fault, node)))
    return node


def _staged_version(node: Node) -> Version:
    return staged_version(node, staging.blob_id(encode_entry(node)))


async def _entry_of(row: Staged) -> Entry | None:
    """The staged entry of a row; a long one is decoded in a thread."""
    return await in_store_thread_if(len(row.data) > LONG_BYTES, lambda: row.entry)


def check_etag(version: Version, etag: str) -> None:
    """Refuse to change an entry that has changed since the caller read it.

    Raises:
        StaleEtagError: Its etag differs.
    """
    if etag and etag != version.blob:
        raise StaleEtagError(
            f"{version.entry_id} has changed since it was read (its etag is {version.blob} now). Read it again, look "
            "whether the change still fits, and send it with the new etag."
        )


def _archive_fault(fault: FieldViolation) -> FieldViolation:
    """Translate a fault of an archive into one of the request, whose field for the id is ``archive_id``."""
    return replace(fault, field="archive_id") if fault.field == "id" else fault


def check_note(message: str) -> None:
    """Refuse a ``commit_message`` that is too long or has characters that a commit message cannot have.

    Raises:
        InvalidTextError: The message is refused.
    """
    check_text("commit_message", message, multiline=True, max_chars=_NOTE_CHARS)


async def edit_session(
    store: Store,
    limits: ServiceLimits,
    request: ChangeRequest,
    response_type: type[Response],
    tool: str,
    make: Callable[[SessionEditor], Awaitable[Response]],
) -> Response:
    """Run one call that stages changes: all or nothing, and once per request id."""
    assert isinstance(request, Message)  # noqa: S101 - every request is a message too
    named = SessionName(request.workspace, request.session_id)
    return await edit_named_session(store, limits, named, request, response_type, tool, make)


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session as a call names it: the name or id of its workspace, and its id."""

    workspace: str
    session_id: str


async def edit_named_session(
    store: Store,
    limits: ServiceLimits,
    named: SessionName,
    request: Message,
    response_type: type[Response],
    tool: str,
    make: Callable[[SessionEditor], Awaitable[Response]],
) -> Response:
    """The same for a call whose request does not have the session itself."""
    workspace = lookup.needed("workspace", named.workspace)
    session_id = lookup.needed("session_id", named.session_id)
    async with session_transaction(store, session_id) as conn:

        async def run() -> Response:
            session = await sessions.hold_session(conn, workspace, session_id)
            response = await make(SessionEditor(conn, store, session, limits, tool))
            # The edit may have ended conflicts of the tree. It makes none, since it is checked itself.
            if session.has_conflicts and await has_tree_conflicts(conn, session_id):
                await recheck_session(conn, store, session)
            return response

        if getattr(request, "request_id", ""):
            found = await registry.find_workspace(conn, workspace)
            response = await run_once(conn, found.workspace_id, request, response_type, run)
        else:
            response = await run()
        faults.point("stage.written")
    faults.point("stage.recorded")
    return response


async def recheck_session(conn: Connection, store: Store, session: Session) -> None:
    """Look again for conflicts of a session with the tree, in the transaction that holds it."""
    base, is_merge = Snapshot(conn, session.base), session.brings
    await recheck_tree(base, session.session_id, store.max_depth, is_merge=is_merge)


def moved_to(node: Node, parent_id: str | None, archive_id: str, position: str) -> Node:
    """The node with another parent, archive and position."""
    return replace(node, parent_id=parent_id, archive_id=archive_id, position=position)
