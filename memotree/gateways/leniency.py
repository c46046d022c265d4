"""Reads what models often write in place of the JSON that a schema asks for, where it can mean only one thing.

Models send lists and objects as texts of JSON, one value in place of a list, numbers and choices as texts, dates in
place of times, and numbers as values of attributes. What is not listed here stays as it is, and the check that follows
refuses it by name.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from memotree_storage.model.times import read_time

from memotree.gateways.contract import Field, is_map, real_name, short_names
from memotree.gateways.json_texts import NotJsonError, parsed

_BY_COMMAS: Final = frozenset({"tags"})
"""Lists of words; titles and ids of nodes may have commas in them, or are one value."""

_RFC_3339: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt].+(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_FLOATS: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})


def as_meant(kind: Descriptor, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message with values in the form that they were meant in."""
    known = kind.fields_by_name
    return {
        name: _value(known[field], value) if (field := real_name(name, known)) in known else value
        for name, value in given.items()
    }


def _value(field: Field, value: Any) -> Any:
    if is_map(field):
        found = _parsed(value, dict)
        return {key: _as_text(each) for key, each in found.items()} if isinstance(found, Mapping) else found
    if field.is_repeated:
        several = _several(field, value)
        return [_one(field, each) for each in several] if isinstance(several, list) else several
    return _one(field, value)


def _several(field: Field, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _parsed(value, list)
    if isinstance(found, list) or not value.strip():
        return found if isinstance(found, list) else []
    if field.name in _BY_COMMAS:
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value]


def _one(field: Field, value: Any) -> Any:
    if field.message_type is not None and field.message_type.full_name == Timestamp.DESCRIPTOR.full_name:
        return _moment(value)
    if field.message_type is not None:
        found = _parsed(value, dict)
        return as_meant(field.message_type, found) if isinstance(found, Mapping) else found
    if not isinstance(value, str):
        return value
    if field.enum_type is not None:
        return value if value in short_names(field.enum_type) else value.strip().upper().replace("-", "_")
    return _READ.get(field.cpp_type, str)(value)


def _moment(value: Any) -> Any:
    """A time in RFC 3339, made of a date or of a time as recall takes it; another value as it is."""
    if not isinstance(value, str) or _RFC_3339.fullmatch(value.strip()):
        return value
    found = read_time(value)
    return value if found is None else found.astimezone(UTC).isoformat().replace("+00:00", "Z")


def object_meant(value: Any) -> Any:
    """The object that a text of JSON holds; another value as it is."""
    return _parsed(value, dict)


def _parsed(value: Any, kind: type) -> Any:
    """The list or object that a text of JSON holds; another value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("[" if kind is list else "{"):
        return value
    try:
        found = parsed(value)
    except NotJsonError:
        return value
    return found if isinstance(found, kind) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (int, float)) else value


def _whole(text: str) -> Any:
    plain = text.strip()
    return int(plain) if _WHOLE_NUMBER.fullmatch(plain) else text


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _truth(text: str) -> Any:
    return {"true": True, "false": False}.get(text.strip().lower(), text)


_READ: Final[Mapping[int, Callable[[str], Any]]] = {
    FieldDescriptor.CPPTYPE_BOOL: _truth,
    **dict.fromkeys(_WHOLE, _whole),
    **dict.fromkeys(_FLOATS, _number),
}
