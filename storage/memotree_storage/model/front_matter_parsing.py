"""Front matter: a mapping whose values are strings, lists of strings and mappings of strings, read from YAML.

The form that the codec writes is parsed line by line; any other YAML goes through PyYAML's events. Both parsers give
the same result for files that the codec wrote. All values are strings: ``id: 12e4`` is a text.
"""

import re
from collections.abc import Iterator
from typing import Final

import yaml

from memotree_storage.model.scalars import read_scalar

Tree = dict[str, "str | list[str] | dict[str, str]"]
"""Strings, lists of strings and mappings of strings, by key."""

MAX_FOREIGN_CHARS: Final = 4 << 20
"""The maximum length of front matter that is not in canonical form; canonical front matter may have any length."""

MAX_LINES: Final = 10_000
"""The maximum number of lines of front matter that is longer than that; canonical front matter has far fewer."""

_KEY: Final = re.compile(r"[a-z][a-z0-9]*")
_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MAX_DEPTH: Final = 2


class FrontMatterError(ValueError):
    """The text is not valid front matter; the message is a clause that says where and why."""


def parse_front_matter(text: str) -> Tree:
    """Parse front matter.

    Raises:
        FrontMatterError: The text is not YAML, repeats a key, nests deeper than a list or mapping in a mapping, or uses
            anchors, aliases or tags.
    """
    if len(text) > MAX_FOREIGN_CHARS and text.count("\n") > MAX_LINES:
        raise FrontMatterError(
            f"its front matter has more than {MAX_FOREIGN_CHARS} characters and more than {MAX_LINES} lines"
        )
    tree = _parse_canonical(text)
    return _parse_yaml(text) if tree is None else tree


def _parse_canonical(text: str) -> Tree | None:
    """Parse the form that the codec writes; ``None`` if any line has another form."""
    tree: Tree = {}
    lines = text.removesuffix("\n").split("\n")
    index = 0
    value: str | list[str] | dict[str, str] | None
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.endswith(":") and _KEY.fullmatch(line, 0, len(line) - 1):
            first = index
            while index < len(lines) and lines[index].startswith("  "):
                index += 1
            key, value = line[:-1], _read_block(lines[first:index])
        else:
            pair = _read_pair(line)
            if pair is None:
                return None
            key, value = pair
        if value is None or key in tree:
            return None
        tree[key] = value
    return tree


def _read_block(lines: list[str]) -> list[str] | dict[str, str] | None:
    """The lines below a key: list items, or key-value pairs."""
    if not lines:
        return None
    if lines[0].startswith("  - "):
        items = [read_scalar(line[4:]) if line.startswith("  - ") else None for line in lines]
        texts = [item for item in items if item is not None]
        return texts if len(texts) == len(items) else None
    pairs = [pair for line in lines if (pair := _read_pair(line[2:])) is not None]
    fields = dict(pairs)
    return fields if len(fields) == len(lines) else None


def _read_pair(text: str) -> tuple[str, str] | None:
    if text.startswith('"'):
        left, separator, right = text.partition('": ')
        left += '"'
    else:
        left, separator, right = text.partition(": ")
    key, value = read_scalar(left), read_scalar(right)
    return None if not separator or key is None or value is None else (key, value)


# --- Any other YAML --------------------------------------------------------------------------------------------------


def _parse_yaml(text: str) -> Tree:
    if len(text) > MAX_FOREIGN_CHARS:
        raise FrontMatterError(f"its front matter is longer than {MAX_FOREIGN_CHARS} characters")
    try:
        events = _content_events(text)
        first = next(events, None)
        if first is None or (isinstance(first, yaml.ScalarEvent) and not first.value):
            return {}
        if not isinstance(first, yaml.MappingStartEvent):
            raise _fault(first, "the front matter must be a mapping of 'key: value' lines")
        tree = {key: _read_value(event, events) for key, event in _pairs(events)}
        next(events, None)  # also read what follows the mapping, since it could be a second document
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 2}: " if error.problem_mark else ""
        raise FrontMatterError(f"its front matter is not YAML ({line}{error.problem})") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # a character or an escape that no string can hold
        if isinstance(error, FrontMatterError):
            raise
        raise FrontMatterError("its front matter has a character that YAML does not allow") from error
    return tree


def _content_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of one document; refuse every feature of YAML besides strings, lists and mappings."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _fault(event, "a second document starts inside the front matter")
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
                raise _fault(event, "anchors and aliases (& and *) are not allowed")
            if getattr(event, "tag", None) is not None:
                raise _fault(event, "YAML tags (!) are not allowed")
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > _MAX_DEPTH:
                raise _fault(event, "lists and mappings may not be nested here")
            yield event
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            yield event


def _pairs(events: Iterator[yaml.Event]) -> Iterator[tuple[str, yaml.Event]]:
    """Yield the keys of the mapping that was just opened, each with the first event of its value."""
    seen = set()
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        if not isinstance(event, yaml.ScalarEvent):
            raise _fault(event, "a key must be a text")
        if event.value in seen:
            raise _fault(event, f"the key {event.value[:70]!r} appears twice")
        seen.add(event.value)
        yield event.value, next(events)


def _read_value(event: yaml.Event, events: Iterator[yaml.Event]) -> str | list[str] | dict[str, str]:
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        for item in events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            items.append(_read_text(item))
        return items
    if isinstance(event, yaml.MappingStartEvent):
        return {key: _read_text(value) for key, value in _pairs(events)}
    return _read_text(event)


def _read_text(event: yaml.Event) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise _fault(event, "a text is expected here")
    return str(event.value)


def _fault(event: yaml.Event, description: str) -> FrontMatterError:
    mark = event.start_mark
    return FrontMatterError(f"line {mark.line + 2}: {description}" if mark else description)
