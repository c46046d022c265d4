"""The lowest common ancestors of what a search found: several hits of one tree become the one node that holds them all.

Ways are compared by whole steps, not by characters, so that ``1/5`` is no beginning of ``1/52``. A tree is what stands
under one root: hits below different roots of one archive have no common ancestor and stay apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hit:
    """A found node: the ids from its root down to itself, and its score."""

    way: tuple[str, ...]
    score: float

    @property
    def node_id(self) -> str:
        """The node."""
        return self.way[-1]


@dataclass(frozen=True, slots=True)
class Representative:
    """The node that stands for hits of one tree: a hit alone is its own; the score is the best hit's."""

    node_id: str
    score: float
    hits: tuple[Hit, ...]


def representatives(hits: Iterable[Hit]) -> list[Representative]:
    """One node for each tree that has hits, best first, equals by id; the hits of one are best first too."""
    trees: dict[str, list[Hit]] = {}
    for hit in hits:
        trees.setdefault(hit.way[0], []).append(hit)
    found = [_representative(tree) for tree in trees.values()]
    return sorted(found, key=lambda one: (-one.score, one.node_id))


def lowest_common_ancestor(ways: Sequence[Sequence[str]]) -> str:
    """The last node that all ways have in common; one of them itself when it is above all others.

    Args:
        ways: One or more ways from one root down, each with the node itself at its end.
    """
    last = ways[0][0]
    for steps in zip(*ways, strict=False):
        if any(step != steps[0] for step in steps):
            break
        last = steps[0]
    return last


def _representative(tree: Sequence[Hit]) -> Representative:
    ordered = tuple(sorted(tree, key=lambda hit: (-hit.score, hit.node_id)))
    return Representative(lowest_common_ancestor([hit.way for hit in ordered]), ordered[0].score, ordered)
