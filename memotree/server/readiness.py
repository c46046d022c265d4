"""Whether the server can do its work now: HTTP's ``/readyz`` and the gRPC health service ask here, and so agree."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from memotree.server.calls import RunningCalls


@runtime_checkable
class KnowsStores(Protocol):
    """Operations that can tell which stores answer."""

    async def silent_stores(self) -> Mapping[str, str]:
        """The stores that do not answer now, each with the reason; answers within a few seconds."""
        ...


class Readiness:
    """Asks the operations of a server; without operations that know the stores, the server counts as ready.

    Args:
        operations: The object with the operations of each service.
        calls: Tells whether the server is stopping.
    """

    def __init__(self, operations: Mapping[str, object], calls: RunningCalls) -> None:
        self._known = [each for each in operations.values() if isinstance(each, KnowsStores)]
        self._calls = calls

    @property
    def stopping(self) -> bool:
        """Whether the server accepts no more calls."""
        return self._calls.closed

    async def obstacles(self) -> dict[str, str]:
        """What keeps the server from doing its work, by store or ``server``; empty if it is ready."""
        if self.stopping:
            return {"server": "It is stopping."}
        return {name: why for known in self._known for name, why in (await known.silent_stores()).items()}

    async def ready(self) -> bool:
        """Whether nothing keeps the server from doing its work."""
        return not await self.obstacles()
