"""Converts messages to JSON and back: snake_case names, enums without prefix, times in RFC 3339, numbers as numbers.

It differs from protobuf's own JSON, which writes 64-bit integers as strings, repeats each enum's name in its values,
and stops at the first fault.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from memotree_storage.errors import FieldViolation
from memotree_storage.model.provenance import without_provenance

from memotree.client.conflicts import Conflict
from memotree.gateways.contract import Field, is_map, real_name, short_names
from memotree.request.nearest_names import nearest_or_all, shown
from memotree.v1 import types_pb2

MOST_FAULTS: Final = 50
"""How many faults of the arguments of one call are told."""

_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_ATTRIBUTES: Final = f"{types_pb2.Node.DESCRIPTOR.full_name}.attributes"
_FLOATS: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})
_GREATEST: Final = 1e308
"""The greatest number that a floating-point field accepts; JSON integers have no limit."""

_AS_TEXT: Final = {
    Timestamp.DESCRIPTOR.full_name: "a time as in RFC 3339, such as 2026-01-31T12:00:00Z",
    Duration.DESCRIPTOR.full_name: "a number of seconds and an s, such as 3600s",
}
"""Messages that are strings in JSON, with a description of the string."""


def to_json(message: Message, *, with_empty_lists: bool = False) -> dict[str, Any]:
    """The fields of a message; empty strings, lists and maps, absent messages and unspecified enums are left out.

    So are the attributes of nodes that record where a summary comes from: they are lines that a model would have to
    read with every node, and ``summary_older`` says what follows from them. A conflict has its values as texts.

    Args:
        message: Any message of the contract.
        with_empty_lists: Whether to include empty lists of the top message, so that a list that was asked for is there.
    """
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = _field_to_json(field, getattr(message, field.name))
        if field.full_name == _ATTRIBUTES:
            value = without_provenance(value)
        wanted = (field.has_presence and value is not None) or (with_empty_lists and value == [])
        if wanted or value not in ("", [], {}, None):
            found[field.name] = value
    return found


def _field_to_json(field: Field, value: Any) -> Any:
    if is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {str(key): _value_to_json(of, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value_to_json(field, each) for each in value]
    return _value_to_json(field, value)


def _value_to_json(field: Field, value: Any) -> Any:
    if isinstance(value, (Timestamp, Duration, FieldMask)):
        return value.ToJsonString()
    if isinstance(value, types_pb2.Conflict):
        return Conflict.from_wire(value).in_words()
    if isinstance(value, Message):
        return to_json(value)
    if field.enum_type is not None:
        return next((name for name, number in short_names(field.enum_type).items() if number == value), None)
    return value.hex() if isinstance(value, bytes) else value


def from_json(
    kind: Descriptor, values: Mapping[str, Any], hidden: Collection[str] = (), hidden_within: Collection[str] = ()
) -> tuple[Message, list[FieldViolation]]:
    """The message built from JSON values, and its faults, each with its path. ``null`` counts as not given.

    No more than `MOST_FAULTS` and one are looked for: nobody reads more, and each of them takes time.

    Args:
        kind: The type of the message.
        values: The fields by name.
        hidden: Fields that must not be given.
        hidden_within: Fields that must not be given in nested messages.
    """
    message = message_factory.GetMessageClass(kind)()
    return message, list(islice(_fill(message, values, "", (hidden, hidden_within)), MOST_FAULTS + 1))


Hidden = tuple[Collection[str], Collection[str]]
"""Fields that must not be given: in the message itself, and in nested messages."""


def _fill(message: Message, values: Mapping[str, Any], path: str, hidden: Hidden) -> Iterator[FieldViolation]:
    """Set the valid fields of a message, and yield the faults of the others."""
    here, within = hidden
    known = {name: field for name, field in message.DESCRIPTOR.fields_by_name.items() if name not in here}
    chosen: dict[str, str] = {}
    for name, value in values.items():
        field = known.get(real_name(name, known))
        if field is None:
            yield FieldViolation(path + shown(name), f"is not an argument{nearest_or_all(name, known)}")
        elif value is not None:
            before = chosen.setdefault(one_of(field) or field.name, name)  # two names may mean one field
            if before != name:
                yield FieldViolation(path + name, f"cannot be given together with {before}; choose one.")
            else:
                yield from _set(message, field, value, path + name, within)


def one_of(field: Field) -> str:
    """The name of the field's oneof; empty if none. An ``optional`` field has a synthetic one, which does not count."""
    choice = field.containing_oneof
    return "" if choice is None or choice.name == f"_{field.name}" else choice.name


def _set(message: Message, field: Field, value: Any, path: str, within: Collection[str]) -> Iterator[FieldViolation]:
    """Set a field, or yield the faults of its value."""
    is_object = field.message_type is not None and field.message_type.full_name not in _AS_TEXT
    if field.is_repeated and not is_map(field):
        if not isinstance(value, list):
            yield FieldViolation(path, "must be a list.")
            return
        for index, each in enumerate(value):
            yield from _add(getattr(message, field.name), field, each, f"{path}[{index}]", within)
    elif is_object and not isinstance(value, Mapping):
        yield FieldViolation(path, "must be an object.")
    elif is_map(field):
        yield from _fill_map(getattr(message, field.name), field, value, path)
    elif is_object:
        part = getattr(message, field.name)
        part.SetInParent()
        yield from _fill(part, value, f"{path}.", (within, within))
    elif field.message_type is not None:
        yield from _read_text(getattr(message, field.name), value, path)
    else:
        read, fault = _scalar(field, value)
        if fault:
            yield FieldViolation(path, fault)
        else:
            setattr(message, field.name, read)


def _fill_map(container: Any, field: Field, values: Mapping[str, Any], path: str) -> Iterator[FieldViolation]:
    """Put values into a map (the contract has only maps of scalars by text)."""
    of = field.message_type.fields_by_name["value"]
    for key, each in values.items():
        fault = _text_fault(key)
        if fault:
            yield FieldViolation(f"{path}[{shown(str(key))!r}]", fault)
        else:
            yield from _put_scalar(container, of, each, f"{path}[{shown(key)!r}]", key)


def _add(container: Any, field: Field, value: Any, path: str, within: Collection[str]) -> Iterator[FieldViolation]:
    """Append one value to a list."""
    if field.message_type is None:
        yield from _put_scalar(container, field, value, path)
    elif isinstance(value, Mapping):
        yield from _fill(container.add(), value, f"{path}.", (within, within))
    else:
        yield FieldViolation(path, "must be an object.")


def _put_scalar(
    container: Any, field: Field, value: Any, path: str, key: str | None = None
) -> Iterator[FieldViolation]:
    """Append one value to a list, or set it in a map by key (the contract has only maps of scalars)."""
    read, fault = _scalar(field, value)
    if fault:
        yield FieldViolation(path, fault)
    elif key is None:
        container.append(read)
    else:
        container[key] = read


def _read_text(message: Any, value: Any, path: str) -> Iterator[FieldViolation]:
    try:
        message.FromJsonString(value)
    except (ValueError, AttributeError, TypeError):
        yield FieldViolation(path, f"must be {_AS_TEXT[message.DESCRIPTOR.full_name]}.")


def _scalar(field: Field, value: Any) -> tuple[Any, str]:
    """The value converted for the field, and its fault ("" if valid)."""
    if field.enum_type is not None:
        names = short_names(field.enum_type)
        known = isinstance(value, str) and value in names
        return (names[value], "") if known else (None, f"must be one of {', '.join(names)}.")
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return value, "" if isinstance(value, bool) else "must be true or false."
        case FieldDescriptor.CPPTYPE_STRING:
            is_bytes = field.type == FieldDescriptor.TYPE_BYTES
            return _bytes(value) if is_bytes else (value, _text_fault(value))
        case kind if kind in _FLOATS:
            return value, "" if _is_number(value) and abs(value) <= _GREATEST else "must be a number."
        case kind:
            least, most = _INTEGERS[kind]
            if not _is_number(value) or value != int(value):
                return value, "must be a whole number."
            return int(value), "" if least <= value <= most else f"must be from {least} to {most}."


def _bytes(value: Any) -> tuple[bytes, str]:
    """The bytes that hexadecimal digits mean, as answers have them; and the fault of anything else."""
    try:
        return bytes.fromhex(value), ""
    except (TypeError, ValueError):
        return b"", "must be hexadecimal digits, two for each byte."


def _text_fault(value: Any) -> str:
    if not isinstance(value, str):
        return "must be a text."
    try:
        value.encode()
    except UnicodeEncodeError:
        return "has half a surrogate pair, which is not valid text; leave it out."
    return ""


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
