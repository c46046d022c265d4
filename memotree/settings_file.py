"""Reads the TOML file of the settings: tables become names of settings, and ``${NAME}`` the text of a variable.

``[postgres]`` with ``url`` is the setting ``postgres_url``. A setting whose value is itself a table takes what is below
its name as it is.
"""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from memotree_storage.errors import FieldViolation

MOST_BYTES: Final = 2**18
"""The most bytes of the file; it is read whole, at each start and by most commands."""

_MOST_LINES: Final = 100
"""The most lines of one value for which the lines of what follows are still counted."""

_DEEPEST: Final = 8
"""Tables within tables are looked into up to this depth; no setting's name has as many parts."""

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")

_Keys: TypeAlias = tuple[str, ...]


class UnreadableFileError(Exception):
    """The file is no TOML, or cannot be read; the message goes on after its name."""


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value of the file.

    Attributes:
        value: The value, with variables filled in.
        place: Where it stands, such as ``postgres.url in memotree.toml, line 3``.
        written: The text as it stands in the file, if it names variables; else empty.
        inner: For a table, where each key within it stands, by the names of the keys.
    """

    value: Any
    place: str
    written: str = ""
    inner: Mapping[_Keys, str] = field(default_factory=dict)


@dataclass(slots=True)
class SettingsFile:
    """What a file gives, and what is wrong with it.

    Attributes:
        values: The values by the name of the setting; a name that no setting has stands for itself.
        faults: Settings that are given twice, and variables that are not set.
    """

    values: dict[str, FileValue] = field(default_factory=dict)
    faults: list[FieldViolation] = field(default_factory=list)


def read_settings_file(
    path: Path,
    settings: Collection[str],
    tables: Collection[str],
    environment: Mapping[str, str],
    only: Collection[str] = (),
) -> SettingsFile:
    """Read the file.

    Args:
        path: The file.
        settings: The names of all settings.
        tables: The names of those whose value is a table.
        environment: The variables that values may name.
        only: The settings to read; all that the file has if empty.

    Raises:
        FileNotFoundError: There is no file.
        UnreadableFileError: It cannot be read as TOML.
    """
    text = _text(path)
    try:
        document = tomllib.loads(text)
        return _Reading(path, settings, tables, environment, _lines(text)).read(document, only)
    except ValueError as error:
        raise UnreadableFileError(f"cannot be read as TOML: {error}") from None
    except RecursionError:
        raise UnreadableFileError("cannot be read: its values are nested too deeply") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UnreadableFileError(f"is larger than {MOST_BYTES // 1024} KiB; settings need less")
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"cannot be read as TOML: {error}") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFileError(f"cannot be read as TOML: {error.strerror}") from None


class _Reading:
    """The reading of one file."""

    def __init__(
        self,
        path: Path,
        settings: Collection[str],
        tables: Collection[str],
        environment: Mapping[str, str],
        lines: Mapping[_Keys, int],
    ) -> None:
        self._path = path
        self._settings = settings
        self._tables = tables
        self._environment = environment
        self._lines = lines
        self._found = SettingsFile()

    def read(self, document: Mapping[str, Any], only: Collection[str]) -> SettingsFile:
        """Take the values of the document."""
        first: dict[str, _Keys] = {}
        for keys, value in self._leaves(document):
            name = "_".join(keys)
            if only and name not in only:
                continue
            place = self._place(keys)
            if name in first:
                self._fault(place, f"is the same setting as {_written(first[name])}; give it once")
                continue
            first[name] = keys
            faults = len(self._found.faults)
            filled = self._filled(value, keys)
            if len(self._found.faults) == faults:
                shown = "" if filled == value else json.dumps(value, ensure_ascii=False, default=str)
                self._found.values[name] = FileValue(filled, place, shown, self._inner(keys, filled))
        return self._found

    def _leaves(self, document: Mapping[str, Any]) -> Iterator[tuple[_Keys, Any]]:
        """Yield the keys of each setting with its value, in the order of the file."""
        waiting: list[tuple[_Keys, Any]] = [((), document)]
        while waiting:
            keys, value = waiting.pop()
            name = "_".join(keys)
            if not isinstance(value, dict) or name in self._tables or len(keys) == _DEEPEST:
                yield keys, value
            elif value:
                waiting += [((*keys, key), inner) for key, inner in reversed(value.items())]
            elif keys and not any(setting.startswith(f"{name}_") for setting in self._settings):
                yield keys, value  # an empty table of no setting: its name is refused

    def _inner(self, keys: _Keys, value: Any) -> dict[_Keys, str]:
        """The place of each key of a table."""
        if not isinstance(value, dict):
            return {}
        return {inner: self._place((*keys, *inner)) for inner in _keys(value)}

    def _filled(self, value: Any, keys: _Keys) -> Any:
        """A value with the texts of the variables that it names."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._text_of(match, keys), value)
        if isinstance(value, list):
            return [self._filled(each, keys) for each in value]
        if isinstance(value, dict):
            return {key: self._filled(each, (*keys, key)) for key, each in value.items()}
        return value

    def _text_of(self, match: re.Match[str], keys: _Keys) -> str:
        name, place = match[1], self._place(keys)
        if match[0] == "$${":
            return "${"
        if name is None:
            self._fault(place, "has ${ without the name of a variable and }; write $${ for these signs themselves")
            return ""
        text = self._environment.get(name, "")
        if not text:
            self._fault(place, f"names the variable {name}, which is not set; set it, or write $${{ for a plain ${{")
        return text

    def _fault(self, place: str, description: str) -> None:
        self._found.faults.append(FieldViolation(place, description))

    def _place(self, keys: _Keys) -> str:
        line = next((self._lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in self._lines), 0)
        return f"{_written(keys)} in {self._path}" + (f", line {line}" if line else "")


def _written(keys: _Keys) -> str:
    """Keys as they are written in TOML with dots."""
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys)


def _lines(text: str) -> dict[_Keys, int]:
    """The first line of each key and table of a valid document, from 1; the module ``tomllib`` tells none.

    Each statement is parsed by itself: a line, or as many as a value with line breaks needs.
    """
    found: dict[_Keys, int] = {}
    table: _Keys = ()
    statement, begin = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not statement and line.lstrip().startswith("["):
            *outer, table = _keys(tomllib.loads(line))
            for keys in (*outer, table):
                found.setdefault(keys, number)
            continue
        begin = begin if statement else number
        statement += f"{line}\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            if number - begin >= _MOST_LINES:
                break
            continue
        for keys in _keys(parsed):
            found.setdefault((*table, *keys), begin)
        statement = ""
    return found


def _keys(document: Mapping[str, Any]) -> Iterator[_Keys]:
    """Yield the keys of the tables and values of a document, outer ones first."""
    waiting: list[tuple[_Keys, Any]] = [((), document)]
    while waiting:
        keys, value = waiting.pop()
        if keys:
            yield keys
        if isinstance(value, dict) and len(keys) < _DEEPEST:
            waiting += [((*keys, key), inner) for key, inner in value.items()]
