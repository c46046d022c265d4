"""Reads an export that people edited: files with ids are the nodes that they were, others are new notes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from memotree.client.enums import RelationType
from memotree.client.markdown.file_names import SUFFIX, composed
from memotree.client.markdown.folder_faults import FileFaultError
from memotree.client.markdown.folder_reading import Faults, FoundFiles, homes_of, read_file
from memotree.client.markdown.layout import Layout
from memotree.client.markdown.links import destination, linked_file, relative
from memotree.client.markdown.note_file import NoteFile, NoteLink, decode_note, own_attributes, split_body
from memotree.client.markdown.plain_note import TYPES, read_note
from memotree.client.markdown.stored import StoredState
from memotree.client.markdown.wanted import WantedArchive, WantedNode, WantedTree, derived_id
from memotree.client.node_values import Relation

_NUMBERS: Final = re.compile(r"(\d+)")


@dataclass(slots=True)
class _Reading:
    """What is known while an export is read: paths are those from its top, without suffix."""

    state: StoredState
    layout: Layout | None
    origin: str
    faults: Faults = field(default_factory=Faults)
    tree: WantedTree = field(default_factory=WantedTree)
    notes: dict[str, NoteFile] = field(default_factory=dict)
    """What each file says, by its path."""
    ids: dict[str, str] = field(default_factory=dict)
    """The id of what stands at each path, with a file or without."""
    new: set[str] = field(default_factory=set)
    """The paths of new notes and archives."""
    stands_in: set[str] = field(default_factory=set)
    """The paths of folders whose own file was removed."""
    known_paths: Mapping[str, str] = field(default_factory=dict)
    """The ids by path in the layout of the state."""


def read_export(found: FoundFiles, state: StoredState, layout: Layout | None, origin: str) -> WantedTree:
    """What an edited export wants.

    Args:
        found: Its files.
        state: The state that it is compared with.
        layout: Where this state would stand in an export, if the export is of it.
        origin: What tells the export from others; the ids of new notes are derived from it and from their paths.

    Raises:
        MarkdownFolderError: Some files cannot be read, or contradict each other.
    """
    reading = _Reading(state, layout, origin)
    if layout is not None:
        reading.known_paths = {path: entry_id for entry_id, path in layout.paths.items()}
    _read_files(reading, found)
    reading.faults.refuse()
    _name_folders(reading, found)
    reading.faults.refuse()
    _build(reading)
    reading.faults.refuse()
    return reading.tree


def _read_files(reading: _Reading, found: FoundFiles) -> None:
    first: dict[str, str] = {}
    for file in found.paths:
        path = file[: -len(SUFFIX)]
        if path in reading.ids:
            reading.faults.add(file, "has the name of another file but for the case of .md; rename one of them")
            continue
        try:
            data = read_file(found.folder, file)
            note = decode_note(data)
            if note is None:
                note = _new_note(data, derived_id(reading.origin, file))
                reading.new.add(path)
            elif note.id in first:
                reading.faults.add(
                    file,
                    f"has the id of {first[note.id]}; remove that line from the copy, so that it is a new note",
                    note.lines.get("id", 0),
                )
            else:
                first[note.id] = file
        except FileFaultError as error:
            reading.faults.add_error(file, error)
            continue
        at_top = "/" not in path
        if note.is_archive != at_top and path not in reading.new:
            reading.faults.add(
                file,
                "is an archive; leave it at the top of the export"
                if note.is_archive
                else "is a note; put it into the folder of an archive",
                note.lines.get("id", 0),
            )
        reading.notes[path] = note
        reading.ids[path] = note.id


def _new_note(data: bytes, new_id: str) -> NoteFile:
    """A file without an id, with a new one."""
    note = read_note(data)
    content, links = split_body(f"{note.content}\n", note.first_line)
    attributes = dict(note.attributes)
    given = {key: attributes.pop(key, "") for key in ("brief", "summary")}
    attributes.pop("position", None)
    if note.kind and note.kind not in TYPES:
        attributes["note_type"] = note.kind
    return NoteFile(
        id=new_id,
        title=note.title,
        type=note.kind if note.kind in TYPES else "note",
        content=content,
        tags=note.tags,
        brief=given["brief"] or None,
        summary=given["summary"] or None,
        attributes=attributes,
        links=links,
        lines=note.front.lines,
    )


def _name_folders(reading: _Reading, found: FoundFiles) -> None:
    """Finds out what each folder stands for: its file, what it was exported for, or something new."""
    with_files = set(reading.ids.values())
    for file in found.paths:
        for folder in homes_of(file):
            if folder in reading.ids:
                continue
            known = reading.known_paths.get(folder, "")
            if known and known not in with_files:
                reading.stands_in.add(folder)
                reading.ids[folder] = known
            else:
                reading.new.add(folder)
                reading.ids[folder] = derived_id(reading.origin, f"{folder}/")


def _build(reading: _Reading) -> None:
    files_at_top = {path for path in reading.notes if "/" not in path}
    folders = {path.partition("/")[0] for path in reading.ids if "/" in path}
    below: dict[str, list[str]] = {}
    for path in reading.ids:
        if "/" in path:
            below.setdefault(path.rpartition("/")[0], []).append(path)
    for path in sorted(files_at_top | folders):
        if path in reading.new and path not in folders:
            reading.faults.add(path + SUFFIX, "is a new note; put it into the folder of an archive")
            continue
        _add_archive(reading, path)
    pending = [path for path in sorted(below, reverse=True) if "/" not in path]
    while pending:
        home = pending.pop()
        children = sorted(below[home], key=lambda path: _place(reading, path))
        for path in children:
            reading.tree.add(_wanted_node(reading, path), reading.ids[home])
        pending += [path for path in reversed(children) if path in below]


def _add_archive(reading: _Reading, path: str) -> None:
    note = reading.notes.get(path)
    archive_id = reading.ids[path]
    stored = reading.state.structure.archives.get(archive_id)
    file = path + SUFFIX if note else f"{path}/"
    if note is None and stored is not None:
        wanted = WantedArchive(archive_id, file, stored.name)
    elif note is None:
        wanted = WantedArchive(archive_id, file, path)
    else:
        title = _title(reading, path, note, stored.name if stored else None)
        wanted = WantedArchive(archive_id, file, title, note.model_id, _with_old_breaks(reading, note))
    reading.tree.archives[archive_id] = wanted


def _with_old_breaks(reading: _Reading, note: NoteFile) -> str:
    """The description of an archive, with the line breaks of the stored one if only those differ."""
    stored = reading.state.structure.archives.get(note.id)
    if stored and not note.unix and stored.description.replace("\r\n", "\n") == note.content:
        return stored.description
    return note.content


def _place(reading: _Reading, path: str) -> tuple[int, str, str, list[tuple[int, str]]]:
    """The order among siblings: by position, then new ones by name."""
    note = reading.notes.get(path)
    node_id = reading.ids[path]
    stored = reading.state.nodes.get(node_id)
    position = note.position if note is not None and note.position else (stored.node.position if stored else "")
    parts = _NUMBERS.split(path.casefold())
    natural = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return (0, position, node_id, []) if position else (1, "", "", natural)


def _wanted_node(reading: _Reading, path: str) -> WantedNode:
    note = reading.notes.get(path)
    node_id = reading.ids[path]
    stored = reading.state.nodes.get(node_id)
    if note is None:
        if path in reading.stands_in:
            return WantedNode(node_id, f"{path}/")
        return WantedNode(node_id, f"{path}/", title=path.rpartition("/")[2], is_new=True)
    file = path + SUFFIX
    is_shown = bool(note.summary_by)
    return WantedNode(
        id=node_id,
        file=file,
        title=_title(reading, path, note, stored.node.title if stored else None),
        type=note.type or "note",
        content=note.content,
        tags=tuple(sorted({tag.strip() for tag in note.tags})),
        brief=note.brief or "",
        summary="" if is_shown else note.summary or "",
        shown_summary=note.summary or "" if is_shown else "",
        attributes=own_attributes(note.attributes),
        relations=tuple(_relations(reading, path, note)),
        source=note.source,
        unix=note.unix,
        is_new=path in reading.new,
    )


def _title(reading: _Reading, path: str, note: NoteFile, stored: str | None) -> str:
    """The title of a file. If its name was changed and its title was not, the name is the new title."""
    name = composed(path.rpartition("/")[2])
    if not note.title.strip():
        return name
    if reading.layout is not None and stored == note.title and name != reading.layout.name(note.id):
        return name
    return note.title


def _relations(reading: _Reading, path: str, note: NoteFile) -> list[Relation]:
    found: dict[tuple[str, str], Relation] = {}
    for link in note.links:
        target = _target(reading, path, note, link)
        if target:
            found[link.type, target] = Relation(RelationType(link.type), target, link.description)
        else:
            reading.faults.add(
                path + SUFFIX, f"the link to {link.path!r:.100} leads to no note of this folder", link.line
            )
    return [found[key] for key in sorted(found)]


def _target(reading: _Reading, path: str, note: NoteFile, link: NoteLink) -> str:
    """The node that a link means: the id in it, unless its path was changed to that of another note."""
    if not link.path:
        return link.target_id
    layout = reading.layout
    if link.target_id and layout is not None and {note.id, link.target_id} <= layout.paths.keys():
        exported = destination(relative(layout.file(link.target_id), layout.file(note.id)))
        if exported == link.path:
            return link.target_id
    elif link.target_id and layout is None:
        return link.target_id
    linked = linked_file(link.path, path + SUFFIX)
    return reading.ids.get(linked.removesuffix(SUFFIX)) or link.target_id
