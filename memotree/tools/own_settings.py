"""What the settings of a server say to a tool of another package: its table ``tools.custom.NAME``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_CURRENT: ContextVar[Mapping[str, Any]] = ContextVar("settings", default=_NONE)


def settings() -> Mapping[str, Any]:
    """The settings of the tool that is called now, beside ``enabled`` and ``timeout``; empty if there are none."""
    return _CURRENT.get()


@contextmanager
def given_settings(values: Mapping[str, Any]) -> Iterator[None]:
    """Context manager in which a tool reads these settings."""
    token = _CURRENT.set(MappingProxyType(dict(values)))
    try:
        yield
    finally:
        _CURRENT.reset(token)
