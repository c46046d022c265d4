"""The front matter of Markdown files: YAML between two lines of three hyphens.

It is written in a narrow form, one value per line. It is read from any YAML that people write, by events, so that
aliases, tags and deep nesting are refused before they can cost anything; all scalars are read as texts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memotree.client.errors import FailedPreconditionError
from memotree.client.markdown.folder_faults import FileFaultError
from memotree.extras import install

Value = str | list[Any] | dict[str, Any]
"""A text, a list or a mapping; lists and mappings of plain notes may be nested."""

FENCE: Final = "---"

_PLAIN: Final = re.compile(r"[^\W\d_](?:[\w .,()/+-]*[\w.)])?")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
_NOTHING: Final = frozenset({"~", "null", "Null", "NULL"})
_UNPRINTED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_OPENING: Final = re.compile(r"---[ \t]*(?:\r\n|\n|\Z)")
_CLOSING: Final = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r\n|\n|\Z)", re.MULTILINE)
_MOST_DEPTH: Final = 8
_MOST_CHARACTERS: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The values of a file by key, and the line of each key, counted from 1 in the file."""

    values: Mapping[str, Value] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """The text of a key; empty if there is none.

        Raises:
            FileFaultError: The value is a list or a mapping.
        """
        value = self.values.get(key, "")
        if not isinstance(value, str):
            raise FileFaultError(f"{key} must be one text", self.line(key))
        return value

    def texts(self, key: str) -> list[str]:
        """The texts of a list; one text is a list of one, and nothing an empty list.

        Raises:
            FileFaultError: The value is a mapping, or has others in it.
        """
        value = self.values.get(key, [])
        if isinstance(value, str):
            return [value] if value else []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return list(value)
        raise FileFaultError(f"{key} must be a list of texts", self.line(key))

    def mapping(self, key: str) -> dict[str, str]:
        """The texts of a mapping; empty if there is none.

        Raises:
            FileFaultError: The value is something else, or has something else in it.
        """
        value = self.values.get(key, {})
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return dict(value)
        if value == "":
            return {}
        raise FileFaultError(f"{key} must be a mapping of texts", self.line(key))

    def line(self, key: str) -> int:
        """The line of a key; 0 if there is none."""
        return self.lines.get(key, 0)


def scalar(text: str) -> str:
    """A text as a YAML scalar on one line, quoted unless no reader can take it for anything else."""
    if _PLAIN.fullmatch(text) and text.isprintable() and text.lower() not in _WORDS and ": " not in text:
        return text
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def written(pairs: Sequence[tuple[str, str | Sequence[str] | Mapping[str, str]]]) -> str:
    """Front matter with these keys in this order; empty values are left out."""
    lines = [FENCE]
    for key, value in pairs:
        if not value:
            continue
        if isinstance(value, str):
            lines.append(f"{key}: {scalar(value)}")
        elif isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines += [f"  {scalar(name)}: {scalar(value[name])}" for name in sorted(value)]
        else:
            lines.append(f"{key}:")
            lines += [f"  - {scalar(item)}" for item in value]
    return "\n".join([*lines, FENCE, ""])


def split(text: str) -> tuple[FrontMatter | None, str, int]:
    """The front matter of a file (``None`` if it has none), its body, and the line at which the body begins.

    Raises:
        FileFaultError: The front matter is not closed, or is no YAML that can be read.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return None, text, 1
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise FileFaultError("its front matter begins with '---' and is not closed by another such line", 1)
    head = text[opening.end() : closing.start()]
    return parsed(head), text[closing.end() :], head.count("\n") + 3


def parsed(head: str) -> FrontMatter:
    """What front matter says, without its two fences; its first line is line 2 of the file.

    Raises:
        FileFaultError: It is no mapping in YAML, or uses what is refused.
    """
    try:
        import yaml  # noqa: PLC0415 - the client alone comes without YAML
    except ImportError:
        raise FailedPreconditionError(
            f"Markdown with front matter is read with PyYAML: {install('cli')}", reason="YAML_MISSING"
        ) from None
    if len(head) > _MOST_CHARACTERS:
        raise FileFaultError(f"its front matter is longer than {_MOST_CHARACTERS:,} characters", 1)
    try:
        events = _events(yaml, head)
        first = next(events, None)
        if first is None or (isinstance(first, yaml.ScalarEvent) and not first.value):
            return FrontMatter()
        if not isinstance(first, yaml.MappingStartEvent):
            raise FileFaultError("its front matter must consist of 'key: value' lines", _line(first))
        lines: dict[str, int] = {}
        values = _mapping(yaml, events, lines)
        next(events, None)  # what follows the mapping is read as well: it may be no YAML
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise FileFaultError(f"its front matter is not YAML ({error.problem})", line) from None
    except yaml.YAMLError:
        raise FileFaultError("its front matter has a character that YAML does not allow", 1) from None
    return FrontMatter(values, lines)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 2


def _events(yaml: Any, head: str) -> Iterator[Any]:
    depth = 0
    for event in yaml.parse(head, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        if isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
                raise FileFaultError("anchors and aliases (& and *) are not read", _line(event))
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > _MOST_DEPTH:
                raise FileFaultError(f"its front matter is nested deeper than {_MOST_DEPTH} levels", _line(event))
            yield event
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            yield event


def _mapping(yaml: Any, events: Iterator[Any], lines: dict[str, int] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        if not isinstance(event, yaml.ScalarEvent):
            raise FileFaultError("a key must be a text", _line(event))
        key = str(event.value)
        if key in found:
            raise FileFaultError(f"the key {key[:70]!r} appears twice", _line(event))
        if lines is not None:
            lines[key] = _line(event)
        found[key] = _value(yaml, next(events), events)
    return found


def _value(yaml: Any, event: Any, events: Iterator[Any]) -> Value:
    if isinstance(event, yaml.MappingStartEvent):
        return _mapping(yaml, events)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        for item in events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            items.append(_value(yaml, item, events))
        return items
    return "" if event.implicit[0] and event.value in _NOTHING else str(event.value)
