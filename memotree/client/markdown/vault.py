"""Reads folders of notes: those of Obsidian and for GitHub, of basic-memory, and the memory folders of Letta."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from memotree.client.markdown.file_names import SUFFIX
from memotree.client.markdown.folder_faults import FileFaultError
from memotree.client.markdown.folder_reading import Faults, FoundFiles, homes_of, read_file
from memotree.client.markdown.foreign_notes import ForeignFolder, ForeignLink, ForeignNote
from memotree.client.markdown.plain_note import TYPES, PlainNote, links_of, read_note, without_code

PLAIN: Final = "plain"
BASIC_MEMORY: Final = "basic-memory"
LETTA: Final = "letta"

_OF_FOLDER: Final = ("readme", "index")
_TYPES_OF_RELATIONS: Final = {
    "extends": "EXTENDS",
    "depends_on": "DEPENDS_ON",
    "requires": "DEPENDS_ON",
    "part_of": "PART_OF",
    "inspired_by": "INSPIRED_BY",
    "contradicts": "CONTRADICTS",
    "supersedes": "SUPERSEDES",
    "about": "ABOUT",
}
_LETTA_KEYS: Final = frozenset({"name", "description", "limit", "read_only"})
_MOST_TOLD: Final = 3


def read_vault(found: FoundFiles, file_format: str = "") -> ForeignFolder:
    """The notes of a folder; the format is detected if it is not given.

    A folder is a note as well: that of the file beside it with its name, or in it (``README``, ``index``, or its name),
    else one without a text.

    Raises:
        MarkdownFolderError: Files cannot be read.
    """
    faults = Faults()
    read: dict[str, PlainNote] = {}
    for file in found.paths:
        try:
            read[file] = read_note(read_file(found.folder, file), inline_tags=file_format != LETTA)
        except FileFaultError as error:
            faults.add_error(file, error)
    faults.refuse()
    detected = file_format or _detected(read)
    if detected == LETTA != file_format:
        return read_vault(found, LETTA)
    notes = list(_in_order(read, detected))
    return ForeignFolder(detected, notes, list(_warnings(found, read)))


def _detected(read: Mapping[str, PlainNote]) -> str:
    """What program the notes are of, by the keys of their front matter."""
    fronts = [note.front.values for note in read.values() if note.front.values]
    in_system = [note for file, note in read.items() if file.startswith("system/")]
    if in_system and all("description" in each.front.values for each in in_system):
        only = all(values.keys() <= _LETTA_KEYS for values in fronts)
        if only:
            return LETTA
    if any("permalink" in values for values in fronts):
        return BASIC_MEMORY
    return PLAIN


def _warnings(found: FoundFiles, read: Mapping[str, PlainNote]) -> Iterator[str]:
    if found.others:
        yield f"left out, since they are no Markdown: {found.others:,} files"
    left = [f"{key} in {file}" for file, note in read.items() for key in note.left_out]
    if left:
        told = ", ".join(left[:_MOST_TOLD])
        yield f"left out, since no attribute can have them: {len(left):,} values of front matter ({told})"


def _in_order(read: Mapping[str, PlainNote], file_format: str) -> Iterator[ForeignNote]:
    """The notes, parents first; in a folder by name."""
    folders = {folder for file in read for folder in homes_of(file)}
    lowered = {file.casefold(): file for file in read}
    own = {folder: _file_of_folder(folder, lowered) for folder in folders}
    of_folder = {file: folder for folder, file in own.items() if file}
    below: dict[str, list[tuple[str, str, str]]] = {}
    for file in read:
        place = of_folder.get(file, file)
        below.setdefault(place.rpartition("/")[0], []).append((place.casefold(), file, of_folder.get(file, "")))
    for folder in folders:
        if not own[folder]:
            below.setdefault(folder.rpartition("/")[0], []).append((folder.casefold(), f"{folder}/", folder))
    pending = [("", "")]
    while pending:
        folder, home = pending.pop()
        further = []
        for _, key, stands_for in sorted(below.get(folder, ())):
            name = (stands_for or key[: -len(SUFFIX)]).rpartition("/")[2]
            if key.endswith("/"):
                yield ForeignNote(key, home, name)
            else:
                yield _foreign(key, home, name, read[key], file_format)
            if stands_for:
                further.append((stands_for, key))
        pending += reversed(further)


def _file_of_folder(folder: str, lowered: Mapping[str, str]) -> str:
    """The file that is the note of a folder, of the files by their names without case; empty if there is none."""
    name = folder.rpartition("/")[2]
    inside = (f"{folder}/{each}{SUFFIX}" for each in (name, *_OF_FOLDER))
    return next((lowered[path.casefold()] for path in (folder + SUFFIX, *inside) if path.casefold() in lowered), "")


def _foreign(file: str, home: str, name: str, note: PlainNote, file_format: str) -> ForeignNote:
    attributes = dict(note.attributes)
    if note.aliases:
        attributes["aliases"] = ", ".join(note.aliases)
    if note.kind and note.kind not in TYPES:
        attributes["note_type"] = note.kind
    found = ForeignNote(
        key=file,
        home=home,
        title=note.title.strip() or name,
        content=note.content,
        type=note.kind if note.kind in TYPES else "note",
        tags=note.tags,
        attributes=attributes,
        names=(", ".join(note.aliases),),
        links=tuple(links_in(note.content, file_format)),
    )
    if file_format == BASIC_MEMORY:
        return replace(found, names=(*found.names, attributes.get("permalink", "")))
    if file_format == LETTA:
        return _block(found, file)
    return found


def _block(note: ForeignNote, file: str) -> ForeignNote:
    """A memory block: its description says what it is for, and its path is its label."""
    attributes = dict(note.attributes)
    described = attributes.pop("description", "")
    title = attributes.pop("name", "") or note.title
    attributes["label"] = file.removeprefix("system/")[: -len(SUFFIX)]
    return replace(note, title=title, attributes=attributes, brief=one_line(described) or None)


def one_line(text: str) -> str:
    """A text as a brief: one line of at most 500 characters."""
    return " ".join(text.split())[:500]


def links_in(content: str, file_format: str) -> Iterator[ForeignLink]:
    """The links of a text; the relations of basic-memory have types."""
    typed: set[str] = set()
    if file_format == BASIC_MEMORY:
        for line in without_code(content).split("\n"):
            link = _relation(line)
            if link is not None:
                typed.add(link.target)
                yield link
    for target, is_name in links_of(content):
        if not (is_name and target in typed):
            yield ForeignLink(target, is_name)


def _relation(line: str) -> ForeignLink | None:
    """The relation of a line of basic-memory, ``- type [[Target]] (context)``."""
    item = line.strip()
    if item[:1] not in ("-", "*", "+") or not item[1:2].isspace():
        return None
    before, opening, rest = item[1:].partition("[[")
    name, closing, after = rest.partition("]]")
    kind, context = before.strip().strip("\"'"), after.strip()
    target = name.partition("|")[0].partition("#")[0].strip()
    if not (opening and closing and target) or "[" in before + name or "]" in before:
        return None
    if context and not (context.startswith("(") and context.endswith(")")):
        return None
    known = _TYPES_OF_RELATIONS.get(kind.casefold().replace(" ", "_").replace("-", "_"), "")
    told = context[1:-1] if known else f"{kind} {context}".strip()
    return ForeignLink(target, is_name=True, type=known or "REFERENCES", description=one_line(told))
