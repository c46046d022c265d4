"""MemoTree: a Git-backed, versioned knowledge store for the memory of agents, served over gRPC.

From Python, without a server to start::

    with memotree.open("~/notes") as memory: ...

and with one, ``Client("127.0.0.1:7319")``. Importing this package imports nothing else: each name is imported at its
first use.
"""

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
    if name not in __all__:
        raise AttributeError(f"module 'memotree' has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE.get(name, "memotree.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
