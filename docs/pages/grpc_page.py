"""The page about the wire contract, from the descriptors and comments of ``proto/memotree/v1``."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from markdown import made_by, prose, table

from memotree.gateways.contract import comment, comments, is_map
from memotree.server.binding import contract
from memotree.v1 import types_pb2

INTRO = """
All calls and messages of `memotree.v1`, the contract in `proto/memotree/v1`, which every language has a client
generator for ([an example](../how-to/write-a-client-in-another-language.md)). Each failed call answers with a status
and a reason ([Errors](errors.md)). A server also answers `grpc.health.v1.Health` and server reflection. The contract
only grows: fields and calls are added, and never renumbered or removed.
"""

_SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
"""The names of scalar types, by their number in a descriptor."""


def page() -> str:
    """The whole page."""
    services = contract()
    parts = [made_by("Calls over gRPC", "`proto/memotree/v1`"), INTRO]
    for name in sorted(services):
        parts.append(f"\n## {name}\n\n{_told(services[name])}")
        parts += [_call(each) for each in services[name].methods]
    messages, enums = _reached([each for service in services.values() for each in service.methods])
    parts.append("\n## Messages\n")
    parts += [_message(messages[name]) for name in sorted(messages)]
    parts.append("\n## Enumerations\n")
    parts += [_enum(enums[name]) for name in sorted(enums)]
    return "".join(parts)


def _told(descriptor: Any) -> str:
    text = comment(descriptor)
    return f"{prose(text)}\n" if text else ""


def _call(method: MethodDescriptor) -> str:
    asked, answered = (_stream(flag) + _link(kind) for flag, kind in _sides(method))
    return f"\n### {method.name}\n\n{asked} → {answered}\n\n{_told(method)}"


def _sides(method: MethodDescriptor) -> Iterator[tuple[bool, Descriptor]]:
    yield bool(method.client_streaming), method.input_type
    yield bool(method.server_streaming), method.output_type


def _stream(flag: bool) -> str:
    return "stream of " if flag else ""


def _link(descriptor: Any) -> str:
    """The name of a type; a link if it is one of the contract."""
    if descriptor.full_name.startswith("memotree."):
        name = _short(descriptor)
        return f"[{name}](#{name.lower().replace('.', '')})"
    return f"`{descriptor.full_name}`"


def _short(descriptor: Any) -> str:
    return str(descriptor.full_name).removeprefix("memotree.v1.")


def _reached(methods: list[MethodDescriptor]) -> tuple[dict[str, Descriptor], dict[str, EnumDescriptor]]:
    """The messages and enumerations that the calls, and the details of their errors, are made of."""
    waiting = [kind for method in methods for _, kind in _sides(method)]
    waiting += [types_pb2.ConflictList.DESCRIPTOR, types_pb2.NodeList.DESCRIPTOR]
    messages: dict[str, Descriptor] = {}
    enums: dict[str, EnumDescriptor] = {}
    while waiting:
        kind = waiting.pop()
        if not kind.full_name.startswith("memotree.") or _short(kind) in messages:
            continue
        if not kind.GetOptions().map_entry:
            messages[_short(kind)] = kind
        for field in kind.fields:
            if field.enum_type is not None:
                enums[_short(field.enum_type)] = field.enum_type
            if field.message_type is not None:
                waiting.append(field.message_type)
    return messages, enums


def _message(kind: Descriptor) -> str:
    rows = [(f"`{field.name}`", str(field.number), _type(field), prose(comment(field))) for field in kind.fields]
    return f"\n### {_short(kind)}\n\n{_told(kind)}\n{table(('field', 'number', 'type', 'meaning'), rows)}"


def _type(field: Any) -> str:
    if is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return f"map of {_one(key)} to {_one(value)}"
    if field.is_repeated:
        return f"repeated {_one(field)}"
    group = field.containing_oneof
    if group is not None and len(group.fields) > 1:
        return f"{_one(field)}, one of `{group.name}`"
    return f"optional {_one(field)}" if field.has_presence and field.message_type is None else _one(field)


def _one(field: Any) -> str:
    kind = field.message_type or field.enum_type
    return _link(kind) if kind is not None else _SCALARS[field.type]


def _enum(kind: EnumDescriptor) -> str:
    told = comments()
    meanings = {each.name: prose(told.get(f"{kind.full_name}.{each.name}", "")) for each in kind.values}
    rows = [(f"`{each.name}`", str(each.number), meanings[each.name]) for each in kind.values]
    return f"\n### {_short(kind)}\n\n{_told(kind)}\n{table(('value', 'number', 'meaning'), rows)}"
