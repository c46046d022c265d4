"""Resolves conflicts of a session: the chosen values are staged as edits, and the conflicts end.

Conflicts of values come first, then those of the tree as they are by then: a node that is kept may be the parent that
another one lacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.conflicts import Absence, ArchiveValue, ChildValue, ConflictKind, NodeValue, Place
from memotree_storage.errors import FailedPreconditionError, InvalidInputError, NotFoundError
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
from memotree_storage.model.field_values import is_same_value, place_value, with_field_value
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import archive_path, node_path
from memotree_storage.postgres import sessions, staging, tree
from memotree_storage.postgres.session_conflicts import (
    SessionConflict,
    conflicts_of,
    count_conflicts,
    end_conflicts,
    entries_in_conflict,
)
from memotree_storage.postgres.staging import Edit
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.canvas import edits, moves, summaries
from memotree.canvas.conflict_choices import OTHERS, PLACES, Choice, beginnings, read_choices, sided
from memotree.canvas.valid_time import check_valid_time
from memotree.request.limits import ServiceLimits
from memotree.request.messages import session_message
from memotree.sessions.editing import SessionEditor, check_note, edit_session, moved_to, recheck_session
from memotree.v1 import node_service_pb2
from memotree.v1 import session_service_pb2 as pb

_TOOL: Final = "resolve_conflicts"
_TIMES: Final = tuple(f"attributes.{name}" for name in (VALID_FROM, VALID_TO))


class VersionGoneError(FailedPreconditionError):
    """The repository no longer has the file of a side."""

    reason = "VERSION_GONE"


class ConflictResolution:
    """Resolves conflicts of sessions."""

    def __init__(self, store: Store, limits: ServiceLimits) -> None:
        self._store = store
        self._limits = limits

    async def resolve(self, request: pb.ResolveConflictsRequest) -> pb.ResolveConflictsResponse:
        """Resolve conflicts; all of a call, or none."""
        check_note(request.commit_message)
        return await edit_session(
            self._store, self._limits, request, pb.ResolveConflictsResponse, _TOOL, partial(_resolve, request)
        )


async def _resolve(request: pb.ResolveConflictsRequest, editor: SessionEditor) -> pb.ResolveConflictsResponse:
    conn, session_id = editor.conn, editor.session.session_id
    names = beginnings(request)
    ids = None if request.others else await entries_in_conflict(conn, session_id, names)
    before = await count_conflicts(conn, session_id)
    present = await conflicts_of(conn, session_id, ids=ids)
    choices = await in_comparison_thread(read_choices, request, present)
    if editor.session.brings:  # there "ours" is the branch, but in these the session; they are decided by themselves
        choices = [choice for choice in choices if choice.at != OTHERS or not choice.kept.of_branch]
    resolving = _Resolving(editor, request.commit_message)
    await resolving.values([choice for choice in choices if choice.conflict.kind.is_of_values])
    of_tree = {
        (choice.conflict.node_id, choice.conflict.kind): choice
        for choice in choices
        if not choice.conflict.kind.is_of_values and choice.at != OTHERS
    }
    found = await resolving.of_tree()
    for kept in found:  # those that the values have not ended
        choice = of_tree.get((kept.conflict.node_id, kept.conflict.kind))
        if choice is not None:
            await resolving.tree(replace(choice, kept=kept))
    if request.others:
        if of_tree:
            found = await resolving.of_tree()
        for kept in found:
            if (kept.conflict.node_id, kept.conflict.kind) not in of_tree:
                await resolving.tree(sided(kept, request.others))
    if found:
        await resolving.of_tree()
    session = await sessions.find_session(conn, editor.session.workspace_id, session_id)
    return pb.ResolveConflictsResponse(
        session=session_message(session), resolved_count=max(before - session.conflict_count, 0)
    )


@dataclass(frozen=True, slots=True)
class _Resolving:
    editor: SessionEditor
    message: str

    async def of_tree(self) -> list[SessionConflict]:
        """The conflicts of the tree as they are now."""
        await recheck_session(self.editor.conn, self.editor.store, self.editor.session)
        return await conflicts_of(self.editor.conn, self.editor.session.session_id, of_values=False)

    async def values(self, choices: Sequence[Choice]) -> None:
        """Resolve conflicts of values: whole entries first, since others may go below them."""
        for choice in choices:
            if not choice.conflict.field and choice.side != "ours":
                await self._whole(choice)
        decided = {choice.conflict.node_id for choice in choices if not choice.conflict.field}
        gone = decided - (await tree.versions(self.editor.snapshot, decided)).keys()  # nothing of it is left to choose
        left = [choice for choice in choices if choice.conflict.node_id not in gone]
        await self._fields([choice for choice in left if _is_of_text(choice)])
        for choice in left:
            if choice.conflict.field in PLACES and choice.side != "ours":
                await self._place(choice)
        ended = [(choice.conflict.node_id, choice.kept.number) for choice in choices]
        await end_conflicts(self.editor.conn, self.editor.session.session_id, ended)

    async def _fields(self, choices: Sequence[Choice]) -> None:
        """Set fields to the chosen values; with ours they stay, and are checked together with the others."""
        by_id: dict[str, list[Choice]] = {}
        for choice in choices:
            by_id.setdefault(choice.conflict.node_id, []).append(choice)
        versions = await tree.versions(self.editor.snapshot, by_id)
        for entry_id, some in by_id.items():
            if entry_id not in versions:
                raise InvalidInputError.at(some[0].at, f"{entry_id} is deleted in the session; restore it first.")
        entries = await self.editor.load_all(list(versions.values()))
        changes = []
        for entry_id, entry in entries.items():
            changed = await _with_choices(entry, by_id[entry_id])
            if changed != entry:
                changes.append((changed, versions[entry_id]))
        paths = {entry_id: found[0].at for entry_id, found in by_id.items()}
        await self.editor.put_all(changes, self.message, paths)

    async def _whole(self, choice: Choice) -> None:
        """Take the whole entry of their side or of the base, or delete it as that side did."""
        kept = choice.kept
        blob = kept.base_blob if choice.side == "base" else kept.their_blob
        if blob:
            await self._restore(await self._read(kept, blob))
            return
        found = await tree.versions(self.editor.snapshot, [kept.conflict.node_id])
        await self.editor.remove(list(found.values()), self.message)

    async def _read(self, kept: SessionConflict, blob: str) -> Entry:
        entry_id, store, workspace_id = kept.conflict.node_id, self.editor.store, self.editor.session.workspace_id
        sides = kept.conflict.base, kept.conflict.ours, kept.conflict.theirs
        is_archive = any(isinstance(side, ArchiveValue) for side in sides)
        repository = store.repositories.get(workspace_id)
        if not await in_comparison_thread(repository.exists, blob):
            raise VersionGoneError(
                f"The repository no longer has that version of {entry_id}: its branch was rewound or deleted. Choose "
                "another side."
            )
        path = archive_path(entry_id) if is_archive else node_path(entry_id)
        return (await store.entries.read(workspace_id, {blob: path}))[blob]

    async def _restore(self, entry: Entry) -> None:
        """Stage an entry as it is."""
        found = (await tree.versions(self.editor.snapshot, [entry.id], dead=True)).get(entry.id)
        # What a commit has deleted comes back as a new entry; what the session has deleted is that staged change.
        before = None if found is not None and found.dead and found.commit_id is not None else found
        edit = Edit(entry, before, self.message, self.editor.tool)
        await staging.stage(self.editor.conn, self.editor.session, [edit])

    async def tree(self, choice: Choice) -> None:
        """Mend the tree as it was chosen; what that does not mend is found again.

        Nothing is deleted by ``others``: such a conflict stays, to be decided by itself.
        """
        kind = choice.conflict.kind
        if kind is ConflictKind.NAME_TAKEN:
            await self._rename(choice)
        elif kind is ConflictKind.HAS_CHILDREN:
            await self._children(choice)
        elif _place_of(choice) is not None:
            await self._place(choice)
        elif choice.at != OTHERS and await tree.versions(self.editor.snapshot, [choice.conflict.node_id]):
            await self._delete(choice.conflict.node_id)

    async def _place(self, choice: Choice) -> None:
        """Move a node to the chosen place. One of the caller's own is checked; that of a side is found out later."""
        node_id, place = choice.conflict.node_id, _place_of(choice)
        version = (await tree.versions(self.editor.snapshot, [node_id])).get(node_id)
        if version is None:
            raise InvalidInputError.at(choice.at, f"{node_id} is deleted in the session; restore it first.")
        if place is None:
            raise InvalidInputError.at(choice.at, f"{choice.conflict.field} is a place; give one.")
        if is_same_value(place_value(version.to_node()), place):
            return
        if not choice.side:
            await self._move(choice, place)
            return
        node = await self.editor.load_node(version)
        position = place.position or await self.editor.position(place.parent_id or place.archive_id, None, node_id)
        moved = moved_to(node, place.parent_id or None, place.archive_id, position)
        await self.editor.put(moved, version, self.message)
        if place.archive_id != version.archive_id:
            await moves.take_along(self.editor, node_id, place.archive_id, self.message)

    async def _move(self, choice: Choice, place: Place) -> None:
        request = node_service_pb2.MoveNodeRequest(
            node_id=choice.conflict.node_id,
            parent_id=place.parent_id,
            archive_id=place.archive_id,
            commit_message=self.message,
        )
        try:
            await moves.move(self.editor, request, "")
        except (InvalidInputError, NotFoundError) as error:
            raise InvalidInputError.at(choice.at, error.message) from None

    async def _delete(self, node_id: str) -> None:
        request = node_service_pb2.DeleteNodeRequest(node_id=node_id, recursive=True, commit_message=self.message)
        await edits.delete(self.editor, request, "")

    async def _rename(self, choice: Choice) -> None:
        conflict = choice.conflict
        name = choice.value if isinstance(choice.value, str) else conflict.base
        if not isinstance(name, str):
            if choice.at == OTHERS:
                return
            raise InvalidInputError.at(choice.at, "The archive is new, and its name is taken; give another name.")
        versions = await tree.versions(self.editor.snapshot, [conflict.node_id])
        entries = await self.editor.load_all(list(versions.values()))
        changes = [
            (replace(entry, name=name), versions[entry_id])
            for entry_id, entry in entries.items()
            if isinstance(entry, Archive) and entry.name != name
        ]
        await self.editor.put_all(changes, self.message, {conflict.node_id: choice.at})

    async def _children(self, choice: Choice) -> None:
        """Delete or move what stands below a node that one side deleted or moved, or take that back."""
        conflict = choice.conflict
        child = next(side for side in (conflict.ours, conflict.theirs) if isinstance(side, ChildValue)).child_id
        if isinstance(choice.value, Absence):
            if choice.at != OTHERS and await tree.versions(self.editor.snapshot, [child]):
                await self._delete(child)
        elif isinstance(choice.value, NodeValue) and choice.side != "base":
            moved = (await tree.versions(self.editor.snapshot, [conflict.node_id])).get(conflict.node_id)
            if moved is not None:
                await moves.take_along(self.editor, conflict.node_id, moved.archive_id, self.message)
        else:
            await self._as_at_base(conflict.node_id)

    async def _as_at_base(self, entry_id: str) -> None:
        """Take back that the session deleted an entry, or moved it to another archive."""
        base = Snapshot(self.editor.conn, self.editor.session.base)
        before = (await tree.versions(base, [entry_id])).get(entry_id)
        present = (await tree.versions(self.editor.snapshot, [entry_id])).get(entry_id)
        if before is None:
            return
        entry = (await self.editor.store.entries.load(self.editor.session.workspace_id, [before]))[before.blob]
        if present is None:
            await self._restore(entry)
        elif isinstance(entry, Node):
            node = await self.editor.load_node(present)
            places = {"archive_id": entry.archive_id, "parent_id": entry.parent_id, "position": entry.position}
            await self.editor.put(replace(node, **places), present, self.message)  # type: ignore[arg-type]


def _is_of_text(choice: Choice) -> bool:
    return bool(choice.conflict.field) and choice.conflict.field not in PLACES


def _place_of(choice: Choice) -> Place | None:
    """The chosen place; that at the base if the side has none."""
    if isinstance(choice.value, Place):
        return choice.value
    return choice.conflict.base if choice.side and isinstance(choice.conflict.base, Place) else None


async def _with_choices(entry: Entry, choices: Sequence[Choice]) -> Entry:
    """The entry with the chosen values of its fields.

    Raises:
        InvalidInputError: A field cannot have such a value.
    """
    changed = entry
    for choice in choices:
        if choice.side == "ours" and choice.conflict.field != "content":
            continue
        after = None if choice.value is None else with_field_value(changed, choice.conflict.field, choice.value)
        if after is None:
            raise InvalidInputError.at(choice.at, f"is no value that {choice.conflict.field} can have.")
        changed = after
    if not isinstance(entry, Node) or not isinstance(changed, Node):
        return changed
    timed = next((choice for choice in choices if choice.conflict.field in _TIMES), None)
    if timed is not None:
        try:
            check_valid_time(changed.attributes)
        except InvalidInputError as error:
            raise InvalidInputError.at(timed.at, error.message) from None
    given = {choice.conflict.field for choice in choices if choice.side != "ours"} & {"brief", "summary"}
    if (changed.title, changed.content) != (entry.title, entry.content):
        return await summaries.follow(entry, changed, given)
    return summaries.with_own_texts(changed, given)
