"""Builds services from what they depend on, and knows their tools.

A service is a class whose constructor says by its annotations what it needs: other services, or values that were
provided. Its methods that are declared with `memotree.tools.function_tool.tool` are tools.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

from memotree.tools.function_tool import FunctionTool, tools_of

T = TypeVar("T")


class DependencyError(TypeError):
    """A service cannot be built; the message says what it lacks."""


class Container:
    """Services, built at their first use and then kept, and the tools of them.

    Not for threads: the composition root fills it at the start.
    """

    def __init__(self) -> None:
        self._made: dict[type, object] = {}
        self._classes: dict[type, type] = {}
        self._with_tools: list[type | Callable[..., Any]] = []

    def provide(self, value: object, kind: type | None = None) -> None:
        """Provide a value that services may need.

        Args:
            value: The value; if it has tools, they are offered.
            kind: The type under which it is needed; its own if ``None``.

        Raises:
            DependencyError: There is one of this type.
        """
        kind = kind or type(value)
        self._take(kind)
        self._made[kind] = value

    def register(self, service: type, kind: type | None = None) -> None:
        """Register a class, which is built when it is needed.

        Args:
            service: The class.
            kind: The type under which it is needed, such as a protocol; its own if ``None``.

        Raises:
            DependencyError: There is one of this type.
        """
        kind = kind or service
        self._take(kind)
        self._classes[kind] = service

    def add(self, function: Callable[..., Any]) -> None:
        """Add a tool that is a function and needs no service."""
        self._with_tools.append(function)

    def get(self, kind: type[T]) -> T:
        """The service or value of a type.

        Raises:
            DependencyError: There is none, or it needs itself.
        """
        found: T = self._built(kind, ())
        return found

    def tools(self, kind: type | None = None) -> Sequence[FunctionTool]:
        """The tools of a service, or all tools, in the order in which their services were given.

        Raises:
            DependencyError: A service cannot be built.
            UndeclarableError: A function cannot be a tool.
        """
        if kind is not None:
            return tools_of(self._built(kind, ()))
        found: list[FunctionTool] = []
        for each in self._with_tools:
            found += tools_of(self._built(each, ())) if isinstance(each, type) else [FunctionTool(each)]
        return found

    def _take(self, kind: type) -> None:
        if kind in self._made or kind in self._classes:
            raise DependencyError(f"There are two services of the type {_named(kind)}; give one of them another type.")
        self._with_tools.append(kind)

    def _built(self, kind: Any, above: tuple[type, ...]) -> Any:
        if kind in self._made:
            return self._made[kind]
        service = self._classes.get(kind)
        if service is None:
            needed = f"{_named(above[-1])} needs it; " if above else ""
            raise DependencyError(f"There is no service of the type {_named(kind)}; {needed}register or provide one.")
        if kind in above:
            circle = " needs ".join(_named(each) for each in (*above[above.index(kind) :], kind))
            raise DependencyError(f"Services need each other: {circle}; let one of them do without the other.")
        made = service(**self._arguments(service, (*above, kind)))
        self._made[kind] = made
        return made

    def _arguments(self, service: type, above: tuple[type, ...]) -> dict[str, Any]:
        if service.__init__ is object.__init__:  # type: ignore[misc]  # it has none of its own
            return {}
        hints = get_type_hints(service.__init__)  # type: ignore[misc]
        arguments = {}
        for name, parameter in list(inspect.signature(service.__init__).parameters.items())[1:]:  # type: ignore[misc]
            kind = hints.get(name)
            known = isinstance(kind, type) and (kind in self._made or kind in self._classes)
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            if not known and parameter.default is not parameter.empty:
                continue
            if kind is None:
                raise DependencyError(f"The argument {name} of {_named(service)} has no type, so nothing can be given.")
            arguments[name] = self._built(kind, above)
        return arguments


def _named(kind: Any) -> str:
    return getattr(kind, "__qualname__", str(kind))
