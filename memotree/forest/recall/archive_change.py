"""Makes the snapshot of a changed archive from the one before, at the cost of what changed.

Whatever the rows of an archive say, the result is the one that reading the whole archive would give
(`snapshot_comparison.same`). Where the rows before and the changes do not say enough, the whole archive is read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeVar

import numpy as np
from memotree_storage.index.leaf_features import LeafFeatureBlock
from memotree_storage.model.node import ID_LENGTH
from memotree_storage.postgres.archive_trees import TreeNode
from numpy.typing import NDArray

from memotree.forest.recall.archive_snapshot import (
    BLOB_LENGTH,
    LONGEST_POSITION,
    ArchiveSnapshot,
    LeafChange,
    OrderFacts,
    Validity,
    document_key,
    document_spans,
    document_starts,
    is_leaf,
    moment_of,
    own_validity,
    time_note,
)
from memotree.forest.recall.headings import HeadingTree
from memotree.forest.recall.leaf_blocks import picked
from memotree.forest.recall.scoring.leaf_index import heading_segment, text_segment
from memotree.forest.recall.scoring.leaf_rows import RowChange
from memotree.forest.recall.scoring.splicing import Documents, FreshLeaves, Neighbours, changed_index
from memotree.forest.recall.tree_order import Placed, TreeOrder, UnclearOrderError, reordered

_MOST_LEAVES: Final = 5000
"""With more leaves below changed headings than this the whole archive is read."""

Numbers = NDArray[np.int32]

_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class ChangedNodes:
    """The nodes of an archive that may differ from an earlier state.

    Attributes:
        ids: Their ids, and those of nodes that came from elsewhere or went.
        alive: Those that are alive in the archive now, by id; their parents as their files say.
        features: The features of those of them that are leaves, in the order of ``alive``.
    """

    ids: Collection[str]
    alive: Mapping[str, TreeNode]
    features: LeafFeatureBlock

    @property
    def leaves(self) -> list[TreeNode]:
        """Those that are leaves now."""
        return [node for node in self.alive.values() if is_leaf(node)]


def changed_snapshot(old: ArchiveSnapshot, changed: ChangedNodes) -> ArchiveSnapshot:
    """Returns the snapshot of an archive after a change.

    Args:
        old: The snapshot before.
        changed: The nodes that may differ, all of them.

    Raises:
        UnclearOrderError: If the whole archive has to be read.
    """
    if not old.order.is_clear:
        raise UnclearOrderError
    return _Change(old, changed).made()


class _Change:
    """One change. Nodes are numbered by their place in pre-order, leaves in document order; ``-1`` is for new ones."""

    def __init__(self, old: ArchiveSnapshot, changed: ChangedNodes) -> None:
        self._old = old
        self._changed = changed
        self._nodes = list(changed.alive.values())
        self._number = {node.entry_id: number for number, node in enumerate(self._nodes)}
        self._before = _places_of(old.ids, changed.ids)
        tree, self._stayed = self._tree()
        size = len(old.ids)
        self._parents, self._ends = tree.parents, tree.ends
        self._node_source = np.where(tree.rows < size, tree.rows, np.int32(-1))
        """For each node its place before."""
        changed_at = np.full(size + len(self._put), -1, dtype=np.int32)
        for place, number in self._stayed.items():
            changed_at[place] = number
        for place, node in enumerate(self._put):
            changed_at[size + place] = self._number[node.entry_id]
        self._change_of = changed_at[tree.rows]
        """For each node its number among the changed ones, if it is one."""
        unchanged = np.where(self._change_of >= 0, np.int32(-1), self._node_source)
        self._near_nodes = Neighbours(unchanged, size)

    def _tree(self) -> tuple[TreeOrder, dict[int, int]]:
        """Returns the order of the nodes, and the changed nodes that stay where they are, by place before."""
        old = self._old
        stayed, taken, moved = dict[int, int](), list[int](), dict[int, int]()
        put: list[Placed] = []
        for entry_id in dict.fromkeys([*self._before, *self._number]):
            place, number = self._before.get(entry_id), self._number.get(entry_id)
            if number is None:
                if place is not None:
                    taken.append(place)
                continue
            node = self._nodes[number]
            if len(node.position) > LONGEST_POSITION:
                raise UnclearOrderError
            if place is not None and self._stands_at(place, node):
                stayed[place] = number
                continue
            if place is not None:
                moved[place] = len(put)
            put.append(Placed(entry_id, node.parent_id, node.position))
        self._put = put
        self._taken = taken
        if not taken and not put:
            rows = np.arange(len(old.ids), dtype=np.int32)
            return TreeOrder(rows, old.parents, old.ends), stayed
        return reordered(old.ids, old.parents, old.ends, old.order.positions, taken, moved, put), stayed

    def _stands_at(self, place: int, node: TreeNode) -> bool:
        parent = int(self._old.parents[place])
        parent_id = self._old.ids[parent] if parent >= 0 else b""
        return bool(parent_id == node.parent_id.encode() and self._old.order.positions[place] == node.position.encode())

    # --- The snapshot ---

    def made(self) -> ArchiveSnapshot:
        """Returns the snapshot."""
        old, nodes = self._old, self._nodes
        is_changed = self._change_of >= 0
        was_leaf = np.zeros(len(old.ids) + 1, dtype=bool)
        was_leaf[old.places] = True
        is_one = np.array([is_leaf(node) for node in nodes] or [False])
        leaf_mask = np.where(is_changed, is_one[self._change_of], was_leaf[self._node_source])
        places = np.flatnonzero(leaf_mask).astype(np.int32)
        leaf_before = np.full(len(old.ids) + 1, -1, dtype=np.int32)
        leaf_before[old.places] = np.arange(len(old), dtype=np.int32)
        source = np.where(is_changed[places], np.int32(-1), leaf_before[self._node_source[places]]).astype(np.int32)
        fresh = [nodes[number] for number in self._change_of[places[source < 0]].tolist()]
        near = Neighbours(source, len(old))
        order = self._order(near, fresh)
        starts = document_starts(order.document_of)
        tree = HeadingTree(self._parents, self._ends, places, starts, order.headings, order.heading_of)
        features = self._features(fresh)
        text = RowChange(source, text_segment(features, [time_note(leaf.time) for leaf in fresh]))
        documents = Documents(near, starts, old.leaf_index.starts)
        headings = self._headings(tree, places, documents)
        types = {name: number for number, name in enumerate(old.types)}
        sets = {tags: number for number, tags in enumerate(old.tag_sets)}
        fresh_types = [types.setdefault(leaf.type, len(types)) for leaf in fresh]
        fresh_tags = [sets.setdefault(frozenset(leaf.tags), len(sets)) for leaf in fresh]
        blobs = np.array([leaf.blob for leaf in fresh], dtype=f"S{BLOB_LENGTH}")
        return ArchiveSnapshot(
            archive_id=old.archive_id,
            ids=self._of_nodes(old.ids, np.array([node.entry_id for node in nodes], dtype=f"S{ID_LENGTH}")),
            parents=self._parents,
            ends=self._ends,
            places=places,
            blobs=near.copied(old.blobs, blobs),
            types=tuple(types),
            type_of=near.copied(old.type_of, np.array(fresh_types, dtype=np.int16)),
            tag_sets=tuple(sets),
            tags_of=near.copied(old.tags_of, np.array(fresh_tags, dtype=np.int32)),
            moments=near.copied(old.moments, np.array([moment_of(leaf) for leaf in fresh], dtype=np.float64)),
            validity=self._validity(near, fresh),
            leaf_index=changed_index(
                old.leaf_index,
                documents,
                text,
                headings,
                FreshLeaves(
                    features.tokens.astype(np.float32),
                    features.lengths.astype(np.float32),
                    [leaf.speaker or "" for leaf in fresh],
                ),
                document_spans(self._ends, places, starts),
                self._borders(places),
            ),
            order=order,
            change=LeafChange(old.number, text, headings),
        )

    def _borders(self, places: Numbers) -> NDArray[np.int64]:
        """Returns the leaves before which a node that is new or has moved begins or ends."""
        put = np.flatnonzero(self._node_source < 0)
        return np.searchsorted(places, np.concatenate([put, self._ends[put]]))

    def _of_nodes(self, old: NDArray[_Kind], new: NDArray[_Kind]) -> NDArray[_Kind]:
        """Returns an array along the nodes from that before, and the values of the changed nodes."""
        if not self._put and not self._taken and not self._stayed:
            return old
        return self._near_nodes.copied(old, new[self._change_of[self._near_nodes.fresh]])

    def _order(self, near: Neighbours, fresh: Sequence[TreeNode]) -> OrderFacts:
        old, nodes = self._old.order, self._nodes
        headings = {heading: number for number, heading in enumerate(old.headings)}
        documents = {key: number for number, key in enumerate(old.documents)}
        heading_of = [headings.setdefault(node.heading or "", len(headings)) for node in nodes]
        keys = [document_key(leaf) for leaf in fresh]
        document_of = [-1 if key is None else documents.setdefault(key, len(documents)) for key in keys]
        return OrderFacts(
            positions=self._of_nodes(old.positions, np.array([node.position.encode() for node in nodes], dtype="S")),
            headings=tuple(headings),
            heading_of=self._of_nodes(old.heading_of, np.array(heading_of, dtype=np.int32)),
            documents=tuple(documents),
            document_of=near.copied(old.document_of, np.array(document_of, dtype=np.int32)),
            is_clear=True,
        )

    def _features(self, fresh: Sequence[TreeNode]) -> LeafFeatureBlock:
        """Returns the features of the fresh leaves, in their order."""
        row = {leaf.entry_id: place for place, leaf in enumerate(self._changed.leaves)}
        return picked(self._changed.features, [row[leaf.entry_id] for leaf in fresh])

    def _validity(self, near: Neighbours, fresh: Sequence[TreeNode]) -> Validity | None:
        old, new = self._old.validity, own_validity(fresh)
        if old is None and new is None:
            return None
        size = len(self._old)
        old = old or Validity(np.full(size, -inf), np.full(size, inf), np.zeros(size, dtype=bool))
        count = len(fresh)
        new = new or Validity(np.full(count, -inf), np.full(count, inf), np.zeros(count, dtype=bool))
        found = Validity(
            near.copied(old.begins, new.begins), near.copied(old.ends, new.ends), near.copied(old.over, new.over)
        )
        return found if found.says else None

    # --- Headings ---

    def _headings(self, tree: HeadingTree, places: Numbers, documents: Documents) -> RowChange:
        """Returns the rows of headings: fresh ones for new leaves, and wherever another heading counts than before."""
        source = documents.near.source.copy()
        for start, end in self._other_headings(tree, places, documents):
            source[start:end] = -1
        fresh = np.flatnonzero(source < 0)
        if len(fresh) > _MOST_LEAVES:
            raise UnclearOrderError
        if not tree.heading_of.any():
            return RowChange(source, heading_segment([()] * len(fresh)))
        return RowChange(source, heading_segment([tree.of(leaf) for leaf in fresh.tolist()]))

    def _other_headings(self, tree: HeadingTree, places: Numbers, documents: Documents) -> list[tuple[int, int]]:
        """Returns ranges of leaves that may have other headings."""
        old = self._old
        found: list[tuple[int, int]] = []
        was = HeadingTree(
            old.parents, old.ends, old.places, old.leaf_index.starts, old.order.headings, old.order.heading_of
        )
        changed_at = np.flatnonzero(self._change_of >= 0)
        for node in changed_at.tolist():
            before = int(self._node_source[node])
            # Headings that there were before keep their numbers.
            if before < 0 or tree.heading_of[node] != old.order.heading_of[before]:
                found.append(tree.leaves_below(node))
        starts = documents.starts
        for document in self._documents(tree, places, documents):
            first = int(starts[document])
            homes = documents.homes(document)
            if not homes:
                continue
            if len(homes) > 1:
                found.append((first, int(starts[document + 1])))
                continue
            (before,) = homes
            size = int(starts[document + 1] - starts[document])
            size_before = int(old.leaf_index.starts[before + 1] - old.leaf_index.starts[before])
            nodes = tree.over(document)
            nodes = nodes[self._node_source[nodes] >= 0]
            flips = tree.shown(nodes, size) != was.shown(self._node_source[nodes], size_before)
            for node in nodes[flips].tolist():
                start, end = tree.leaves_below(node)
                found.append((max(start, first), min(end, first + size)))
        return [(start, end) for start, end in found if start < end]

    def _documents(self, tree: HeadingTree, places: Numbers, documents: Documents) -> list[int]:
        """Returns the documents in which another heading may count: of another size, or below nodes of another width.

        A node that is wider than a document never counts in it. So of the documents below a node whose width changed,
        only the first and the last one are looked at, which may be partly outside of it. Widths change above what
        moved, also where the order of leaves stays.
        """
        if not tree.heading_of.any() and not self._old.order.heading_of.any():
            return []
        found, starts = set(documents.changed.tolist()), documents.starts
        for place in np.union1d(np.flatnonzero(documents.near.broken), self._borders(places)).tolist():
            for leaf in {max(place - 1, 0), min(place, len(places) - 1)} if len(places) else ():
                node = int(places[leaf])
                while node >= 0:
                    first, behind = np.searchsorted(places, [node, self._ends[node]]).tolist()
                    found.update((np.searchsorted(starts[:-1], [first, behind - 1], side="right") - 1).tolist())
                    node = int(self._parents[node])
        return sorted(found)


def _places_of(ids: NDArray[np.bytes_], wanted: Collection[str]) -> dict[str, int]:
    """Returns the place of each id that is there."""
    asked = sorted(each for each in wanted if len(each) == ID_LENGTH)
    if not len(ids) or not asked:
        return {}
    halves, keys = (
        np.ascontiguousarray(each).view(np.uint64).reshape(len(each), -1)
        for each in (ids, np.array(asked, dtype=f"S{ID_LENGTH}"))
    )
    found = {}
    for text, key in zip(asked, keys, strict=True):
        near = np.flatnonzero(halves[:, 1] == key[1])
        near = near[halves[near, 0] == key[0]]
        if len(near):
            found[text] = int(near[0])
    return found
