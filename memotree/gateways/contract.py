"""Reads the contract with its comments, which generated code lacks and tool descriptions need."""

import json
import re
from collections.abc import Container, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, EnumValueDescriptor, MethodDescriptor

from memotree.server.binding import contract

Field = Any
"""A ``FieldDescriptor``; the stubs of protobuf have two unrelated classes for it."""

COMMENTS: Final = "contract.json"
"""The file in ``memotree.v1`` that ``proto/generate.py`` writes."""

SAME_MEANING: Final[Mapping[str, Sequence[str]]] = {
    "message": ("commit_message",),
    "question": ("query",),
    "q": ("query",),
    "node": ("node_id",),
    "id": ("node_id",),
    "content": ("text",),
    "limit": ("page_size", "max_results"),
}
"""Other names for arguments, as other programs call them: a tool that has one of the second names and not the first one
accepts both, and lists ``message`` in place of ``commit_message``, so that one thing has one name in all tools."""

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def comments() -> Mapping[str, str]:
    """The comments of all elements of the contract, by full name."""
    found: Mapping[str, str] = json.loads(resources.files("memotree.v1").joinpath(COMMENTS).read_text("utf-8"))
    return found


def comment(descriptor: Any) -> str:
    """The comment of a field, message, enum value or RPC; empty if it is not from our contract."""
    if isinstance(descriptor, EnumValueDescriptor):  # its full name does not include the enum
        return comments().get(f"{descriptor.type.full_name}.{descriptor.name}", "")
    return comments().get(descriptor.full_name, "")


def method(service: str, rpc: str) -> MethodDescriptor:
    """The RPC with this short name of the service with this short name.

    Errors: ``KeyError`` if the contract does not have it.
    """
    found: MethodDescriptor = contract()[service].methods_by_name[rpc]
    return found


def short_names(enum: EnumDescriptor) -> Mapping[str, int]:
    """The values of an enum by name without prefix (``LEVEL_OF_DETAIL_TITLE`` is ``TITLE``), without UNSPECIFIED."""
    prefix = f"{_WORD_START.sub('_', enum.name).upper()}_"
    return {value.name.removeprefix(prefix): value.number for value in enum.values if value.number}


def is_map(field: Field) -> bool:
    """Whether the field is a map, not a list."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def real_name(name: str, fields: Container[str]) -> str:
    """The field that a name means, given the fields of a message: itself, or the other name with the same meaning."""
    if name in fields:
        return name
    return next((other for other in SAME_MEANING.get(name, ()) if other in fields), name)
