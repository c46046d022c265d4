"""Signatures of methods that are made from others: what ``help``, ``inspect`` and notebooks show of them."""

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_RETURNS: Final = {
    "OpeningSession": "Session",
    "AsyncRevision": "Revision",
    "AsyncSession": "Session",
    "AsyncView": "View",
    "AsyncWorkspace": "Workspace",
}
"""The blocking class for a class of the asynchronous client."""


def described(made: FunctionT, like: Callable[..., Any], returns: str = "", *, adds_self: bool = False) -> FunctionT:
    """Gives ``made`` the parameters of ``like``, and the type that it returns itself.

    Args:
        made: The function that was made.
        like: The function with the parameters.
        returns: The name of the returned type; if empty, that of ``like``, in its blocking form.
        adds_self: Whether ``made`` is a method and ``like`` is not.
    """
    shown = inspect.signature(like)
    parameters = list(shown.parameters.values())
    if adds_self:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    signature = shown.replace(parameters=parameters, return_annotation=returns or _blocking(shown.return_annotation))
    made.__signature__ = signature  # type: ignore[attr-defined] # read by inspect.signature
    return made


def name_methods(owner: type) -> None:
    """Names the made methods of a class after the class, instead of the function that each was made like."""
    for name, value in vars(owner).items():
        if inspect.isfunction(value) and hasattr(value, "__signature__"):
            value.__name__, value.__qualname__, value.__module__ = (
                name,
                f"{owner.__qualname__}.{name}",
                owner.__module__,
            )


def _blocking(annotation: Any) -> str:
    """The type in the blocking client for an annotation of the asynchronous one."""
    text = inspect.formatannotation(annotation) if not isinstance(annotation, str) else annotation
    name = text.rpartition(".")[2] if "[" not in text else text
    name = name.replace("collections.abc.", "").replace("AsyncIterator[", "Iterator[")
    return _RETURNS.get(name, name)
