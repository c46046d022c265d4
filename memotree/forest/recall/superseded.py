"""Which nodes are superseded, by which nodes, and since when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memotree_storage.model.attribute_names import VALID_FROM
from memotree_storage.model.validity import SUPERSEDES, seconds
from memotree_storage.postgres import tree
from memotree_storage.postgres.superseding import Superseding
from memotree_storage.postgres.tree import Snapshot


@dataclass(frozen=True, slots=True)
class Superseded:
    """The end of a superseded node.

    Attributes:
        at: When the first node that supersedes it begins to hold, in seconds since 1970.
        by: The ids of the nodes that supersede it, the first one first.
    """

    at: float
    by: tuple[str, ...]


def superseded(relations: Iterable[Superseding], now: float) -> dict[str, Superseded]:
    """Returns the superseded nodes by id.

    A node begins to hold with its attribute `valid_from`, else when its version was committed, else now.

    Args:
        relations: The relations.
        now: The time in seconds since 1970; what was committed by a clock that is ahead counts from now on.
    """
    found: dict[str, list[tuple[float, str]]] = {}
    for one in relations:
        committed = now if one.committed_at is None else min(now, one.committed_at.timestamp())
        found.setdefault(one.target_id, []).append((seconds(one.valid_from, committed), one.entry_id))
    return {target: Superseded(min(by)[0], tuple(key for _, key in sorted(by))) for target, by in found.items()}


async def superseded_among(snapshot: Snapshot, ids: Iterable[str], now: float) -> Mapping[str, Superseded]:
    """Returns those of some nodes that are superseded at a state, by id; ``now`` as for `superseded`."""
    wanted = set(ids)
    if not wanted:
        return {}
    relations = (
        Superseding(one.archive_id, one.entry_id, relation[1], one.attributes.get(VALID_FROM), one.committed_at)
        for one in await tree.pointing_at(snapshot, wanted)
        for relation in one.relations
        if relation[0] == SUPERSEDES and relation[1] in wanted
    )
    return superseded(relations, now)
