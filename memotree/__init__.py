"""MemoTree: a memory for agents whose every change is a Git commit, found again by words and by meaning.

    with memotree.open("memory") as memory:
        memory.create_workspace("notes", exist_ok=True)
        memory.workspace("notes").remember("At most five retries.", title="Retries")
        print(memory.workspace("notes").recall("How many retries?"))

``open(path)`` runs a server on a folder by itself; ``Client("127.0.0.1:7319")`` calls one that runs. ``open_async`` and
``AsyncClient`` are the same for programs with an event loop. Every failed call raises a ``MemoTreeClientError``; its
subclasses are here too. Further types are in ``memotree.client``.
"""

# Importing this package imports nothing else: each name is imported at its first use.
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memotree.client import (
        AbortedError,
        AlreadyExistsError,
        AsyncClient,
        Author,
        CancelledError,
        Client,
        DataLossError,
        DeadlineExceededError,
        FailedPreconditionError,
        InternalError,
        InvalidArgumentError,
        MemoTreeClientError,
        NotFoundError,
        PermissionDeniedError,
        ResourceExhaustedError,
        Turn,
        UnauthenticatedError,
        UnavailableError,
        UnimplementedError,
    )
    from memotree.local.errors import ServerNotInstalledError, ServerStartError
    from memotree.local.opening import open, open_async  # noqa: A004 - read as memotree.open

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "AsyncClient",
    "Author",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "MemoTreeClientError",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "ServerNotInstalledError",
    "ServerStartError",
    "Turn",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "open",
    "open_async",
]

_ELSEWHERE: Final = {
    "open": "memotree.local.opening",
    "open_async": "memotree.local.opening",
    "ServerNotInstalledError": "memotree.local.errors",
    "ServerStartError": "memotree.local.errors",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name == "__version__":
        return import_module("importlib.metadata").version("memotree")
    if name not in __all__:
        raise AttributeError(f"module 'memotree' has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE.get(name, "memotree.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
