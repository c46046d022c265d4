"""The settings as ``memotree config show`` shows them: each with its value and its source, and no secret."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from memotree.setting_types import has_password, written
from memotree.settings import TABLES, LoadedSettings, Settings

HIDDEN: Final = "***"

_SECRET_KEY: Final = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
"""Keys of a table whose texts are hidden; what a table may hold is not always known."""


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting as it is shown.

    Attributes:
        name: The setting.
        value: Its value as JSON, sizes in bytes; ``None`` for none, ``***`` for a secret.
        text: Its value for a person.
        source: Who gives it.
        place: Where: the variable, or the key with its file and line; empty for a default.
    """

    name: str
    value: Any
    text: str
    source: Literal["default", "argument", "environment", "file"]
    place: str


def shown_settings(loaded: LoadedSettings) -> list[ShownSetting]:
    """All settings, in the order of their definition."""
    return [shown_setting(loaded, name) for name in Settings.model_fields]


def shown_setting(loaded: LoadedSettings, name: str) -> ShownSetting:
    """One setting."""
    value, given = getattr(loaded.settings, name), loaded.given.get(name)
    plain = _plain(value)
    text = _text(name, value, plain)
    return ShownSetting(name, plain, text, "default" if given is None else given.source, given.place if given else "")


def _text(name: str, value: Any, plain: Any) -> str:
    if plain is None or plain == "":
        return "none"
    if name in TABLES:
        return json.dumps(plain, ensure_ascii=False)
    return written(value) if isinstance(value, int) else str(plain)


def _plain(value: Any) -> Any:
    """A value as JSON, without its secrets."""
    if isinstance(value, BaseModel):  # with what was given alone
        return _plain({key: each for key, each in value if key in value.model_fields_set})
    if isinstance(value, Mapping):
        return {key: _hidden(each) if _SECRET_KEY.search(str(key)) else _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, str):
        return _without_password(value)
    return written(value) if isinstance(value, (Path, timedelta)) else value


def _hidden(value: Any) -> Any:
    """The value of a key that seems to be a secret; a number or ``true`` is none."""
    return HIDDEN if isinstance(value, str) and value else _plain(value)


def _without_password(text: str) -> str:
    """A text; of a URL with a password or a query, which may have a key, only what comes before and between."""
    if "://" not in text:
        return text
    if has_password(text):
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        text = parts._replace(netloc=f"{HIDDEN}@{host}").geturl()
    before, mark, _ = text.partition("?")
    return f"{before}{mark}{HIDDEN}" if mark else text
