"""Edits one entry of another program's settings file, JSON or TOML, and leaves everything else in it as it is."""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from memotree.cli.errors import CliError


class SettingsFileError(CliError):
    """The file cannot be read, or is not what the program's documentation says."""

    reason = "SETTINGS_FILE"


def edited(path: Path, table: str, name: str, entry: Mapping[str, Any] | None) -> tuple[str, str]:
    """The text of a settings file before and after one entry of a table is set (``None``: removed).

    A file that does not exist is empty before. Comments of a TOML file stay.

    Raises:
        SettingsFileError: The file is not valid, so nothing can be changed in it safely.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} cannot be read ({error}); nothing was changed.") from None
    try:
        after = (_toml if path.suffix == ".toml" else _json)(before, table, name, entry)
    except (ValueError, TypeError) as error:
        raise SettingsFileError(
            f"{path} cannot be changed safely: {error}. Add the entry by hand; --print shows it."
        ) from None
    return before, after


def entry_text(path: Path, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The entry alone, as it would stand in a new file of this kind."""
    return (_toml if path.suffix == ".toml" else _json)("", table, name, entry)


def write(path: Path, text: str) -> None:
    """Write the file as a whole, or leave it as it was; its permissions stay.

    Raises:
        SettingsFileError: It cannot be written.
    """
    real = path.resolve()  # a link to a file elsewhere stays a link
    fresh = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        with suppress(FileNotFoundError):
            fresh.chmod(stat.S_IMODE(real.stat().st_mode))
        fresh.replace(real)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise SettingsFileError(f"{path} cannot be written: {error.strerror}. Nothing was changed.") from None


def is_empty(path: Path, text: str) -> bool:
    """Whether a file of this kind with this text has no setting and no comment."""
    return text.strip() in ("", "" if path.suffix == ".toml" else "{}")


def delete(path: Path) -> None:
    """Delete a file in which nothing is left.

    Raises:
        SettingsFileError: It cannot be deleted.
    """
    try:
        path.unlink()
    except OSError as error:
        raise SettingsFileError(f"{path} cannot be deleted: {error.strerror}. Nothing was changed.") from None


def _json(before: str, table: str, name: str, entry: Mapping[str, Any] | None) -> str:
    document = json.loads(before) if before.strip() else {}
    if not isinstance(document, dict) or not isinstance(document.setdefault(table, {}), dict):
        raise TypeError(f"{table} is not an object")
    _set(document[table], name, entry)
    if entry is None and not document[table]:
        del document[table]
    return json.dumps(document, ensure_ascii=False, indent=_indent(before)) + "\n"


def _indent(text: str) -> int | str:
    """The indentation of the first indented line; two blanks in a new file."""
    for line in text.splitlines():
        blanks = line[: len(line) - len(line.lstrip())]
        if blanks and line.strip():
            return blanks
    return 2


def _toml(before: str, table: str, name: str, entry: Mapping[str, Any] | None) -> str:
    import tomlkit  # noqa: PLC0415 - only this command needs it
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - likewise

    try:
        document = tomlkit.parse(before)
        servers: Any = document.setdefault(table, tomlkit.table(is_super_table=True))
        if not isinstance(servers, dict):
            raise TypeError(f"{table} is not a table")
        _set(servers, name, entry)
        if entry is None and not servers:
            del document[table]
        text = tomlkit.dumps(document)
        return f"{text.rstrip()}\n" if entry is None and text.strip() else text
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _set(servers: Any, name: str, entry: Mapping[str, Any] | None) -> None:
    if entry is None:
        servers.pop(name, None)
    else:
        servers[name] = dict(entry)
