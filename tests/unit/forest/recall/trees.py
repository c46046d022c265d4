"""A plain model of an archive for tests of recall: its nodes, random changes of them, and snapshots of it."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

import numpy as np
import pytest
from memotree_storage.index.leaf_features import LeafFeatureBlock, LeafFeatures
from memotree_storage.postgres.archive_trees import TreeNode

from memotree.forest.recall.archive_change import ChangedNodes, changed_snapshot
from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, is_leaf, make_snapshots
from memotree.forest.recall.filters import Filter
from memotree.forest.recall.leaf_blocks import block_of
from memotree.forest.recall.scoring.scores import score
from memotree.forest.recall.search_corpus import SearchCorpus

WIDE = 4
SPEAKERS = (None, None, "Ann", "Ben")
DOCUMENTS = (None, None, "one", "two")
HEADINGS = (None, None, "Harbour", "Lighthouse of the bay")


def features_of(node: TreeNode) -> LeafFeatures:
    chance = np.random.default_rng(node.version_id)
    terms = np.unique(chance.integers(0, 40, 5)).astype(np.uint32)
    vector = chance.normal(size=WIDE).astype(np.float32)
    counts = chance.integers(1, 4, len(terms)).astype(np.uint16)
    return LeafFeatures(terms, counts, node.tokens // 2, node.tokens, vector / np.linalg.norm(vector))


def block(nodes: list[TreeNode]) -> LeafFeatureBlock:
    made = block_of([features_of(node) for node in nodes], WIDE)
    return replace(made, version_ids=np.array([node.version_id for node in nodes], np.int64))


@dataclass
class Tree:
    """A plain model of an archive: its nodes by id."""

    chance: random.Random
    archive: str = "a"
    documents: tuple[str | None, ...] = DOCUMENTS
    sizes: tuple[int, ...] = (0, 1, 5, 40, 200, 900, 3000)
    nodes: dict[str, TreeNode] = field(default_factory=dict)
    versions: "count[int]" = field(default_factory=lambda: count(1))

    def ordered(self) -> list[TreeNode]:
        below: dict[str, list[TreeNode]] = {}
        for node in self.nodes.values():
            below.setdefault(node.parent_id, []).append(node)
        found: list[TreeNode] = []

        def add(parent: str) -> None:
            for node in sorted(below.get(parent, []), key=lambda one: (one.position, one.entry_id)):
                found.append(node)
                add(node.entry_id)

        add("")
        return found

    def whole(self) -> ArchiveSnapshot:
        nodes = self.ordered()
        (made,) = make_snapshots([self.archive], nodes, block([node for node in nodes if is_leaf(node)]), {}, WIDE)
        return made

    def put(self, entry_id: str, parent_id: str, position: str) -> None:
        version, choice = next(self.versions), self.chance.choice
        speaker, document, heading = choice(SPEAKERS), choice(self.documents), choice(HEADINGS)
        kind, size, tags = choice(["note", "plan", "summary"]), choice(self.sizes), choice([[], ["x"], ["y", "x"]])
        time = choice([None, "2023-05-08", "never"])
        valid = choice([None, None, None, "2024-01-01", "some day"]), choice([None, None, None, "2025-01-01"])
        self.nodes[entry_id] = TreeNode(
            *(entry_id, parent_id, position, self.archive, kind, size, version, f"{version:040d}", tags, time),
            *(speaker, document, heading, *valid, datetime(2024, 1, 1, tzinfo=UTC), 0),
        )

    def inside(self, top: str) -> set[str]:
        found = {top}
        while more := {key for key, node in self.nodes.items() if node.parent_id in found} - found:
            found |= more
        return found

    def position(self) -> str:
        return f"a{self.chance.randint(0, 9)}"

    def change(self) -> set[str]:
        """Make one random change; return the ids of the nodes that may differ."""
        chance, keys = self.chance, [*self.nodes]
        kind = chance.choice(["create", "create", "update", "retitle", "move", "delete", "wrap"])
        if kind == "create" or not keys:
            number = chance.randint(0, 200)
            entry_id = f"{number:08d}{number:08d}"
            if entry_id not in self.nodes:
                self.put(entry_id, chance.choice(["", *keys]), self.position())
            return {entry_id}
        node = self.nodes[chance.choice(keys)]
        if kind == "update":
            self.put(node.entry_id, node.parent_id, node.position)
        elif kind == "retitle":
            self.nodes[node.entry_id] = node._replace(
                heading=chance.choice(HEADINGS), version_id=next(self.versions), speaker=chance.choice(SPEAKERS)
            )
        elif kind == "move":
            inside = self.inside(node.entry_id)
            places = ["", *(key for key in keys if key not in inside)]
            self.nodes[node.entry_id] = node._replace(parent_id=chance.choice(places), position=self.position())
        elif kind == "delete":
            gone = self.inside(node.entry_id)
            for key in gone:
                del self.nodes[key]
            return gone
        else:
            return self._wrap(node)
        return {node.entry_id}

    def _wrap(self, node: TreeNode) -> set[str]:
        """Put a node between a node and its parent."""
        entry_id = f"{self.chance.randint(300, 320):016d}"
        if entry_id in self.nodes:
            return set()
        self.put(entry_id, node.parent_id, node.position)
        self.nodes[node.entry_id] = node._replace(parent_id=entry_id, position=self.position())
        return {entry_id, node.entry_id}


def changed(tree: Tree, old: ArchiveSnapshot, ids: set[str]) -> ArchiveSnapshot:
    alive = {key: tree.nodes[key] for key in sorted(ids) if key in tree.nodes}
    return changed_snapshot(old, ChangedNodes(ids, alive, block([node for node in alive.values() if is_leaf(node)])))


def assert_same_answers(one: SearchCorpus, other: SearchCorpus) -> None:
    vector = np.full(WIDE, 0.5, dtype=np.float32)
    assert (one.validity is None) == (other.validity is None)
    if one.validity is not None and other.validity is not None:
        wanted = Filter(moment=1.7e9)
        assert one.validity.admitted(wanted).tolist() == other.validity.admitted(wanted).tolist()
    for question in ("harbour", "Ann said what of the lighthouse"):
        totals = [score(each.leaf_index, question, vector, frequency=lambda _: (3, 50)).total for each in (one, other)]
        assert totals[0] == pytest.approx(totals[1], abs=1e-4)


def tree_of(*placed: tuple[str, str, str]) -> Tree:
    tree = Tree(random.Random(1))
    for entry_id, parent_id, position in placed:
        tree.put(entry_id * 16, parent_id * 16, position)
    return tree
