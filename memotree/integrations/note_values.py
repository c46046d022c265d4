"""JSON values as notes that people read: the longest text of a value is the note's text, the rest a block of JSON.

The value ``{"text": "Ada prefers tea.", "score": 3}`` becomes this content::

    Ada prefers tea.

    ```json
    {
      "score": 3,
      "text": null
    }
    ```

and the attribute ``_text_at`` with the JSON Pointer ``/text``, which says where the text belongs. So each value comes
back exactly, a person can change its text in any other way that MemoTree offers, and recall finds it by its text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memotree.client import Node

TEXT_AT: Final = "_text_at"
"""The attribute with the JSON Pointer (RFC 6901) of the text within the value."""

_OPENING: Final = "\n\n```json\n"
_CLOSING: Final = "\n```"
_PROSE: Final = frozenset({"text", "content", "data", "memory", "fact", "summary", "description", "output"})
"""The names of fields that hold a text even if that is a single word."""

_NOT_IN_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_TITLE_CHARS: Final = 80

_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class NoteText:
    """A value as content and attributes of a note; ``text`` is its longest text, "" without one."""

    content: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)


def to_note(value: Mapping[str, Any]) -> NoteText:
    """Returns a value as a note.

    Raises:
        TypeError: If JSON has no form of the value.
    """
    plain = json.loads(json.dumps(value))
    path, text = max(_texts(plain), key=lambda found: len(found[1]), default=((), ""))
    if not path:
        return NoteText(_written(plain))
    _put(plain, path, None)
    is_all = plain == {path[0]: None} and not text.rstrip().endswith("```")
    content = text if is_all else f"{text}{_OPENING}{_written(plain)}{_CLOSING}"
    return NoteText(content, text, {TEXT_AT: _pointer(path)})


def from_note(node: Node) -> dict[str, Any]:
    """Returns the value of a note; a content that a person changed beyond recognition is a single text."""
    pointer = node.attributes.get(TEXT_AT, "")
    text, opening, rest = node.content.rpartition(_OPENING)
    if not pointer:
        text, rest = "", node.content
    elif not (opening and node.content.endswith(_CLOSING)):
        return _nested(pointer, node.content)
    try:
        value = json.loads(rest.removesuffix(_CLOSING))
        if pointer:
            _put(value, _path(pointer, value), text)
    except (ValueError, LookupError, TypeError):
        value = None
    return value if isinstance(value, dict) else {"text": node.content}


def one_line(text: str, most: int = _TITLE_CHARS) -> str:
    """Returns the beginning of a text as one line, cut between words where that is possible."""
    line = " ".join(_NOT_IN_LINE.sub(" ", text[: 4 * most]).split())
    if len(line) <= most:
        return line
    kept = line[: most - 1]
    return f"{kept.rpartition(' ')[0] or kept}…"


def one_word(text: str) -> str:
    """Returns a text as one line that `from_word` reads back: itself, or a JSON string if it would not survive."""
    is_plain = text and text == text.strip() and text[0] not in '"[' and not _NOT_IN_LINE.search(text)
    return text if is_plain else json.dumps(text)


def from_word(word: str) -> str:
    """Reads what `one_word` wrote."""
    return str(json.loads(word)) if word.startswith('"') else word


def _texts(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Every string that may be the text of a note: prose, not a name or an id."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _texts(inner, (*path, name))
        case list():
            for index, inner in enumerate(value):
                yield from _texts(inner, (*path, index))
        case str() if path and value.strip() and not _NOT_IN_TEXT.search(value):
            named = next((name for name in reversed(path) if isinstance(name, str)), "")
            if named in _PROSE or " " in value.strip():
                yield path, value


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return json.dumps(value, indent=2, sort_keys=True) if _NOT_IN_TEXT.search(text) else text


def _put(value: Any, path: _Path, inner: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = inner


def _pointer(path: _Path) -> str:
    return one_word("".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path))


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in from_word(pointer).split("/")[1:]]


def _path(pointer: str, value: Any) -> _Path:
    found: list[str | int] = []
    for step in _steps(pointer):
        found.append(int(step) if isinstance(value, list) else step)
        value = value[found[-1]]
    return tuple(found)


def _nested(pointer: str, text: str) -> dict[str, Any]:
    return {(_steps(pointer) or ["text"])[0]: text}
