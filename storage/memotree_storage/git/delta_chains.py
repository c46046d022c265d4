"""Objects that are packed as deltas, each of which may be based on a delta again.

A few kilobytes can be a chain of a thousand objects of megabytes. So a chain is first followed by its headers alone,
which tell what it unpacks to, and then one delta after the other is applied. Some of the objects on the way are kept,
so that reading all objects of a chain, in whichever order, costs in proportion to the bytes that they have unpacked.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dulwich.pack import apply_delta

from memotree_storage.cache import BoundedCache
from memotree_storage.git import packfile
from memotree_storage.git.packfile import Header, Pack, StoredObject, TooLarge, refuse_large

MOST_UNPACKED: Final = 50 * packfile.LARGEST_OBJECT
"""The most bytes that are unpacked for one object; git makes chains of 50 deltas by default."""

_LEAST_UNPACKED: Final = 1 << 16
"""What each delta counts as at least, so that following a chain has an end."""

_SMALL_BYTES: Final = 32 << 20
_LARGE_BYTES: Final = packfile.LARGEST_OBJECT + (1 << 10)
_OVERHEAD: Final = 200

Place = tuple[Pack, int]
"""A pack, and the offset of an object in it."""


class Base(NamedTuple):
    """An object that deltas may be based on.

    Attributes:
        found: The object.
        depth: How many deltas it is made with.
        unpacked: The bytes that are unpacked to read it when nothing is kept.
    """

    found: StoredObject
    depth: int
    unpacked: int


class _Delta(NamedTuple):
    """A delta on the way to an object.

    Attributes:
        place: Where it is.
        header: What is said before its bytes.
        size: The bytes of what it makes.
        unpacked: The bytes that are unpacked for it alone.
    """

    place: Place
    header: Header
    size: int
    unpacked: int


def _weight(base: Base) -> int:
    return len(base.found[1]) + _OVERHEAD


_large: Final[BoundedCache[tuple[object, str, int], Base]] = BoundedCache(_LARGE_BYTES, _weight, heaviest=_LARGE_BYTES)
"""Bases of more than 8 MB, of all repositories together: thirty of 9 MB, or one of the greatest size.

Its keys begin with the owner of each base, which drops it when its repository is closed.
"""


class DeltaChains:
    """Reads the objects of the packs of one repository, and keeps some that deltas are based on."""

    def __init__(self) -> None:
        self._owner = object()
        self._small: BoundedCache[tuple[str, int], Base] = BoundedCache(_SMALL_BYTES, _weight)

    def clear(self) -> None:
        """Drop all bases that were kept here."""
        self._small.clear()
        _large.remove(lambda key: key[0] is self._owner)

    def read(
        self, place: Place, locate: Callable[[bytes], Place | None], read_base: Callable[[bytes], StoredObject]
    ) -> StoredObject:
        """Return an object with its deltas applied.

        Args:
            place: Where it is.
            locate: Finds an object in any pack by its id; ``None`` if no pack has it.
            read_base: Reads an object that is in no pack.

        Raises:
            TooLarge: The object, or one that it is based on, is larger than `LARGEST_OBJECT`, or all of them together
                are larger than `MOST_UNPACKED`. No delta was unpacked.
        """
        deltas: list[_Delta] = []
        unpacked = 0
        while (base := self._kept(place)) is None:
            pack, offset = place
            header = pack.header(offset)
            refuse_large(header.size)
            if header.base is None:
                base = Base((header.kind, pack.unpack(header)), 0, header.size)
                if deltas:
                    self._keep(place, base)
                break
            size = pack.size_of_result(header)
            refuse_large(size)
            deltas.append(_Delta(place, header, size, max(header.size + size, _LEAST_UNPACKED)))
            unpacked += deltas[-1].unpacked
            _refuse_long(unpacked)
            if isinstance(header.base, int):
                place = (pack, header.base)
            elif (found := locate(header.base)) is not None:
                place = found
            else:
                base = Base(read_base(header.base), 0, 0)
                break
        _refuse_long(unpacked + base.unpacked)
        return self._applied(deltas, base)

    def _applied(self, deltas: Sequence[_Delta], base: Base) -> StoredObject:
        """Apply deltas, the last one first, and keep what they make for the objects that are read next.

        Of a chain that does not fit into the cache, the object is kept, for those that are based on it, and every
        second on the way, or fourth, or eighth: as many as fill half of the cache. They stay the same ones, so any
        object of the chain is a few deltas away from one that is kept.
        """
        room = _room(max((delta.size for delta in deltas), default=0))
        apart = 1
        while (base.depth + len(deltas)) // apart > room:
            apart *= 2
        for distance in reversed(range(len(deltas))):
            place, header, _, unpacked = deltas[distance]
            kind, data = base.found
            made = b"".join(apply_delta(data, place[0].unpack(header)))
            base = Base((kind, made), base.depth + 1, base.unpacked + unpacked)
            if distance == 0 or base.depth % apart == 0:
                self._keep(place, base)
        return base.found

    def _kept(self, place: Place) -> Base | None:
        path, offset = place[0].path, place[1]
        return self._small.get((path, offset)) or _large.get((self._owner, path, offset))

    def _keep(self, place: Place, base: Base) -> None:
        path, offset = place[0].path, place[1]
        if _is_small(len(base.found[1])):
            self._small.put((path, offset), base)
        else:
            _large.put((self._owner, path, offset), base)


def _is_small(size: int) -> bool:
    return size + _OVERHEAD <= _SMALL_BYTES // 4


def _room(size: int) -> int:
    """How many objects of a size fill half of the cache."""
    return max((_SMALL_BYTES if _is_small(size) else _LARGE_BYTES) // (size + _OVERHEAD) // 2, 1)


def _refuse_long(unpacked: int) -> None:
    if unpacked > MOST_UNPACKED:
        raise TooLarge(
            f"is packed as a chain of deltas of more than {MOST_UNPACKED:,} bytes; `git repack -a -d -f --depth=10` "
            "shortens it"
        )
