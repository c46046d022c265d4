"""Reads the settings: what code gives, the environment, the TOML file; every fault is told with its place."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from memotree_storage.errors import FieldViolation, InvalidInputError
from pydantic import BaseModel, ValidationError

from memotree import environment
from memotree.environment import CONFIG_VARIABLE, variable
from memotree.setting_types import has_password
from memotree.settings.fields import Settings
from memotree.settings_file import UnreadableFileError, read_settings_file

CONFIG_NAME: Final = "memotree.toml"


class InvalidSettingsError(InvalidInputError):
    """The server cannot start with these settings; the message has one line for each fault."""

    reason = "INVALID_SETTINGS"

    def __init__(self, violations: list[FieldViolation]) -> None:
        lines = [f"  {violation.field}: {violation.description}" for violation in violations]
        super().__init__("\n".join(["The settings need a change before MemoTree can start:", *lines]), violations)


def config_path() -> Path:
    """The TOML file: the one that ``MEMOTREE_CONFIG`` names, else ``memotree.toml`` in the working folder."""
    return Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_NAME)


@dataclass(frozen=True, slots=True)
class Given:
    """A value of a setting, and where it was given.

    Attributes:
        value: The value as it was given.
        source: ``argument``, ``environment`` or ``file``.
        place: The name of the argument or variable, or the key with its file and line.
        written: The text in the file, if it names variables that the value was made of; else empty.
        inner: For a table in the file, where each key within it stands, by the names of the keys.
    """

    value: Any
    source: Literal["argument", "environment", "file"]
    place: str
    written: str = ""
    inner: Mapping[tuple[str, ...], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and where their values were given.

    Attributes:
        settings: The settings.
        given: What was given, by setting; the others have their default.
        file: The file that was read; ``None`` if there was none.
    """

    settings: Settings
    given: Mapping[str, Given]
    file: Path | None

    def place(self, name: str, *keys: str) -> str:
        """Where to change a setting, or a key within its table: where it was given, else its environment variable."""
        return _place(name, self.given, keys)


def load_settings(*, only: Collection[str] = (), **given: Any) -> Settings:
    """The settings of this process; values that are ``None`` count as not given.

    Args:
        only: The settings to load, for a program that needs no others: they keep their defaults, and their faults do
            not matter. All if empty.
        given: Values that win over the environment and the file.

    Raises:
        InvalidSettingsError: Some values are wrong; each line names one fault and where its value was given.
    """
    return read_settings(only=only, **given).settings


def read_settings(config_file: Path | None = None, /, *, only: Collection[str] = (), **given: Any) -> LoadedSettings:
    """The settings of this process, and where their values were given.

    Args:
        config_file: The TOML file, which must exist; when not given, that of ``config_path``.
        only: The settings to read, as for ``load_settings``.
        given: Values that win over the environment and the file; ``None`` counts as not given.

    Raises:
        InvalidSettingsError: Some values are wrong; each line names one fault and where its value was given.
    """
    path = config_file or config_path()
    missing = None
    if config_file is not None:
        missing = FieldViolation(str(path), "there is no such file; name one that exists")
    elif CONFIG_VARIABLE in os.environ:
        missing = FieldViolation(
            CONFIG_VARIABLE, f"there is no file {path}; name one that exists, or unset the variable"
        )
    found, faults = _from_file(path, missing, only)
    values = {} if found is None else dict(found)
    values |= {name: each for name, each in _from_environment().items() if not only or name in only}
    values |= {name: Given(value, "argument", name) for name, value in given.items() if value is not None}
    try:
        settings = Settings(**{name: each.value for name, each in values.items()})
    except ValidationError as error:
        # settings may seem to contradict each other only because one was left out for a fault of its own
        details = [detail for detail in error.errors(include_url=False) if detail["loc"] or not faults]
        faults += [fault for detail in details for fault in _faults(detail, values)]
    if faults:
        raise InvalidSettingsError(faults)
    return LoadedSettings(settings, values, None if found is None else path)


def _from_file(
    path: Path, missing: FieldViolation | None, only: Collection[str]
) -> tuple[dict[str, Given] | None, list[FieldViolation]]:
    """What the file gives (``None`` if there is none), and its faults; ``missing`` is the fault that there is none.

    Raises:
        InvalidSettingsError: It cannot be read.
    """
    try:
        found = read_settings_file(path, Settings.model_fields, TABLES, os.environ, only)
    except FileNotFoundError:
        if missing is None:
            return None, []
        raise InvalidSettingsError([missing]) from None
    except UnreadableFileError as error:
        raise InvalidSettingsError([FieldViolation(str(path), str(error))]) from None
    values = {
        name: Given(each.value, "file", each.place, each.written, each.inner) for name, each in found.values.items()
    }
    return values, found.faults


def _from_environment() -> dict[str, Given]:
    """All non-empty variables with our prefix; an unknown one keeps its name and is refused as an unknown setting."""
    known = {variable(name): name for name in Settings.model_fields}
    found = ((known.get(name, name), name, text) for name, text in environment.given(os.environ))
    return {
        setting: Given(_parsed(text) if setting in TABLES else text, "environment", name)
        for setting, name, text in found
    }


def _parsed(text: str) -> object:
    """The value of a setting that takes a table; what is no JSON stays as it is, and is refused as a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _faults(detail: Mapping[str, Any], given: Mapping[str, Given]) -> Iterator[FieldViolation]:
    """Yield the faults of one pydantic error in our own words; the value of a secret is never included."""
    if not detail["loc"]:  # a fault of several settings together
        for line in str(detail["ctx"]["error"]).splitlines():
            name, _, rest = line.partition(" ")
            yield FieldViolation(_place(name, given), rest)
        return
    name, *inner = map(str, detail["loc"])
    if detail["type"] == "extra_forbidden" and not inner:
        yield FieldViolation(_place(name, given), environment.no_such(name, Settings.model_fields))
        return
    own = detail.get("ctx", {}).get("error")
    fault = str(own) if own is not None else str(detail["msg"]).removeprefix("Input ")
    known = inner[: max((end for end in range(len(inner) + 1) if tuple(inner[:end]) in _inner(name, given)), default=0)]
    within = f"{'.'.join(inner[len(known) :])}: " if name in TABLES and len(known) < len(inner) else ""
    if detail["type"] == "extra_forbidden":
        fault = "there is no such setting"
    yield FieldViolation(_place(name, given, known), within + fault + _shown(name, detail["input"], given))


def _shown(name: str, value: object, given: Mapping[str, Given]) -> str:
    """A wrong value in brackets, unless it may be a secret; of one made of variables, what the file says."""
    if name in SECRETS or name in TABLES or has_password(value):
        return ""  # a table may have secrets of its own
    written = given[name].written if name in given else ""
    return f" (it is {written or repr(value)})"


def _takes_table(annotation: Any) -> bool:
    """Whether values of a type are written as tables."""
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, (BaseModel, Mapping)):
        return True
    return any(_takes_table(each) for each in get_args(annotation))


TABLES: Final = frozenset(name for name, field in Settings.model_fields.items() if _takes_table(field.annotation))
"""The settings whose value is a table; in an environment variable it is written as JSON."""

SECRETS: Final = frozenset(
    name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)
)
"""The settings whose value is never shown."""


def _inner(name: str, given: Mapping[str, Given]) -> Mapping[tuple[str, ...], str]:
    return given[name].inner if name in given else {}


def _place(name: str, given: Mapping[str, Given], keys: Sequence[str] = ()) -> str:
    """Where the value to change was given: an argument, a key of the TOML file, or an environment variable."""
    return _inner(name, given).get(tuple(keys)) or (given[name].place if name in given else variable(name))
