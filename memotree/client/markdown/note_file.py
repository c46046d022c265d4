"""The file of one node or archive in an export: front matter, the content as it is, and the relations as links.

```text
---
id: 4f8rjw2m6tq0x9ka
title: Retries
type: note
tags:
  - grpc
position: a0V
---
The content, exactly as it was given, and one line feed after it.

<!-- memotree: relations -->
- EXTENDS [Deadlines](Deadlines.md "9d3kq7hm1c5wzx8r") — why it is so
<!-- memotree: end -->
```

``decode_note(encode_note(note, ...))`` gives the same note for every note.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree.client.enums import RelationType
from memotree.client.markdown.folder_faults import FileFaultError
from memotree.client.markdown.front_matter import FrontMatter, split, written
from memotree.client.markdown.links import destination, label
from memotree.client.node_values import Archive, Node, Source

ARCHIVE_TYPE: Final = "archive"
"""The type in the file of an archive; no node has it."""

BEGIN: Final = "<!-- memotree: relations -->"
END: Final = "<!-- memotree: end -->"

MADE: Final = frozenset({"summary_by", "summary_of", "summary_pending", "brief_by"})
"""The attributes that only MemoTree sets, about who made brief and summary; no file has them."""

_BEGIN_LINE: Final = re.compile(rf"^{re.escape(BEGIN)}[ \t\r]*$", re.MULTILINE)
_END_LINE: Final = re.compile(rf"^{re.escape(END)}[ \t\r]*$", re.MULTILINE)
_RELATION: Final = re.compile(
    r"[-*+] (?P<type>[A-Z_]+) "
    r'(?:\[(?:[^\[\]\\]|\\.)*\]\((?P<path>[^()<>"\s]*)(?: "(?P<id>[^"]*)")?\)|(?P<bare>[0-9a-z]{16}))'
    r"(?: — (?P<description>.*))?"
)
_ID: Final = re.compile(r"[0-9a-hjkmnp-tv-z]{16}")
_NODE_KEYS: Final = frozenset(
    {
        "id",
        "title",
        "aliases",
        "type",
        "tags",
        "position",
        "brief",
        "summary",
        "summary_by",
        "attributes",
        "source",
    }
)
_ARCHIVE_KEYS: Final = frozenset({"id", "title", "aliases", "type", "model", "attributes"})
_SOURCE_KEYS: Final = frozenset({"document", "start", "end", "page", "heading", "sha256"})
_NUMBER: Final = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class NoteLink:
    """A relation as a file has it: the path of the link as it is written, the id in it, or both."""

    type: str
    path: str = ""
    target_id: str = ""
    description: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class NoteFile:
    """What a file says about a node or an archive.

    Attributes:
        brief: The brief that somebody gave; ``None`` if MemoTree made it, or there is none.
        summary: Likewise.
        summary_by: Who made ``summary``, if it is there although MemoTree made it.
        content: The text; of an archive, its description.
        links: Its relations.
        unix: Whether the lines of the file ended without carriage returns, as an export writes them.
    """

    id: str
    title: str
    type: str
    content: str = ""
    tags: tuple[str, ...] = ()
    position: str = ""
    brief: str | None = None
    summary: str | None = None
    summary_by: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None
    model_id: str = ""
    links: tuple[NoteLink, ...] = ()
    unix: bool = True
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def is_archive(self) -> bool:
        """Whether it is the file of an archive."""
        return self.type == ARCHIVE_TYPE


def given_texts(node: Node) -> tuple[str | None, str | None]:
    """The brief and the summary of a node that somebody gave; ``None`` for one that MemoTree made."""
    made = "summary_of" in node.attributes
    by = node.attributes.get("brief_by")
    brief_made = by != "person" if by else made
    return (None if brief_made else node.brief or None), (None if made else node.summary or None)


def own_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes that callers may set."""
    return {name: value for name, value in attributes.items() if name not in MADE}


def encode_archive(archive: Archive, name: str) -> bytes:
    """The file of an archive; ``name`` is that of the file, without suffix."""
    head = written(
        [
            ("id", archive.id),
            ("title", archive.name),
            ("aliases", _aliases(archive.name, name)),
            ("type", ARCHIVE_TYPE),
            ("model", archive.model_id),
            ("attributes", archive.attributes),
        ]
    )
    return _closed(head, archive.description, [])


def encode_note(node: Node, name: str, paths: Mapping[str, tuple[str, str]]) -> bytes:
    """The file of a node.

    Args:
        node: The node, with its content.
        name: The name of the file, without suffix.
        paths: For the targets of its relations that are in the export: title, and path from this file.
    """
    brief, summary = given_texts(node)
    shown_by = ""
    if node.type == "summary_node" and summary is None and node.summary:
        summary, shown_by = node.summary, node.attributes.get("summary_by", "")
    head = written(
        [
            ("id", node.id),
            ("title", node.title),
            ("aliases", _aliases(node.title, name)),
            ("type", node.type),
            ("tags", node.tags),
            ("position", node.position),
            ("brief", brief or ""),
            ("summary", summary or ""),
            ("summary_by", shown_by),
            ("attributes", own_attributes(node.attributes)),
            ("source", _source_pairs(node.source)),
        ]
    )
    lines = []
    for relation in node.relations:
        found = paths.get(relation.target_id)
        target = relation.target_id
        if found is not None:
            title, path = found
            target = f'[{label(title)}]({destination(path)} "{relation.target_id}")'
        why = f" — {relation.description}" if relation.description else ""
        lines.append(f"- {RelationType(relation.type).name} {target}{why}")
    return _closed(head, "" if node.type == "summary_node" else node.content, lines)


def _aliases(title: str, name: str) -> list[str]:
    return [] if title == name else [title]


def _source_pairs(source: Source | None) -> dict[str, str]:
    if source is None:
        return {}
    values = {
        "document": source.document_id,
        "start": str(source.start or ""),
        "end": str(source.end or ""),
        "page": str(source.page or ""),
        "heading": source.heading,
        "sha256": source.sha256,
    }
    return {key: value for key, value in values.items() if value}


def _closed(head: str, content: str, relations: Sequence[str]) -> bytes:
    body = f"{content}\n" if content else ""
    if relations or _BEGIN_LINE.search(content):
        body += "\n" if content else ""
        body += "\n".join([BEGIN, *relations, END, ""])
    return (head + body).encode()


def decode_note(data: bytes) -> NoteFile | None:
    """What a file says; ``None`` if it has no front matter with an id, and is a new note therefore.

    Raises:
        FileFaultError: It cannot be read, or says what an export does not have.
    """
    text, unix = text_of(data)
    front, body, first_line = split(text)
    if front is None or "id" not in front.values:
        return None
    entry_id = front.text("id")
    if not _ID.fullmatch(entry_id):
        raise FileFaultError(
            f"{entry_id[:40]!r} is no id; leave it as it was exported, or remove that line to make a new note",
            front.line("id"),
        )
    is_archive = front.text("type") == ARCHIVE_TYPE
    _check_keys(front, _ARCHIVE_KEYS if is_archive else _NODE_KEYS)
    content, links = split_body(body, first_line)
    return NoteFile(
        id=entry_id,
        title=front.text("title"),
        type=front.text("type"),
        content=content,
        tags=tuple(front.texts("tags")),
        position=front.text("position"),
        brief=front.text("brief") or None,
        summary=front.text("summary") or None,
        summary_by=front.text("summary_by"),
        attributes=front.mapping("attributes"),
        source=_source(front),
        model_id=front.text("model"),
        links=links,
        unix=unix,
        lines=front.lines,
    )


def text_of(data: bytes) -> tuple[str, bool]:
    """The text of a file, and whether its lines end without carriage returns.

    A file whose first line ends with one was written by a program that puts them everywhere, so all are taken out.

    Raises:
        FileFaultError: It is not UTF-8.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileFaultError(f"it is not UTF-8 (byte {error.start}); save it as UTF-8", line) from None
    text = text.removeprefix("\ufeff")
    if "\r\n" in text[: text.find("\n") + 1]:
        return text.replace("\r\n", "\n"), False
    return text, True


def _check_keys(front: FrontMatter, known: frozenset[str]) -> None:
    for key in front.values:
        if key not in known:
            raise FileFaultError(
                f"{key[:70]!r} is a key that an export does not have; put it below attributes", front.line(key)
            )


def _source(front: FrontMatter) -> Source | None:
    fields = front.mapping("source")
    if not fields:
        return None
    for key, value in fields.items():
        if key not in _SOURCE_KEYS or (key in {"start", "end", "page"} and not _NUMBER.fullmatch(value)):
            raise FileFaultError(f"source has a wrong value at {key[:40]!r}; leave it as it was", front.line("source"))
    start, end, page = (int(fields.get(key, "0")) for key in ("start", "end", "page"))
    return Source(fields.get("document", ""), start, end, page, fields.get("heading", ""), fields.get("sha256", ""))


def split_body(body: str, first_line: int) -> tuple[str, tuple[NoteLink, ...]]:
    """The content and the relations of a body; what somebody wrote below the relations belongs to the content."""
    marks = list(_BEGIN_LINE.finditer(body))
    if not marks:
        return body.removesuffix("\n"), ()
    begin = marks[-1]  # the content may have others
    above = body[: begin.start()]
    content = above.removesuffix("\n\n") if above.endswith("\n\n") else above.removesuffix("\n")
    end = _END_LINE.search(body, begin.end())
    listed = body[begin.end() : end.start() if end else len(body)]
    line = first_line + body.count("\n", 0, begin.end())
    links = []
    for number, text in enumerate(listed.split("\n"), line):
        if text.strip():
            links.append(_read_relation(text, number))
    below = body[end.end() :].strip("\n") if end else ""
    if below.strip():
        content = f"{content}\n\n{below}" if content else below
    return content, tuple(links)


def _read_relation(text: str, line: int) -> NoteLink:
    found = _RELATION.fullmatch(text)
    if found is None or found["type"] not in RelationType.__members__:
        raise FileFaultError(
            "below the mark of the relations, each line is '- TYPE [title](path)', with one of the types "
            f"{', '.join(RelationType.__members__)}; put other text above the mark or below {END}",
            line,
        )
    return NoteLink(
        type=found["type"],
        path=found["path"] or "",
        target_id=found["id"] or found["bare"] or "",
        description=found["description"] or "",
        line=line,
    )
