"""Finds and creates nodes by names of the caller's choice instead of ids.

A name has a fixed sequence of ids, derived from it. The node has the first of them that was not deleted: an id that
was deleted is never given again, so the node of a name that was deleted and created anew has the next id.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memotree.client import Node
from memotree.integrations.port import ArchivePort

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_CHARS: Final = 16
_MOST_REMEMBERED: Final = 50_000

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name stands: the id of its node if ``is_alive``, else the id that its next node gets."""

    node_id: str
    is_alive: bool = False


def derived_id(*names: str | int) -> str:
    """Returns the id that belongs to a sequence of names."""
    text = "\0".join(f"{len(str(name))}:{name}" for name in names).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(text).digest()[: 5 * _ID_CHARS // 8], "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(5 * (_ID_CHARS - 1), -1, -5))


class NamedNodes:
    """The nodes of an archive by their names.

    Remembers what it saw last, to save calls. Others may change it meanwhile: `last_seen` is a guess that a change
    based on it confirms or refuses, `find` asks the server.

    Args:
        port: The archive.
        scope: A name for all of the names; other scopes have other ids.
    """

    def __init__(self, port: ArchivePort, scope: str) -> None:
        self._port = port
        self._scope = scope
        self._generations: dict[Name, int] = {}
        self._alive: set[Name] = set()

    def _id(self, name: Name, generation: int) -> str:
        return derived_id(self._scope, *name, generation)

    def last_seen(self, name: Name) -> Place:
        """Returns where the name stood when it was last seen; a name that was not seen is taken for a new one."""
        return Place(self._id(name, self._generations.get(name, 0)), name in self._alive)

    def remember(self, name: Name, place: Place) -> None:
        """Notes where a name stands after a change that was based on `last_seen`."""
        if len(self._generations) + len(self._alive) > _MOST_REMEMBERED:
            self._generations.clear()
            self._alive.clear()
        if place.is_alive:
            self._alive.add(name)
        elif name in self._alive:  # the change deleted it, so its id is used up
            self._alive.discard(name)
            self._generations[name] = self._generations.get(name, 0) + 1

    async def find(self, names: Sequence[Name]) -> list[Node | None]:
        """Returns the node of each name with its content, ``None`` for a name without one; usually a call for each."""
        found = await self._port.nodes([self.last_seen(name).node_id for name in names])
        return [
            self._seen(name, node) if node else await self._newest(name)
            for name, node in zip(names, found, strict=True)
        ]

    def _seen(self, name: Name, node: Node) -> Node:
        self.remember(name, Place(node.id, is_alive=True))
        return node

    async def _newest(self, name: Name) -> Node | None:
        """Returns the newest node of a name whose remembered node is not alive, by doubling steps and bisection."""
        self._alive.discard(name)
        used = self._generations.get(name, 0)
        if not await self._port.was_used(self._id(name, used)):
            return None
        step = 1
        while await self._port.was_used(self._id(name, used + step)):
            used, step = used + step, 2 * step
        unused = used + step
        while unused - used > 1:
            middle = (used + unused) // 2
            if await self._port.was_used(self._id(name, middle)):
                used = middle
            else:
                unused = middle
        node = (await self._port.nodes([self._id(name, used)]))[0]
        self._generations[name] = used if node else unused
        return self._seen(name, node) if node else None
