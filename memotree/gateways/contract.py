"""The contract with its comments: what generated code leaves out and descriptions of tools are made of."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, EnumValueDescriptor, MethodDescriptor

from memotree.server.binding import contract

Field = Any
"""A ``FieldDescriptor``, for which the stubs of protobuf have two classes that do not know each other."""

COMMENTS: Final = "contract.json"
"""The file in ``memotree.v1`` that ``proto/generate.py`` writes."""

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def comments() -> Mapping[str, str]:
    """The comment of everything in the contract, by full name."""
    found: Mapping[str, str] = json.loads(resources.files("memotree.v1").joinpath(COMMENTS).read_text("utf-8"))
    return found


def comment(descriptor: Any) -> str:
    """What the contract says of a field, message, enum value or RPC; empty for what is not of our contract."""
    if isinstance(descriptor, EnumValueDescriptor):  # its own full name leaves the enum out
        return comments().get(f"{descriptor.type.full_name}.{descriptor.name}", "")
    return comments().get(descriptor.full_name, "")


def method(service: str, rpc: str) -> MethodDescriptor:
    """The RPC of a service, both by their short names.

    Errors: ``KeyError`` for one that the contract does not have.
    """
    found: MethodDescriptor = contract()[service].methods_by_name[rpc]
    return found


def short_names(enum: EnumDescriptor) -> Mapping[str, int]:
    """The values of an enum without its prefix: ``LEVEL_OF_DETAIL_TITLE`` is ``TITLE``; "not given" is left out."""
    prefix = f"{_WORD_START.sub('_', enum.name).upper()}_"
    return {value.name.removeprefix(prefix): value.number for value in enum.values if value.number}


def is_map(field: Field) -> bool:
    """Whether the field is a map and not a list."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)
