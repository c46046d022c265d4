"""Builds the document of a conversation: each turn is a line of the text, each session or day a section."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree.forest.documents.canonical import canonical_text, one_line, told_of_unfit, unfit_characters
from memotree.forest.documents.dates import day_of
from memotree.forest.documents.document import (
    Document,
    EmptyDocumentError,
    TooDeepDocumentError,
    Turn,
    UnreadableDocumentError,
    quoted,
)
from memotree.forest.documents.kinds import CONVERSATION
from memotree.forest.documents.outline import Heading, nest

_SPEAKER_CHARS: Final = 200
_FIELD_CHARS: Final = 500
_TEXT_KEYS: Final = ("text", "content", "utterance")
_SPEAKER_KEYS: Final = ("speaker", "role", "name", "author", "user", "from")
_TIME_KEYS: Final = ("time", "timestamp", "date", "created_at", "ts")
_ID_KEYS: Final = ("id", "turn_id", "dia_id", "uuid")
_SESSION_KEYS: Final = ("session", "session_id")
_LIST_KEYS: Final = ("turns", "messages", "conversation")


class InvalidTurnsError(UnreadableDocumentError):
    """The JSON does not hold a list of turns."""

    reason = "INVALID_TURNS"

    def __init__(self, name: str, line: int, fault: str) -> None:
        super().__init__(
            f"{quoted(name)} is not a conversation: line {line} {fault}; give a JSON list of objects with 'speaker',"
            " 'text' and, if known, 'time', 'id' and 'session', or one such object per line."
        )
        self.line = line


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """One turn as the caller gives it: speaker, words and time; ``id`` and ``session`` are the caller's own names."""

    speaker: str
    text: str
    time: str = ""
    id: str = ""
    session: str = ""


def conversation(turns: Iterable[SpokenTurn], *, name: str = "", title: str = "") -> Document:
    """Returns the document of a conversation.

    A turn becomes ``speaker: words`` and a line break. The words stay as they are; the speaker is put on one line of at
    most 200 characters, with a warning if that changes it. A new section starts when the session of the turns changes
    or, for turns without a session, when the day of their time changes. A turn with neither session nor day belongs to
    the section before it.

    Args:
        turns: In order. A turn without words is left out, with a warning.
        name: The name of the document, for messages.
        title: The title of the conversation.

    Raises:
        EmptyDocumentError: If no turn has words.
    """
    parts: list[str] = []
    placed: list[Turn] = []
    headings: list[Heading] = []
    length, silent, renamed, current = 0, 0, 0, ""
    unfit: Counter[str] = Counter()
    for turn in turns:
        words = canonical_text(turn.text)
        unfit += unfit_characters(turn.text)
        if not words.strip():
            silent += 1
            continue
        speaker = one_line(turn.speaker, _SPEAKER_CHARS)
        renamed += speaker != turn.speaker
        time, key, session = (one_line(value, _FIELD_CHARS) for value in (turn.time, turn.id, turn.session))
        line = f"{speaker}: {words}\n" if speaker else f"{words}\n"
        part = session or day_of(time)
        if part and part != current:
            headings.append(Heading(_section_title(session, time), 1, length))
            current = part
        placed.append(Turn(length, length + len(line), speaker, time, key, session))
        parts.append(line)
        length += len(line)
    if not placed:
        raise EmptyDocumentError(name)
    warnings = told_of_unfit(unfit)
    if silent:
        warnings += (f"{silent} turns without words were left out.",)
    if renamed:
        warnings += (f"The speakers of {renamed} turns were put on one line, or shortened.",)
    text = "".join(parts)
    outline = nest(headings, text)
    return Document(text, CONVERSATION, one_line(title), outline, (), tuple(placed), "", warnings)


def _section_title(session: str, time: str) -> str:
    day = day_of(time)
    if not session:
        return day
    return f"{session}, {day}" if day and day not in session else session


# --- JSON ------------------------------------------------------------------------------------------------------------


def parse_turns(text: str, *, name: str = "", by_line: bool = False) -> Document | None:
    """Returns the conversation that a JSON text holds, or ``None`` if the JSON holds something else.

    Args:
        text: A list of turns, an object with such a list under ``turns`` or ``messages`` (and maybe a ``title``), or
            one turn per line.
        name: The name of the document.
        by_line: Whether each line is a turn.

    Raises:
        InvalidTurnsError: If the JSON is broken, or the list begins with a turn and goes on with something else.
        TooDeepDocumentError: If the JSON is nested too deep to parse.
        EmptyDocumentError: If no turn has words.
    """
    try:
        if by_line:
            return _from_list(name, list(_lines(text, name)), "")
        return _from_value(name, json.loads(text))
    except json.JSONDecodeError as error:
        fault = f"(column {error.colno}) is not JSON: {error.msg}"
        raise InvalidTurnsError(name, error.lineno, fault) from error
    except ValueError as error:  # Python reads no number of thousands of digits
        raise InvalidTurnsError(name, 1, "and those after it have a number that is too long") from error
    except RecursionError as error:
        raise TooDeepDocumentError(name, "JSON nested too deep for a conversation", "a flat list of turns") from error


def _lines(text: str, name: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines() if "\n" not in text else text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidTurnsError(name, number, f"(column {error.colno}) is not JSON: {error.msg}") from error
        except ValueError as error:
            raise InvalidTurnsError(name, number, "has a number that is too long") from error


def _from_value(name: str, value: Any) -> Document | None:
    title = ""
    if isinstance(value, Mapping):
        title = _scalar(value, ("title",))
        value = next((value[key] for key in _LIST_KEYS if isinstance(value.get(key), list)), None)
    if not isinstance(value, list):
        return None
    return _from_list(name, [(0, item) for item in value], title)


def _from_list(name: str, items: Sequence[tuple[int, Any]], title: str) -> Document | None:
    if items and not _is_turn(items[0][1]):
        return None
    turns = []
    for index, (line, item) in enumerate(items, 1):
        if not _is_turn(item):
            raise InvalidTurnsError(name, line or 1, f"has no text in turn {index}")
        turns.append(
            SpokenTurn(
                _scalar(item, _SPEAKER_KEYS),
                _words(item),
                _scalar(item, _TIME_KEYS),
                _scalar(item, _ID_KEYS),
                _scalar(item, _SESSION_KEYS),
            )
        )
    return conversation(turns, name=name, title=title)


def _is_turn(item: Any) -> bool:
    return isinstance(item, Mapping) and any(isinstance(item.get(key), str | list) for key in _TEXT_KEYS)


def _words(item: Mapping[str, Any]) -> str:
    value = next(item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str | list))
    if isinstance(value, str):
        return value
    parts = (part if isinstance(part, str) else _scalar(part, ("text",)) for part in value)
    return "\n".join(part for part in parts if part)


def _scalar(item: Any, keys: Sequence[str]) -> str:
    if not isinstance(item, Mapping):
        return ""
    for key in keys:
        value = item.get(key)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    return ""
