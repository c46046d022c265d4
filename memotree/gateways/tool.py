"""A tool: one RPC of the contract as it is offered to agents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from memotree_storage.errors import FieldViolation

from memotree.client.contract import is_read, is_repeatable
from memotree.gateways.contract import Field, method, real_name
from memotree.gateways.leniency import object_meant
from memotree.v1 import history_service_pb2, types_pb2, view_service_pb2

REQUEST_ID: Final = "request_id"
_BUDGET: Final = "token_budget"
_WITHOUT_DEFAULT: Final = frozenset({"RenderView"})
"""The RPCs that have no budget if the caller gives none."""

_LONG_TEXTS: Final = tuple(
    kind.DESCRIPTOR for kind in (types_pb2.Node, history_service_pb2.TextPart, view_service_pb2.RenderViewResponse)
)
"""The messages with contents of nodes, or texts of changes."""


@dataclass(frozen=True)
class Tool:
    """One operation, offered to agents as a tool.

    Attributes:
        name: The unique name, in snake_case.
        title: A title for people.
        call: The service and the RPC that it calls, such as ``NodeService.GetNode``.
        required: Arguments that must be given.
        hidden: Fields of the request that must not be given.
        hidden_within: Fields that must not be given in nested messages of the request.
        flattened: Nested messages of the request whose fields are arguments of the tool itself.
        listed: The arguments of the short list; all if empty. The others are accepted, too.
        named: Arguments for nodes that may be given by title or path; the id that is meant is put in their place.
        preset: Fields of the request that are hidden and have a value of their own.
        masked: Fields that are named in ``update_mask`` if they are given.
        destructive: Whether it may delete or overwrite something.
        last: For a streaming RPC, the field of its last message that is the answer.
        description: What it does and when to use it; the comment of the RPC if empty.
        note: Text that the description adds to the comment of the RPC.
        example: Arguments of a typical call.
    """

    name: str
    title: str
    call: str
    required: tuple[str, ...] = ()
    hidden: tuple[str, ...] = (REQUEST_ID,)
    hidden_within: tuple[str, ...] = ()
    flattened: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    preset: Mapping[str, Any] = field(default_factory=dict, compare=False)
    masked: tuple[str, ...] = ()
    destructive: bool = False
    last: str = ""
    description: str = field(default="", compare=False)
    note: str = field(default="", compare=False)
    example: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def service(self) -> str:
        """The short name of the service."""
        return self.call.split(".")[0]

    @property
    def category(self) -> str:
        """What it is about: the name of the service without its ending, such as ``node``."""
        return self.service.removesuffix("Service").lower()

    @property
    def rpc(self) -> str:
        """The name of the RPC."""
        return self.call.split(".")[1]

    @cached_property
    def method(self) -> MethodDescriptor:
        """The RPC in the contract."""
        return method(self.service, self.rpc)

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        return is_read(self.method)

    @property
    def has_parts(self) -> bool:
        """Whether the caller can read a long answer in parts; the same call is made again for each."""
        return self.read_only and not self.last and not self.has_budget and _has_long_texts(self.method.output_type)

    @property
    def has_budget(self) -> bool:
        """Whether a budget bounds the answer."""
        return _BUDGET in self.arguments and self.rpc not in _WITHOUT_DEFAULT

    @property
    def idempotent(self) -> bool:
        """Whether the same call again has no further effect."""
        return is_repeatable(self.method)

    @property
    def request(self) -> Descriptor:
        """The type of its request."""
        return self.method.input_type

    @cached_property
    def arguments(self) -> Mapping[str, Field]:
        """The arguments by the name under which they are listed, in the order of the request."""
        found: dict[str, Field] = {}
        for each in self.request.fields:
            if each.name in self.flattened:
                found |= self._within(each.name)
            elif each.name not in self.hidden:
                found[_listed(each.name, self.request)] = each
        return found

    def as_request(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the request for the arguments of a call.

        A flattened message may also be given as a whole. Unknown names stay as they are, and are refused later. Of
        arguments that mean the same field, the last one is taken; `given_twice` finds them.
        """
        given: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in arguments.items():
            home, real = self._field(name)
            if home:
                parts.setdefault(home, {})[name] = value
            else:
                given[real] = value
        for home, part in parts.items():
            whole = object_meant(given.get(home, {}))
            given[home] = {**whole, **part} if isinstance(whole, Mapping) else whole  # no object: it is refused later
        return given

    def given_twice(self, arguments: Mapping[str, Any]) -> Iterator[FieldViolation]:
        """Yield a fault for each argument that means the same field as another one: then it is not known which holds.

        Args:
            arguments: Those of a call that have a value.
        """
        given: dict[tuple[str, str], str] = {}
        for home in self.flattened:
            whole = object_meant(arguments.get(home))
            inner = whole if isinstance(whole, Mapping) else {}
            given |= {(home, name): f"{home}.{name}" for name in self._within(home) if inner.get(name) is not None}
        for name in arguments:
            before = given.setdefault(self._field(name), name)
            if before != name:
                yield FieldViolation(name, f"cannot be given together with {before}; choose one.")

    def listed_path(self, path: str) -> str:
        """The path of a fault in the request as the caller knows it."""
        outer, dot, inner = path.partition(".")
        if dot and outer in self.flattened:
            return inner
        return _listed(path, self.request)

    def _field(self, name: str) -> tuple[str, str]:
        """The field that an argument means, and the flattened message that has it; "" for the request itself."""
        real = real_name(name, self.request.fields_by_name)
        if real not in self.request.fields_by_name:
            for outer in self.flattened:
                if name in self._within(outer):
                    return outer, name
        return "", real

    def _within(self, outer: str) -> Mapping[str, Field]:
        """The fields of a flattened message by name."""
        kind: Any = self.request.fields_by_name[outer].message_type
        return {field.name: field for field in kind.fields}


@cache
def _has_long_texts(kind: Descriptor) -> bool:
    if kind in _LONG_TEXTS:
        return True
    inner = (field.message_type for field in kind.fields if field.message_type is not None)
    return any(_has_long_texts(each) for each in inner if each is not kind)


def _listed(name: str, kind: Descriptor) -> str:
    return "message" if name == "commit_message" and "message" not in kind.fields_by_name else name
