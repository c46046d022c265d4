"""The files of the tree: their exact form, the forms that a person may write, and refusals."""

import re
from dataclasses import replace

import pytest
from memotree_storage.model.codec import InvalidFileError, decode_entry, encode_entry
from memotree_storage.model.front_matter_parsing import MAX_FOREIGN_CHARS
from memotree_storage.model.node import Archive, Node, Relation, Source
from memotree_storage.model.paths import entry_path
from memotree_storage.model.readme import describe_layout
from memotree_storage.model.validation import Limits
from steps import Steps

ID = "7xk2m9qd4tnvw0ha"
OTHER = "c41hz8rjy6ksm3pe"
PATH = "nodes/7x/k2/7xk2m9qd4tnvw0ha.md"
NODE = Node(
    id=ID,
    archive_id=OTHER,
    parent_id="0d9vq2fgw7bnx5tj",
    position="a1Zk",
    type="concept",
    title="Why: Git?",
    brief="One line",
    summary="Two\nlines",
    content="# Heading\n\n---\nText\n",
    tags=("2024", "decision"),
    relations=(Relation("EXTENDS", OTHER), Relation("SUPERSEDES", OTHER, "it lost data: twice")),
    attributes={"status": "yes", "note": "", "a:b": "c"},
    source=Source("doc-1", 3, 40, 2, "Part > Chapter", "ab" * 32),
)
FILE = """\
---
id: 7xk2m9qd4tnvw0ha
archive: c41hz8rjy6ksm3pe
parent: 0d9vq2fgw7bnx5tj
position: a1Zk
type: concept
title: "Why: Git?"
brief: One line
summary: "Two\\nlines"
tags:
  - "2024"
  - decision
attributes:
  a:b: c
  note: ""
  status: "yes"
relations:
  - EXTENDS c41hz8rjy6ksm3pe
  - "SUPERSEDES c41hz8rjy6ksm3pe it lost data: twice"
source:
  document: doc-1
  start: 3
  end: 40
  page: 2
  heading: Part > Chapter
  sha256: abababababababababababababababababababababababababababababababab
---
# Heading

---
Text

"""
MINIMAL = f"---\nid: {ID}\narchive: {OTHER}\ntitle: T\n---\n"


def refused(data: str | bytes, path: str = PATH) -> InvalidFileError:
    with pytest.raises(InvalidFileError) as caught:
        decode_entry(path, data if isinstance(data, bytes) else data.encode())
    assert path in caught.value.message
    return caught.value


@pytest.mark.requirement("GIT-2")
def test_a_node_file_reads_well_and_has_one_exact_form() -> None:
    assert encode_entry(NODE).decode() == FILE
    assert decode_entry(PATH, FILE.encode()) == NODE


@pytest.mark.requirement("GIT-2")
def test_empty_fields_are_left_out() -> None:
    assert encode_entry(Node(ID, OTHER, None, "a0", title="T")).decode() == (
        f"---\nid: {ID}\narchive: {OTHER}\nposition: a0\ntype: note\ntitle: T\n---\n"
    )


def test_an_archive_file_holds_what_the_archive_has() -> None:
    archive = Archive(OTHER, "My book", "gpt: 4", "About\n\nit", {"sha256": "ab", "document_id": "a: b"})
    data = encode_entry(archive)
    head = f'---\nid: {OTHER}\nname: My book\nmodel: "gpt: 4"\nattributes:\n  document_id: "a: b"\n  sha256: ab\n---\n'
    assert data.decode() == f"{head}About\n\nit\n"
    assert decode_entry(entry_path(archive), data) == archive
    bare = replace(archive, model_id="", description="", attributes={})
    assert encode_entry(bare).decode() == f"---\nid: {OTHER}\nname: My book\n---\n"


@pytest.mark.parametrize(
    "content",
    ["", "x", "x\n", "\n", "\n\n", " ", "---\n", "---\nid: y\n---\n", "a\r\nb\r\n", "\r", "\ufeffa", "\u2028"],
)
def test_content_comes_back_to_the_last_line_break(content: str) -> None:
    node = replace(NODE, content=content)
    assert decode_entry(PATH, encode_entry(node)) == node


@pytest.mark.requirement("GIT-8")
def test_a_file_without_position_type_and_final_line_break_gets_defaults() -> None:
    node = decode_entry(PATH, (MINIMAL + "Body").encode())
    assert node == Node(ID, OTHER, None, "a0", "note", "T", content="Body")


@pytest.mark.requirement("GIT-8")
def test_a_person_may_write_any_yaml() -> None:
    text = f"""\
---
# a comment
title: >-
  A folded
  title
tags: [b, "a", b, ' c ']
id: '{ID}'
archive: {OTHER}
parent: ~
attributes: {{n: 12, when: 2024-01-01, ok: yes}}
summary: |-
  Two
  lines
relations:
- EXTENDS {OTHER}  spaced
source: {{document: d, start: 1, end: 2}}
---
Body
"""
    expected = Node(
        ID, OTHER, None, "a0", title="A folded title", summary="Two\nlines", content="Body", tags=("a", "b", "c"),
        attributes={"n": "12", "when": "2024-01-01", "ok": "yes"}, source=Source("d", 1, 2),
        relations=(Relation("EXTENDS", OTHER, " spaced"),),
    )  # fmt: skip
    assert decode_entry(PATH, text.encode()) == expected
    assert decode_entry(PATH, b"\xef\xbb\xbf" + text.encode()) == expected
    assert decode_entry(PATH, text.replace("\n", "\r\n").encode()) == expected


def test_line_breaks_of_the_content_stay_when_the_front_matter_is_ours() -> None:
    node = decode_entry(PATH, (MINIMAL + "a\r\nb\r\n").encode())
    assert isinstance(node, Node)
    assert node.content == "a\r\nb\r"


@pytest.mark.requirement("GIT-8")
@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("", "front matter"),
        ("# Just Markdown\n", "front matter"),
        ("---\nid: x\n", "front matter"),
        (b"---\n\xff\n---\n", "UTF-8"),
        ("---\n- a\n---\n", "mapping"),
        ("---\ntitle: [a\n---\n", "line 3"),
        ("---\nid: a\nid: b\n---\n", "twice"),
        (MINIMAL.replace("title: T", "title: &x T\nbrief: *x"), "anchors"),
        (MINIMAL.replace("title: T", "title: !!binary aGk="), "tags (!)"),
        (MINIMAL.replace("title: T", "title: T\ntags: [[a]]"), "may not be nested"),
        (MINIMAL.replace("title: T", "title: T\ntags: a"), "must be a list"),
        (MINIMAL.replace("title: T", "title: T\nattributes: [a]"), "must be a mapping"),
        (MINIMAL.replace("title: T", "title: {a: b}"), "must be one text"),
        (MINIMAL.replace("title: T", "title: T\ncolour: red"), "unknown key"),
        (MINIMAL.replace("title: T", "title: T\nsource: {document: d, start: x}"), "source.start"),
        (MINIMAL.replace("title: T", "title: T\nsource: {document: d, line: 1}"), "source.line"),
        (MINIMAL.replace("title: T", "title: T\nrelations: [EXTENDS]"), "relations[0].target_id"),
        (MINIMAL.replace("title: T", "title: T\nposition: 5"), "position"),
        (MINIMAL.replace("title: T", "brief: T"), "title"),
        (MINIMAL.replace("title: T", 'title: "a\\0b"'), "NUL"),
        (MINIMAL.replace("title: T", "title: T\ntype: Not A Type"), "type"),
        (MINIMAL.replace(ID, OTHER, 1), "make them agree"),
        (MINIMAL.replace(OTHER, "x"), "archive 'x' is not a full id"),
        (MINIMAL + "a\0b", "content has a NUL"),
        (f"---\nid: {ID}\n--- x\ntitle: T\n---\n", "second document"),
        ("---\n? [a]\n: b\n---\n", "key must be a text"),
    ],
)
def test_a_file_that_is_no_node_is_refused_with_a_hint(data: str | bytes, hint: str) -> None:
    assert hint in refused(data).message


def test_every_fault_of_a_file_is_listed() -> None:
    error = refused("---\ncolour: red\ntags: a\nattributes: b\n---\n")
    assert {violation.field for violation in error.violations} == {"colour", "tags", "attributes"}


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("".join(f"a{number}: x\n" for number in range(50_000)), "a0"),
        ("source:\n" + "".join(f"  a{number}: x\n" for number in range(50_000)), "source.a0"),
        ("tags:\n" + "".join(f'  - "{number:02},{chr(0x2028)}"\n' for number in range(50)), "tags[0]"),
        ("attributes:\n" + "".join(f"  {chr(0xE000) * 200}{number}: x\n" for number in range(30)), "attributes['"),
        ("type: " + "x" * 50_000 + "\n" + "".join(f"{chr(0x1F600) * 5_000}{number}: x\n" for number in range(50)), ""),
    ],
    ids=["keys", "keys of the source", "tags", "long keys", "attributes"],
)
def test_of_many_faults_the_first_are_told(lines: str, field: str) -> None:
    error = refused(MINIMAL.replace("title: T\n", f"title: T\n{lines}"))
    assert len(error.message) < 2_500
    assert 1 < len(error.violations) <= 20
    assert max(len(fault.field) for fault in error.violations) <= 100
    assert max(len(fault.description) for fault in error.violations) <= 1_000
    assert error.violations[0].field.startswith(field)
    assert re.search(r"; and [0-9,]+ more\. Correct the file", error.message)


@pytest.mark.requirement("STORE-8")
def test_front_matter_of_millions_of_lines_is_not_taken_apart() -> None:
    """A push of a few kilobytes can bring 272 MB, and each line would be an object."""
    with Steps() as steps:
        told = refused("---\n" + "a: b\n" * 1_000_000 + "---\n").message
    assert "more than 10000 lines" in told
    assert steps.count < 1_000


def test_a_yaml_bomb_is_refused_quickly() -> None:
    laughs = "\n".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'lol'}]" for n in range(9))
    assert "anchors" in refused(f"---\n{laughs}\n---\n").message
    assert "may not be nested" in refused("---\nid: " + "[" * 10 + "\n---\n").message
    assert "nest" in refused("---\nid: " + "[" * 100_000 + "\n---\n").message  # PyYAML 6.0.4 says so itself


def test_a_huge_foreign_front_matter_is_refused_and_our_own_is_read() -> None:
    assert str(MAX_FOREIGN_CHARS) in refused("---\n# " + "x" * MAX_FOREIGN_CHARS + "\n---\n").message
    node = replace(NODE, summary="x" * 3_000_000)
    assert decode_entry(PATH, encode_entry(node), Limits(summary_bytes=4_000_000)) == node


def test_limits_and_registered_types_can_be_chosen() -> None:
    data = encode_entry(replace(NODE, type="from_a_plugin"))
    assert decode_entry(PATH, data).id == ID
    with pytest.raises(InvalidFileError, match="not registered"):
        decode_entry(PATH, data, types=frozenset({"note"}))
    with pytest.raises(InvalidFileError, match="limit of 5 bytes"):
        decode_entry(PATH, data, Limits(content_bytes=5))


def test_the_example_in_the_readme_is_a_valid_file() -> None:
    block = [line[4:] for line in describe_layout().decode().splitlines() if line.startswith("    ")]
    data = "\n".join([*block, ""]).encode()
    assert encode_entry(decode_entry(PATH, data)) == data
