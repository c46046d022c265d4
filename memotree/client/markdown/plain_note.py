"""A Markdown file as people write it, in Obsidian or for GitHub: its title, tags, properties and links."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memotree.client.markdown.folder_faults import FileFaultError
from memotree.client.markdown.front_matter import FrontMatter, split
from memotree.client.markdown.note_file import MADE, text_of

TYPES: Final = frozenset(
    {"note", "concept", "memory", "plan", "reference", "code", "project", "goal", "task", "review"}
)
"""The types of nodes that a file may name; another one becomes the attribute ``note_type``."""

_MOST_TITLE: Final = 500
_MOST_TAG: Final = 100
_MOST_TAGS: Final = 64
_MOST_VALUE: Final = 4 << 10
_MOST_KEY: Final = 64
_MOST_ATTRIBUTES: Final = 56  # an import adds its own to them

_FENCED: Final = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")
_TAG: Final = re.compile(r"(?:(?<=\s)|(?<=^)|(?<=[(,;]))#([\w/-]*[^\W\d][\w/-]*)", re.MULTILINE)
_WIKILINK: Final = re.compile(r"!?\[\[([^\[\]|\n]+?)(?:\\?\|[^\[\]\n]*)?\]\]")
_LINK: Final = re.compile(r"(?<!\\)\]\(\s*<?([^()<>\s]+(?:\([^()\s]*\)[^()<>\s]*)*)>?(?:\s+\"[^\"\n]*\")?\s*\)")
_KEY_FAULTS: Final = re.compile(r"[^\w.:/-]+")
_NOT_IN_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TAKEN: Final = frozenset({"title", "type", "tags", "tag", "aliases", "alias"})


@dataclass(frozen=True, slots=True)
class PlainNote:
    """What a file says.

    Attributes:
        title: The title in the front matter; empty if there is none.
        kind: The type in the front matter; empty if there is none.
        aliases: Other names of the note.
        content: What follows the front matter, without the last line feed.
        attributes: The other values of the front matter, as texts.
        front: The front matter as it is.
        left_out: Keys whose values no attribute can hold.
        first_line: The line at which the content begins.
    """

    title: str
    kind: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    content: str
    attributes: Mapping[str, str]
    front: FrontMatter
    left_out: tuple[str, ...] = ()
    first_line: int = 1


def read_note(data: bytes, *, inline_tags: bool = True) -> PlainNote:
    """What a file says; ``inline_tags`` takes ``#words`` of the text as tags, too.

    Raises:
        FileFaultError: It is not UTF-8, has characters that no text can have, or front matter that is no YAML.
    """
    text, _ = text_of(data)
    front, body, first_line = split(text)
    front = front or FrontMatter()
    wrong = _NOT_IN_TEXT.search(body)
    if wrong is not None:
        line = first_line + body.count("\n", 0, wrong.start())
        raise FileFaultError(f"has a control character (U+{ord(wrong[0]):04X}); remove it", line)
    content = body.removesuffix("\n")
    tags = {_tag(tag) for tag in _listed(front, "tags", "tag")}
    if inline_tags:
        tags |= {_tag(tag) for tag in _TAG.findall(without_code(content))}
    attributes, left_out = _attributes(front)
    return PlainNote(
        title=_line(front.text("title")),
        kind=front.text("type"),
        tags=tuple(sorted(tag for tag in tags if tag))[:_MOST_TAGS],
        aliases=tuple(_line(alias) for alias in _listed(front, "aliases", "alias", at="\0")),
        content=content,
        attributes=attributes,
        front=front,
        left_out=left_out,
        first_line=first_line,
    )


def _listed(front: FrontMatter, *keys: str, at: str = ",") -> Iterator[str]:
    """The texts of a list; one text may be a list as well, separated by ``at``."""
    for key in keys:
        value = front.values.get(key, [])
        for item in [value] if isinstance(value, str) else front.texts(key):
            yield from item.split(at)


def _tag(text: str) -> str:
    return _line(text).strip().removeprefix("#").replace(",", " ").strip("/ ")[:_MOST_TAG].strip()


def _line(text: str) -> str:
    return _NOT_IN_LINE.sub(" ", text)[:_MOST_TITLE]


def _attributes(front: FrontMatter) -> tuple[dict[str, str], tuple[str, ...]]:
    found: dict[str, str] = {}
    left_out = []
    for key, value in front.values.items():
        if key in _TAKEN or value in ("", [], {}):
            continue
        name = _KEY_FAULTS.sub("_", key).strip("_")[:_MOST_KEY]
        text = _NOT_IN_TEXT.sub(" ", _as_text(value))
        can_be = name and (name[0].isalnum() or name[0] == "_") and name not in MADE
        fits = len(text.encode()) <= _MOST_VALUE and len(found) < _MOST_ATTRIBUTES
        if not can_be or not fits or name in found:
            left_out.append(key)
        else:
            found[name] = text
    return found, tuple(left_out)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def without_code(content: str) -> str:
    """A text with code blanked out, so that what looks like a tag or link there is none."""
    blank = _FENCED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), content)
    return _INLINE.sub(lambda found: " " * len(found[0]), blank)


def links_of(content: str) -> Iterator[tuple[str, bool]]:
    """The targets of the links of a text; with whether one is the name of a note, and not a path from the file."""
    text = without_code(content)
    for found in _WIKILINK.finditer(text):
        name = found[1].partition("#")[0].partition("^")[0].strip().rstrip("\\")
        if name:
            yield name, True
    for found in _LINK.finditer(text):
        target = found[1]
        if "://" not in target and not target.startswith(("#", "mailto:", "//")):
            yield target, False
