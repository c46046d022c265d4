"""A tool that is a Python function: its signature says what it takes, its docstring what it does."""

import copy
import inspect
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from memotree.identity.errors import ToolNotPermittedError
from memotree.tools.declaration import Declaration, Permission
from memotree.tools.signature import Signature, UndeclarableError

NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME: Final = 64

PLUGINS: Final = "memotree.tools"
"""The group of the entry points by which other packages name their tools."""

_MARK: Final = "__memotree_tool__"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class Operations(Protocol):
    """Calls RPCs of the contract, as whoever calls the tool may."""

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC."""
        ...


@dataclass(frozen=True, slots=True)
class CallContext:
    """What the server tells a tool about its call; an async function takes it as a parameter of this type.

    Attributes:
        operations: Calls RPCs.
        workspace: The default workspace.
        agent: Who calls; empty if that is not known.
        request_id: Makes the call safe to repeat; empty if none was given.
    """

    operations: Operations
    workspace: str
    agent: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a tool says of itself beside its signature; see `tool`."""

    category: str
    name: str = ""
    title: str = ""
    description: str = ""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    permissions: tuple[Permission, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()
    timeout: timedelta | None = None


def tool(
    *,
    category: str,
    name: str = "",
    title: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    permissions: Sequence[Permission] = (),
    examples: Sequence[Mapping[str, Any]] = (),
    timeout: timedelta | None = None,
) -> Callable[[AnyFunction], AnyFunction]:
    """Declare a function, or a method of a service, as a tool; the function itself stays as it is.

    An ``async`` function runs in the server and must not block; any other runs in a worker process, which is ended when
    the time of the call is over.

    Args:
        category: What the tool is about, one word.
        name: Its name in snake_case; that of the function if empty.
        title: A title for people; made of the name if empty.
        description: What it does and when to use it; the docstring of the function if empty, up to its sections.
        read_only: Whether it changes nothing.
        destructive: Whether it may delete or overwrite something.
        idempotent: Whether the same call again has no further effect; a tool that only reads is.
        open_world: Whether it reaches beyond the server: files and hosts of others.
        permissions: What it may do, to what.
        examples: Arguments of typical calls.
        timeout: How long one call may take; the server's setting ``tools_timeout`` if ``None``.
    """
    options = Options(
        category=category,
        name=name,
        title=title,
        description=description,
        read_only=read_only,
        destructive=destructive,
        idempotent=idempotent,
        open_world=open_world,
        permissions=tuple(permissions),
        examples=tuple(examples),
        timeout=timeout,
    )

    def declared(function: AnyFunction) -> AnyFunction:
        setattr(function, _MARK, options)
        return function

    return declared


@runtime_checkable
class Limitable(Protocol):
    """A service whose tools reach folders or hosts, to which a role may limit them."""

    def within(self, limits: Sequence[str]) -> Self:
        """The same service for somebody whose roles name what it may reach."""
        ...


class FunctionTool:
    """A tool made of a function that is declared with `tool`.

    Args:
        function: The function, or a method of a service.

    Raises:
        UndeclarableError: It cannot be a tool; the message says why.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        options: Options | None = getattr(function, _MARK, None)
        qualified = getattr(function, "__qualname__", repr(function))
        if options is None:
            raise UndeclarableError(f"{qualified} is not declared as a tool; put @tool(category=…) above it.")
        self.function = function
        self.options = options
        self.name: str = options.name or getattr(function, "__name__", "")
        self.blocks = not inspect.iscoroutinefunction(function)
        self._check(qualified)

    @property
    def category(self) -> str:
        """What it is about."""
        return self.options.category

    @property
    def title(self) -> str:
        """A title for people."""
        return self.options.title or self.name.replace("_", " ").capitalize()

    @cached_property
    def signature(self) -> Signature:
        """Its arguments."""
        return Signature(self.function, CallContext)

    @cached_property
    def declaration(self) -> Declaration:
        """What a program is told about it."""
        options = self.options
        return Declaration(
            self.name,
            self.title,
            options.description or self.signature.description,
            options.category,
            self.signature.schema,
            options.read_only,
            options.destructive,
            options.idempotent or options.read_only,
            options.open_world,
            options.permissions,
            options.examples,
        )

    def within(self, reach: Sequence[str]) -> "FunctionTool":
        """The same tool for somebody whose roles limit what it reaches; it may look at the disk.

        Raises:
            ToolNotPermittedError: It knows no such limits.
        """
        service = getattr(self.function, "__self__", None)
        if not isinstance(service, Limitable):
            raise ToolNotPermittedError(f"{self.name} cannot be limited to what a role says it may reach.")
        narrower = copy.copy(self)
        narrower.function = getattr(service.within(reach), self.function.__name__)
        return narrower

    def _check(self, qualified: str) -> None:
        if not NAME.fullmatch(self.name) or len(self.name) > LONGEST_NAME:
            raise UndeclarableError(
                f"{self.name!r} ({qualified}) is no name of a tool; use up to {LONGEST_NAME} small letters and digits, "
                "with _ between words."
            )
        if not NAME.fullmatch(self.category):
            raise UndeclarableError(f"The category {self.category!r} of {self.name} must be a word of small letters.")
        if self.options.read_only and self.options.destructive:
            raise UndeclarableError(f"{self.name} is read_only and destructive; it can be one of them.")
        if not self.declaration.description:
            raise UndeclarableError(f"{self.name} has no description; give {qualified} a docstring.")
        if self.blocks:
            self._check_worker(qualified)

    def _check_worker(self, qualified: str) -> None:
        if self.signature.given:
            raise UndeclarableError(f"{qualified} takes a CallContext and is not async; a worker process has none.")
        try:
            pickle.dumps(self.function)
        except Exception as error:
            raise UndeclarableError(
                f"A worker process cannot import {qualified} ({error}); move it to the top level of a module, or make "
                "it async."
            ) from error


def tools_of(service: object) -> tuple[FunctionTool, ...]:
    """The tools of a service, in the order in which its class declares them.

    Raises:
        UndeclarableError: One of its methods cannot be a tool.
    """
    names = [name for kind in reversed(type(service).__mro__) for name, made in vars(kind).items() if _declared(made)]
    return tuple(FunctionTool(getattr(service, name)) for name in dict.fromkeys(names))


def _declared(made: object) -> bool:
    return callable(made) and hasattr(made, _MARK)
