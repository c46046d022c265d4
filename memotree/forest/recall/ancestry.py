"""Replaces the hits of each tree by their lowest common ancestor.

Paths are compared by whole steps, not by characters, so ``1/5`` is not a prefix of ``1/52``. A tree has one root: hits
below different roots of an archive have no common ancestor and stay apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hit:
    """A found node: its score, and the path of ids from its root to the node itself."""

    path: tuple[str, ...]
    score: float

    @property
    def node_id(self) -> str:
        """The id of the found node."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Representative:
    """The lowest common ancestor of the hits of one tree, with the best hit's score; a single hit represents itself."""

    node_id: str
    score: float
    hits: tuple[Hit, ...]


def representatives(hits: Iterable[Hit]) -> list[Representative]:
    """Returns one node for each tree that has hits, best first, ties by id; its hits are in the same order."""
    trees: dict[str, list[Hit]] = {}
    for hit in hits:
        trees.setdefault(hit.path[0], []).append(hit)
    found = [_representative(tree) for tree in trees.values()]
    return sorted(found, key=lambda top: (-top.score, top.node_id))


def lowest_common_ancestor(paths: Sequence[Sequence[str]]) -> str:
    """Returns the last node that all paths share; it is the end of a path if that node is above all others.

    Args:
        paths: One or more paths from the same root, each ending with the node itself.
    """
    last = paths[0][0]
    for steps in zip(*paths, strict=False):
        if any(step != steps[0] for step in steps):
            break
        last = steps[0]
    return last


def _representative(tree: Sequence[Hit]) -> Representative:
    ordered = tuple(sorted(tree, key=lambda hit: (-hit.score, hit.node_id)))
    return Representative(lowest_common_ancestor([hit.path for hit in ordered]), ordered[0].score, ordered)
