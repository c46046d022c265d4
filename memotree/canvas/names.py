"""Finds the nodes that a name means: an id, the beginning of one, a title, or a path of titles."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import is_id_prefix
from memotree_storage.postgres import titles, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot

from memotree.request.lookup import needed

_DEFAULT_CANDIDATES: Final = 20
_MOST_CANDIDATES: Final = 100
_MOST_OF_ONE_TITLE: Final = 1000
"""How many nodes with the last title of a path are looked at."""
_MOST_SLASHES: Final = 4
"""Of how many steps of a path the last title may be made."""
_SEPARATOR: Final = re.compile(r"(?<!\\)/")


@dataclass(frozen=True, slots=True)
class Named:
    """A node, and the path that leads to it."""

    version: Version
    path: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a name means: the candidates, whether there are more, and what a person should know about them."""

    candidates: Sequence[Named]
    more: bool = False
    warnings: Sequence[str] = ()


def most_candidates(given: int) -> int:
    """How many candidates are listed: 20 for 0, never more than 100.

    Raises:
        InvalidInputError: The number is below 0.
    """
    if given < 0:
        raise InvalidInputError.at("max_candidates", "must be 0 or more.")
    return min(given or _DEFAULT_CANDIDATES, _MOST_CANDIDATES)


async def resolve(snapshot: Snapshot, name: str, most: int) -> Found:
    """The nodes that ``name`` means: by id, else by title, else by path."""
    by_title = await titles.titled(snapshot, needed("name", name), limit=most + 1)
    by_id = await _by_id(snapshot, name)
    if by_id:
        others = [version for version in by_title if version.entry_id not in {one.entry_id for one in by_id}]
        warning = f"{name!r} is taken as an id; a node with this title is {others[0].entry_id}." if others else ""
        return await _found(snapshot, by_id, most, [warning] if warning else [])
    if by_title:
        return await _found(snapshot, by_title, most)
    return await _by_path(snapshot, name, most)


async def beginning(snapshot: Snapshot, name: str, most: int) -> Found:
    """The nodes whose title begins with ``name``."""
    return await _found(snapshot, await titles.titled(snapshot, name, prefix=True, limit=most + 1), most)


async def _by_id(snapshot: Snapshot, name: str) -> list[Version]:
    if not is_id_prefix(name):
        return []
    found = await tree.versions(snapshot, await tree.with_prefix(snapshot, name))
    return [version for version in found.values() if not version.is_archive]


async def _by_path(snapshot: Snapshot, name: str, most: int) -> Found:
    r"""The nodes at the end of a path; one that begins at the archive comes before those that begin further down.

    A slash within a title is written ``\/``. Names of documents have slashes, so a path that means nothing otherwise
    may have them as they are: ``docs/guide.md/Limits``.
    """
    steps = [_plain(step) for step in _SEPARATOR.split(name.strip("/"))]
    if len(steps) == 1:
        return Found([])
    ends = await titles.titled(snapshot, steps[-1], limit=_MOST_OF_ONE_TITLE)
    routes = await _routes(snapshot, ends)
    whole = [version for version in ends if routes[version.entry_id] == steps]
    fitting = whole or [version for version in ends if routes[version.entry_id][-len(steps) :] == steps]
    return await _found(snapshot, fitting or await _with_slashes(snapshot, steps, ends, routes), most)


async def _with_slashes(
    snapshot: Snapshot, steps: Sequence[str], ends: Sequence[Version], routes: Mapping[str, Sequence[str]]
) -> list[Version]:
    """The nodes at the end of a path in whose titles slashes are not escaped."""
    known, found = dict(routes), list(ends)
    for parts in range(2, min(len(steps), _MOST_SLASHES) + 1):
        longer = await titles.titled(snapshot, "/".join(steps[-parts:]), limit=_MOST_OF_ONE_TITLE)
        known |= await _routes(snapshot, longer)
        found += longer
    wanted = f"/{'/'.join(steps)}"
    fitting = [version for version in found if f"/{'/'.join(known[version.entry_id])}".endswith(wanted)]
    whole = [version for version in fitting if f"/{'/'.join(known[version.entry_id])}" == wanted]
    return whole or fitting


async def _found(snapshot: Snapshot, versions: Sequence[Version], most: int, warnings: Sequence[str] = ()) -> Found:
    shown = versions[:most]
    routes = await _routes(snapshot, shown)
    named = [Named(version, "/".join(map(_escaped, routes[version.entry_id]))) for version in shown]
    return Found(sorted(named, key=lambda one: (one.path, one.version.entry_id)), len(versions) > most, warnings)


async def _routes(snapshot: Snapshot, versions: Sequence[Version]) -> dict[str, list[str]]:
    """For each node, the name of its archive, the titles of its ancestors, and its own."""
    ways = await tree.ancestors(snapshot, [version.entry_id for version in versions])
    above = {entry_id for way in ways.values() for entry_id in way} | {version.archive_id for version in versions}
    known = await tree.versions(snapshot, above)
    return {
        version.entry_id: [
            *(known[one].title for one in (version.archive_id, *ways[version.entry_id]) if one in known),
            version.title,
        ]
        for version in versions
    }


def _escaped(title: str) -> str:
    return title.replace("/", r"\/")


def _plain(step: str) -> str:
    return step.replace(r"\/", "/")
