"""The changes behind Remember, Revise and Forget, staged in a session that is committed at once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
from memotree_storage.model.node import Archive, Node, is_id, new_id
from memotree_storage.model.normal_form import normalized
from memotree_storage.model.validation import check_text
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres import archive_versions
from memotree_storage.postgres.rows import Version

from memotree.canvas import edits
from memotree.canvas.node_messages import node_at
from memotree.memory.naming import id_named
from memotree.memory.similar import Similar
from memotree.memory.wording import title_of
from memotree.request import lookup
from memotree.request.messages import SUMMARY, relation_message
from memotree.sessions.editing import SessionEditor
from memotree.v1 import memory_service_pb2 as pb
from memotree.v1 import node_service_pb2, types_pb2

DEFAULT_ARCHIVE: Final = "notes"
"""The archive of a text that is remembered without one."""

REVISE: Final = "Revise"
"""The verb of a revision."""

_ABOUT: Final = "ABOUT"
_CHANGING: Final = frozenset(("text", "title", "tags", "attributes", "valid_from", "valid_to"))
"""The fields of a revision that change the note."""

_FIELDS: Final = {"content": "text", "archive_id": "archive", "id": "archive", "node_id": "request_id"}
"""How these requests name the fields of the node tools."""


@dataclass(frozen=True, slots=True)
class Change:
    """One staged change.

    Attributes:
        verb: What was done, for the subject of the commit.
        title: The title of the note.
        node_ids: The changed nodes, the note first.
        is_gone: Whether they are forgotten.
        similar: Notes that the text resembles.
        warnings: For the caller.
        shown: A forgotten note as it was, if the commit before does not have it so.
    """

    verb: str
    title: str
    node_ids: Sequence[str]
    is_gone: bool = False
    similar: Sequence[Similar] = ()
    warnings: tuple[str, ...] = field(default=())
    shown: types_pb2.Node | None = None


async def remember(
    editor: SessionEditor, request: pb.RememberRequest, node_id: str, similar: Sequence[Similar]
) -> Change:
    """Stage a new note, and its archive if that does not exist.

    Raises:
        InvalidInputError: The text is empty, or a field breaks a rule.
        NodeNotFoundError: A node that the text is about or supersedes is not alive.
        NoNodeNamedError: No node has the title that names such a node.
        AmbiguousNodeNameError: Several have it.
    """
    title = await _checked_title(request.text, request.title)
    edits.check_number_of_relations(editor, "about", len(request.about))
    edits.check_number_of_relations(editor, "supersedes", len(request.supersedes))
    relations = [
        relation_message(kind, (await _node(editor, given, f"{name}[{number}]")).entry_id, "")
        for kind, name, ids in ((_ABOUT, "about", request.about), (SUPERSEDES, "supersedes", request.supersedes))
        for number, given in enumerate(ids)
    ]
    creation = node_service_pb2.CreateNodeRequest(
        archive_id=await archive_for(editor, request.archive or DEFAULT_ARCHIVE),
        node_id=node_id,
        title=title,
        content=request.text,
        tags=request.tags,
        attributes=with_valid_time(request.attributes, request.valid_from, request.valid_to),
        relations=relations,
    )
    try:
        made = await edits.create(editor, creation, "")
    except InvalidInputError as error:
        raise renamed(error) from None
    return Change("Remember", title, [made.node_id], similar=similar, warnings=made.warnings)


async def revise(editor: SessionEditor, request: pb.ReviseRequest, node_id: str, similar: Sequence[Similar]) -> Change:
    """Stage the correction of a note.

    Raises:
        InvalidInputError: Nothing to change was given, or a field breaks a rule.
        NodeNotFoundError: The note is not alive.
        NoNodeNamedError: No node has the given title or path.
        AmbiguousNodeNameError: Several have it.
        StaleEtagError: It has changed since the caller read it.
        DerivedContentError: Its content is made from its leaves.
    """
    if not _asks_for_a_change(request):
        raise InvalidInputError.at("text", "is needed, or another field to change.")
    version = await _node(editor, node_id, etag=request.etag)
    node = await editor.load_node(version)
    update = node_service_pb2.UpdateNodeRequest(node_id=version.entry_id, tags=request.tags)
    if request.HasField("text"):
        title = await _checked_title(request.text, request.title)
        update.content = request.text
        if not request.HasField("title"):
            former = await in_thread_if_long(len(node.content), title_of, node.content)
            if node.title == former:
                update.title = title
    if request.HasField("title"):
        update.title = request.title
    update.attributes.update(with_valid_time(request.attributes, request.valid_from, request.valid_to))
    times = {
        VALID_FROM: request.valid_from if request.HasField("valid_from") else None,
        VALID_TO: request.valid_to if request.HasField("valid_to") else None,
    }
    taken_back = [name for name, value in times.items() if value == ""]
    if taken_back:
        _without(update, node, taken_back)
    try:
        made = await edits.update(editor, update, "")
    except InvalidInputError as error:
        raise renamed(error) from None
    return Change(REVISE, made.placed.version.title, [version.entry_id], similar=similar, warnings=made.warnings)


async def forget(editor: SessionEditor, request: pb.ForgetRequest, node_id: str) -> Change:
    """Stage the deletion of a note.

    Raises:
        NodeNotFoundError: It is not alive.
        NoNodeNamedError: No node has the given title or path.
        AmbiguousNodeNameError: Several have it.
        HasChildrenError: It has nodes below it and ``recursive`` was not given.
        StaleEtagError: It has changed since the caller read it.
    """
    version = await _node(editor, node_id, etag=request.etag)
    deletion = node_service_pb2.DeleteNodeRequest(
        node_id=version.entry_id, recursive=request.recursive, etag=request.etag
    )
    # A note that this call has changed before is shown as it is now; other ones are read at the commit before.
    shown = await node_at(editor.snapshot, editor.store, version.entry_id, SUMMARY) if not version.commit_id else None
    ids, warnings = await edits.delete(editor, deletion, "")
    return Change("Forget", version.title, ids, is_gone=True, warnings=warnings, shown=shown)


def together(changes: Sequence[Change]) -> Change:
    """One change that was made to a note and to others that said the same."""
    first, *others = changes
    if not others:
        return first
    copies = ", ".join(change.node_ids[0] for change in others)
    done = "forgotten" if first.is_gone else "revised"
    number = "Another note" if len(others) == 1 else f"{len(others)} other notes"
    return replace(
        first,
        node_ids=[node_id for change in changes for node_id in change.node_ids],
        warnings=(
            *(warning for change in changes for warning in change.warnings),
            f"{number} said the same and {'was' if len(others) == 1 else 'were'} {done} too: {copies}.",
        ),
    )


async def _checked_title(text: str, given: str) -> str:
    """The given title of a text, or else the one that is made from it.

    Raises:
        InvalidTextError: The text is empty, or has characters that no node can hold.
    """

    def title() -> str:
        check_text("text", text, multiline=True, required=True)
        return given or title_of(text)

    return await in_thread_if_long(len(text), title)


async def _node(editor: SessionEditor, given: str, field: str = "node_id", etag: str = "") -> Version:
    """The alive node that an id, the beginning of one, a title or a path names."""
    return await editor.node(await id_named(editor.snapshot, given, field), etag, field)


def _asks_for_a_change(request: pb.ReviseRequest) -> bool:
    return any(field.name in _CHANGING for field, _ in request.ListFields())


def _without(update: node_service_pb2.UpdateNodeRequest, node: Node, names: Collection[str]) -> None:
    """Let an update also remove attributes: it then gives all attributes and tags that the node keeps."""
    kept = {name: value for name, value in node.attributes.items() if name not in names}
    attributes = {**kept, **update.attributes}
    tags = [*node.tags, *update.tags]
    update.update_mask.paths.extend(sorted({*edits.given_fields(update), "attributes", "tags"}))
    update.mode = node_service_pb2.UPDATE_MODE_REPLACE
    update.attributes.clear()
    update.attributes.update(attributes)
    del update.tags[:]
    update.tags.extend(dict.fromkeys(tags))


async def archive_for(editor: SessionEditor, name: str, new: str = "") -> str:
    """The id of the archive with this name or full id; a name that no archive has is given to a new one.

    A prefix of an id is not accepted: the name of a new archive could be one by chance.

    Args:
        editor: The session.
        name: The name or id.
        new: The id of a new archive; a random one if empty.
    """
    if is_id(name):
        try:
            return (await lookup.archive(editor.snapshot, name)).entry_id
        except lookup.ArchiveNotFoundError:
            fault = f"{name} has the form of an id, and no archive has this id; choose another name for a new archive."
            raise InvalidInputError.at("archive", fault) from None
    plain = name.strip() or name
    if len(plain) <= editor.limits.node.archive_name_chars:  # no archive has a longer name, and none gets it below
        # Two names that look alike are one: agents compose letters in both ways, and add blanks.
        plain = normalized("NFC", plain)
        for known in dict.fromkeys((name, plain)):
            found = await archive_versions.archive_named(editor.snapshot, known)
            if found is not None:
                return found.entry_id
    archive = Archive(new or new_id(), plain, "", "")
    try:
        await editor.put_archive(archive, None, "")
    except InvalidInputError as error:
        raise renamed(error, {"name": "archive"}) from None
    return archive.id


def with_valid_time(attributes: Mapping[str, str], begin: str, end: str) -> dict[str, str]:
    """Return attributes with those of the valid time, as far as it is given."""
    given = {name: value for name, value in ((VALID_FROM, begin), (VALID_TO, end)) if value}
    return {**attributes, **given}


def renamed(error: InvalidInputError, names: Mapping[str, str] = _FIELDS) -> InvalidInputError:
    """Return the error with the names that this request has for the wrong fields."""
    faults = [_renamed(fault, names) for fault in error.violations]
    again = type(error)(error.message, faults)
    if len(faults) == 1:
        again.message = f"{faults[0].field}: {faults[0].description}"
    return again


def _renamed(fault: FieldViolation, names: Mapping[str, str]) -> FieldViolation:
    for name in (VALID_FROM, VALID_TO):
        if fault.field == f"attributes[{name!r}]":
            return replace(fault, field=name)
    return replace(fault, field=names.get(fault.field, fault.field))
