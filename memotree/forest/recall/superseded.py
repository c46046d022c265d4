"""Which nodes are superseded, by which nodes, and since when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from memotree_storage.model.validity import seconds
from memotree_storage.postgres.superseding import Superseding, superseding
from memotree_storage.postgres.tree import Snapshot


@dataclass(frozen=True, slots=True)
class Superseded:
    """The end of a superseded node.

    Attributes:
        at: When the first node that supersedes it begins to hold, in seconds since 1970: with its attribute
            `valid_from`, else with the first commit of the relation; infinity if that is only staged.
        is_over: Whether one of these nodes has no `valid_from`: then the node does not hold now, whatever the clocks of
            the commits say.
        by: The ids of the nodes that supersede it, the first one first.
    """

    at: float
    is_over: bool
    by: tuple[str, ...]


def superseded(relations: Iterable[Superseding]) -> dict[str, Superseded]:
    """Returns the superseded nodes by id."""
    found: dict[str, list[tuple[float, str, bool]]] = {}
    for one in relations:
        recorded = inf if one.since is None else one.since.timestamp()
        begin = seconds(one.valid_from, recorded)
        found.setdefault(one.target_id, []).append((begin, one.entry_id, seconds(one.valid_from, inf) == inf))
    return {
        target: Superseded(min(by)[0], any(each[2] for each in by), tuple(each[1] for each in sorted(by)))
        for target, by in found.items()
    }


async def superseded_among(snapshot: Snapshot, ids: Iterable[str]) -> Mapping[str, Superseded]:
    """Returns those of some nodes that are superseded at a state, by id."""
    wanted = set(ids)
    return superseded(await superseding(snapshot, targets=wanted)) if wanted else {}
