"""Finds the nodes that notes of another program became before, and says what has to change.

A node has the path that it came from as an attribute, and a hash of what the file said then. So a file that has not
changed since changes nothing, whatever happened to its node meanwhile; and where both have changed, somebody decides.
"""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from memotree.client.markdown.folder_reading import Faults
from memotree.client.markdown.foreign_notes import (
    FILE,
    HASH,
    NAMES,
    Directory,
    ForeignFolder,
    ForeignNote,
    hash_of,
    relations_of,
)
from memotree.client.markdown.note_file import given_texts, own_attributes
from memotree.client.markdown.stored import StoredNode, StoredState, text_hash
from memotree.client.markdown.vault import links_in
from memotree.client.markdown.wanted import WantedArchive, WantedNode, WantedTree, derived_id
from memotree.client.node_values import Relation

_MOST_TOLD: Final = 3


@dataclass(slots=True)
class _Matching:
    folder: ForeignFolder
    state: StoredState
    overwrite: bool
    tree: WantedTree
    before: Directory
    ids_before: Mapping[str, str]
    faults: Faults = field(default_factory=Faults)
    ids: dict[str, str] = field(default_factory=dict)
    """The id of each note by its key."""
    nowhere: list[str] = field(default_factory=list)


def match(folder: ForeignFolder, state: StoredState, archive: WantedArchive, *, overwrite: bool) -> WantedTree:
    """What a folder of notes wants of its archive.

    Args:
        folder: The notes.
        state: The archive as it is, with contents, or without nodes if it is new.
        archive: The archive.
        overwrite: Whether a changed file replaces a node that was changed as well.

    Raises:
        MarkdownFolderError: A file and its node were both changed since the last import.
    """
    matching = _Matching(folder, state, overwrite, WantedTree(is_export=False), _before(state), _ids_by_file(state))
    matching.tree.archives[archive.id] = archive
    matching.tree.warnings += folder.warnings
    matching.ids = _known(folder, state)
    directory = Directory(folder.notes)
    for note in folder.notes:
        home = matching.ids[note.home] if note.home else archive.id
        node = _wanted(matching, note, directory)
        if _came_from(state, node.id, note.key) and (not note.home or _came_from(state, home, note.home)):
            matching.tree.fixed.add(node.id)  # whoever moved it here had a reason
        matching.tree.add(node, home)
    matching.faults.refuse()
    if matching.nowhere:
        told = ", ".join(matching.nowhere[:_MOST_TOLD])
        matching.tree.warnings.append(f"links that lead to no note of the folder: {len(matching.nowhere):,} ({told})")
    return matching.tree


def _came_from(state: StoredState, node_id: str, key: str) -> bool:
    return node_id in state.nodes and state.nodes[node_id].node.attributes.get(FILE) == key


def _ids_by_file(state: StoredState) -> dict[str, str]:
    files = {node_id: stored.node.attributes.get(FILE, "") for node_id, stored in state.nodes.items()}
    return {file: node_id for node_id, file in files.items() if file}


def _before(state: StoredState) -> Directory:
    """The notes as they were at the last import, as far as their nodes tell."""
    return Directory(
        ForeignNote(
            file,
            "",
            state.nodes[node_id].node.title,
            names=tuple(state.nodes[node_id].node.attributes.get(name, "") for name in NAMES),
        )
        for file, node_id in _ids_by_file(state).items()
    )


def _known(folder: ForeignFolder, state: StoredState) -> dict[str, str]:
    """The id of each note: of the node with its path, else of one that lost its file and has its text, else new."""
    by_file = _ids_by_file(state)
    keys = {note.key for note in folder.notes}
    gone = {node_id: state.nodes[node_id] for file, node_id in by_file.items() if file not in keys}
    by_text = _once({node_id: node.content for node_id, node in gone.items()})
    new = {note.key: text_hash(note.content) for note in folder.notes if note.content and note.key not in by_file}
    renamed = {key: by_text.get(text, "") for text, key in _once(new).items()}
    return {
        note.key: by_file.get(note.key) or renamed.get(note.key) or derived_id(secrets.token_hex(20))
        for note in folder.notes
    }


def _once(values: Mapping[str, bytes]) -> dict[bytes, str]:
    """The keys by those values that only one of them has."""
    count = Counter(values.values())
    return {value: key for key, value in values.items() if count[value] == 1}


def _wanted(matching: _Matching, note: ForeignNote, directory: Directory) -> WantedNode:
    node_id = matching.ids[note.key]
    stored = matching.state.nodes.get(node_id)
    relations, nowhere = relations_of(note.links, note.key, directory, matching.ids)
    matching.nowhere += [f"{target} in {note.key}" for target in nowhere]
    attributes = {**note.attributes, FILE: note.key, HASH: note.hash}
    old: tuple[Relation, ...] | None = ()
    if stored is not None:
        before = stored.node.attributes.get(HASH, "")
        now = _hash_of(stored)
        if now == before:
            old_links = links_in(stored.node.content, matching.folder.file_format)
            file = stored.node.attributes.get(FILE, note.key)
            old, _ = relations_of(old_links, file, matching.before, matching.ids_before)
        if note.hash == before:
            moved = {**own_attributes(stored.node.attributes), FILE: note.key}
            return WantedNode(node_id, note.key, attributes=moved, relations=relations, old_relations=old)
        if now not in {before, note.hash} and not matching.overwrite:
            matching.faults.add(
                note.key,
                f"was changed, and so was its node {node_id}; make them equal, or overwrite the node with the file",
            )
    return WantedNode(
        id=node_id,
        file=note.key,
        title=note.title,
        type=note.type,
        content=note.content,
        tags=note.tags,
        brief=note.brief,
        attributes=attributes,
        relations=relations,
        old_relations=old,
        is_new=stored is None,
    )


def _hash_of(stored: StoredNode) -> str:
    """The hash that the file of a node would have if it said what the node says now."""
    node = stored.node
    brief, _ = given_texts(node)
    return hash_of(node.title, node.type, stored.content, node.tags, own_attributes(node.attributes), brief)
