"""Errors of wrong arguments in the caller's words, where those of Python and protobuf name internals."""

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound=Message)

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(\w+)'")
_FUNCTION: Final = re.compile(r"^[\w.<>]+\(\)")
_KINDS: Final = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_INT32: "a whole number",
    FieldDescriptor.CPPTYPE_INT64: "a whole number",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}
_SHOWN: Final = 60


def made(kind: type[MessageT], **fields: Any) -> MessageT:
    """A message with these fields.

    Raises:
        TypeError: A value has the wrong type; the error names the field, and what it takes.
    """
    try:
        return kind(**fields)
    except (TypeError, ValueError, AttributeError) as error:
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError, AttributeError):
                raise _wrong(name, value, kind.DESCRIPTOR.fields_by_name[name]) from None
        raise error from None


def _wrong(name: str, value: Any, field: Any) -> TypeError:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry and isinstance(value, Mapping):
        wrong = [f"{key!r}: {each!r}" for key, each in value.items() if not isinstance(each, str)]
        said = ", ".join(wrong)[:_SHOWN]
        return TypeError(f"{name} takes texts by name; these values are none: {said}. Give str(value).")
    wanted = _KINDS.get(field.cpp_type, "something else")
    wanted = f"several values, each {wanted}" if field.is_repeated else wanted
    return TypeError(f"{name.removesuffix('_id')} takes {wanted}, but is {value!r:.{_SHOWN}} ({type(value).__name__}).")


def refused(error: TypeError, function: Callable[..., Any]) -> TypeError:
    """The error of a call that does not fit a signature, with the function's public name and the argument meant."""
    text = _FUNCTION.sub(f"{function.__name__}()", str(error))
    if unexpected := _UNEXPECTED.search(text):
        known = [name for name in inspect.signature(function).parameters if name != "self"]
        wrong = unexpected[1]
        near = [name for name in known if wrong in name] or get_close_matches(wrong, known, n=1)
        text += f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}."
    return TypeError(text)
