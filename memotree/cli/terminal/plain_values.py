"""Reads plain values of arguments and options without pydantic, whose import takes as long as a call to the server.

Typer reads each value with a validator of pydantic, also a text as it is. Here texts, defaults, whole numbers and the
words of choices are read directly; everything else, and all that is wrong, is left to Typer, so its messages stay.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, get_args, get_origin

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_UNREAD: Final = object()


def read_plainly(parameter: Any) -> None:
    """Makes a parameter of Typer read plain values directly, unless it has a parser of its own; safe to repeat."""
    if parameter.type_descriptor.parameter_info.parser is None and "get_runtime_param" not in vars(parameter):
        reading = _Reading(parameter)
        parameter.get_runtime_param = lambda: reading


class _Reading:
    """What Typer calls to read the values of a parameter."""

    def __init__(self, parameter: Any) -> None:
        self._kind = parameter.type_descriptor.annotation
        self._info = parameter.type_descriptor.parameter_info
        self._by_typer: Callable[[], Any] = parameter.get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command takes it.

        Raises:
            typer.BadParameter: It is none of the parameter's kind.
        """
        read = self._several(value) if param.multiple or param.nargs == -1 else self._one(self._kind, value)
        return self._by_typer().coerce(value, param=param, ctx=ctx) if read is _UNREAD else read

    def _several(self, values: Any) -> Any:
        if values is None:
            return ()
        if not isinstance(values, (list, tuple)) or get_origin(self._kind) is not list:
            return _UNREAD
        (kind,) = get_args(self._kind)
        read = [self._one(kind, each) for each in values]
        return _UNREAD if any(each is _UNREAD for each in read) else read

    def _one(self, kind: Any, value: Any) -> Any:
        if value is None or kind is str is type(value):
            return value
        if isinstance(kind, type) and issubclass(kind, Enum):
            return value if isinstance(value, kind) else next((each for each in kind if each.value == value), _UNREAD)
        if kind is int and (type(value) is int or (type(value) is str and _NUMBER.fullmatch(value))):
            return self._within(int(value))
        return _UNREAD

    def _within(self, number: int) -> Any:
        least, most = self._info.min, self._info.max
        return _UNREAD if (least is not None and number < least) or (most is not None and number > most) else number
