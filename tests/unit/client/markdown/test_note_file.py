"""The file of a node or archive says all of it again, whatever is in it."""

import pytest
from entry_strategies import archives, nodes
from hypothesis import example, given
from memotree_storage.model.node import Archive as StoredArchive
from memotree_storage.model.node import Node as StoredNode

from memotree.client import Archive, Node, Relation, Source
from memotree.client.markdown.folder_faults import FileFaultError
from memotree.client.markdown.note_file import (
    BEGIN,
    END,
    MADE,
    NoteFile,
    NoteLink,
    decode_note,
    encode_archive,
    encode_note,
    given_texts,
)

pytestmark = pytest.mark.requirement("GIT-11")

ID = "4f8rjw2m6tq0x9ka"
OTHER = "9d3kq7hm1c5wzx8r"


def as_client(node: StoredNode) -> Node:
    """The node as a server answers with it; the content of a summary node is not its own."""
    source = node.source
    return Node(
        id=node.id,
        position=node.position,
        type=node.type,
        title=node.title,
        brief=node.brief,
        summary=node.summary,
        content="" if node.type == "summary_node" else node.content,
        tags=node.tags,
        relations=tuple(Relation(each.type, each.target_id, each.description) for each in node.relations),
        attributes=dict(node.attributes),
        source=Source(source.document_id, source.start, source.end, source.page, source.heading, source.sha256)
        if source
        else None,
    )


def decoded(data: bytes) -> NoteFile:
    note = decode_note(data)
    assert note is not None
    return note


@given(nodes())
def test_a_node_is_read_as_it_was_written(stored: StoredNode) -> None:
    node = as_client(stored)
    paths = {relation.target_id: ("A [title]", "a b/(c)\u3000é#.md") for relation in node.relations[:1]}
    note = decoded(encode_note(node, "name", paths))
    brief, summary = given_texts(node)
    assert (note.id, note.title, note.type, note.content) == (node.id, node.title, node.type, node.content)
    assert (note.tags, note.position, note.source) == (node.tags, node.position, node.source)
    assert (note.brief, note.attributes) == (brief, {k: v for k, v in node.attributes.items() if k not in MADE})
    if not note.summary_by:
        assert note.summary == summary
    assert [(link.type, link.target_id, link.description) for link in note.links] == [
        (each.type, each.target_id, each.description) for each in node.relations
    ]


@given(archives())
def test_an_archive_is_read_as_it_was_written(stored: StoredArchive) -> None:
    archive = Archive(stored.id, stored.name, stored.model_id, stored.description, "", dict(stored.attributes))
    note = decoded(encode_archive(archive, "name"))
    assert note.is_archive
    assert (note.id, note.title, note.model_id, note.content) == (
        archive.id,
        archive.name,
        archive.model_id,
        archive.description,
    )


@pytest.mark.parametrize(
    "content",
    [
        *("", "\n", "\n\n", "a", "a\n", "a\n\n\n", "\r\n", "a\r\nb\n"),
        BEGIN,
        f"a\n{BEGIN}\n- x\n{END}\nb",
        f"{END}\n",
        "---\nid: x\n---",
    ],
)
@pytest.mark.parametrize("related", [False, True])
def test_a_content_that_looks_like_the_rest_of_the_file_is_kept(content: str, related: bool) -> None:
    relations = (Relation("EXTENDS", OTHER, "why — [it](is)  "),) if related else ()
    node = Node(id=ID, title="T", type="note", content=content, relations=relations)
    note = decoded(encode_note(node, "T", {OTHER: ("The other", "../The other.md")}))
    assert note.content == content
    assert [(link.path, link.target_id) for link in note.links] == ([("../The%20other.md", OTHER)] if related else [])


def test_what_is_added_at_the_end_of_a_file_belongs_to_the_content() -> None:
    node = Node(id=ID, title="T", type="note", content="Old.", relations=(Relation("ABOUT", OTHER),))
    assert decoded(encode_note(node, "T", {}) + b"New.\n").content == "Old.\n\nNew."


def test_a_file_with_carriage_returns_everywhere_is_read_without_them() -> None:
    node = Node(id=ID, title="T", type="note", content="a\nb", relations=(Relation("ABOUT", OTHER),))
    note = decoded(b"\xef\xbb\xbf" + encode_note(node, "T", {}).replace(b"\n", b"\r\n"))
    assert (note.content, note.unix, note.links[0].target_id) == ("a\nb", False, OTHER)


def test_a_file_without_an_id_is_a_new_note() -> None:
    assert decode_note(b"# A heading\n") is None
    assert decode_note(b"---\ntags: [a]\n---\nText\n") is None
    assert decode_note(b"") is None


@pytest.mark.parametrize(
    ("data", "line", "told"),
    [
        (b"---\nid: 4f8rjw2m6tq0x9ka\ntitle: a\n", 1, "not closed"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\ntitle: [a\n---\n", 4, "not YAML"),
        (b"---\nid: abc\n---\n", 2, "is no id"),
        (b"---\ntitle: a\nid: 4f8rjw2m6tq0x9ka\ncolour: red\n---\n", 4, "'colour' is a key"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\ntitle: [a, b]\n---\n", 3, "title must be one text"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\ntags: {a: b}\n---\n", 3, "tags must be a list"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\ntitle: a\ntitle: b\n---\n", 4, "appears twice"),
        (b"---\nid: &x 4f8rjw2m6tq0x9ka\ntags: [*x]\n---\n", 2, "anchors and aliases"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\na: " + b"[" * 20 + b"]" * 20 + b"\n---\n", 3, "nested deeper"),
        (b"---\nid: 4f8rjw2m6tq0x9ka\n---\nok\n\xff\n", 5, "not UTF-8"),
        (
            b"---\nid: 4f8rjw2m6tq0x9ka\n---\nok\n" + BEGIN.encode() + b"\n- LIKES [a](b.md)\n",
            6,
            "- TYPE [title](path)",
        ),
        (b"---\nid: 4f8rjw2m6tq0x9ka\nsource:\n  start: x\n---\n", 3, "source has a wrong value"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(data: bytes, line: int, told: str) -> None:
    with pytest.raises(FileFaultError, match=None) as refused:
        decode_note(data)
    assert told in refused.value.description
    assert refused.value.line == line


def test_links_are_read_whatever_their_list_looks_like() -> None:
    text = f"---\nid: {ID}\n---\n{BEGIN}\n* ABOUT [a \\] b](x/y.md)\n+ EXTENDS {OTHER}\n\n"
    assert decoded(text.encode()).links == (
        NoteLink("ABOUT", "x/y.md", "", "", 5),
        NoteLink("EXTENDS", "", OTHER, "", 6),
    )


@given(nodes())
@example(StoredNode(id=ID, archive_id=OTHER, parent_id=None, position="a0", type="note", title="null"))
def test_obsidian_and_github_find_no_front_matter_that_they_cannot_read(stored: StoredNode) -> None:
    import yaml  # noqa: PLC0415 - the independent reader

    text = encode_note(as_client(stored), "name", {}).decode()
    head = yaml.safe_load(text[4 : text.index("\n---\n", 3)])
    assert (head["id"], head["title"], head.get("tags", [])) == (stored.id, stored.title, list(stored.tags))
