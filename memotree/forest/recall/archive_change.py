"""Makes the snapshot of a changed archive from the one before, at the cost of what changed.

Whatever the rows of an archive say, the result is the one that reading the whole archive would give
(`snapshot_comparison.same`). Where the rows before and the changes do not say enough, the whole archive is read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

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
    document_starts,
    is_leaf,
    moment_of,
    own_validity,
    time_note,
)
from memotree.forest.recall.headings import WHOLE, HeadingTree
from memotree.forest.recall.leaf_blocks import picked
from memotree.forest.recall.scoring.leaf_index import heading_segment, text_segment
from memotree.forest.recall.scoring.leaf_rows import RowChange
from memotree.forest.recall.scoring.runs import Runs
from memotree.forest.recall.scoring.splicing import Documents, FreshLeaves, Neighbours, changed_index
from memotree.forest.recall.tree_order import (
    Placed,
    TreeOrder,
    UnclearOrderError,
    places_of,
    reordered,
    unchanged_order,
)
from memotree.forest.recall.tree_spans import TreeSpans

_MOST_LEAVES: Final = 5000
"""With more leaves below changed headings than this the whole archive is read."""

Numbers = NDArray[np.int32]


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
        self._nodes = list(changed.alive.values())
        self._changed = changed
        self._number = {node.entry_id: number for number, node in enumerate(self._nodes)}
        self._before = places_of(old.ids, changed.ids)
        tree, stayed = self._tree()
        size = len(old.ids)
        self._parents, self._ends = tree.parents, tree.ends
        self._came_from = tree.runs
        """What each node was before; -1 for one that is put in."""
        places = tree.place_of[np.array([*stayed, *range(size, size + len(self._put))], dtype=np.int64)]
        numbers = [*stayed.values(), *(self._number[node.entry_id] for node in self._put)]
        found = sorted(zip(places.tolist(), numbers, strict=True))
        self._places = [place for place, _ in found]
        """Where the changed nodes are now."""
        self._changed_nodes = [self._nodes[number] for _, number in found]
        """The changed nodes in the same order."""
        self._near_nodes = Neighbours(tree.runs.with_fresh([(place, place + 1) for place in self._places]), size)

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
            return unchanged_order(old.parents, old.ends), stayed
        return reordered(old.ids, old.parents, old.ends, old.order.positions, taken, moved, put), stayed

    def _stands_at(self, place: int, node: TreeNode) -> bool:
        parent = int(self._old.parents[place])
        parent_id = self._old.ids[parent] if parent >= 0 else b""
        return bool(parent_id == node.parent_id.encode() and self._old.order.positions[place] == node.position.encode())

    # --- The snapshot ---

    def _leaves(self) -> tuple[Numbers, Neighbours, list[TreeNode]]:
        """Returns the place of each leaf, what the leaves were before, and the fresh ones."""
        old = self._old
        is_one = [is_leaf(node) for node in self._changed_nodes]
        fresh = [node for node, leaf in zip(self._changed_nodes, is_one, strict=True) if leaf]
        if self._is_same_tree:
            changed = np.array(self._places, dtype=np.int64)
            number = np.searchsorted(old.places, changed)
            was_one = old.places[np.minimum(number, len(old) - 1)] == changed if len(old) else np.zeros(len(changed))
            if was_one.tolist() == is_one:
                leaves = number[np.array(is_one, dtype=bool)].tolist()
                runs = Runs.identity(len(old)).with_fresh([(leaf, leaf + 1) for leaf in leaves])
                return old.places, Neighbours(runs, len(old)), fresh
        leaf_at = {place for place, leaf in zip(self._places, is_one, strict=True) if leaf}
        pieces, runs_made, count = list[NDArray[np.int32]](), list[tuple[int, int, int]](), 0
        for start, end, first in self._near_nodes.runs.each():
            if first < 0:
                piece = np.array([place for place in range(start, end) if place in leaf_at], dtype=np.int32)
                before = -1
            else:
                before, behind = np.searchsorted(old.places, [first, first + end - start]).tolist()
                piece = old.places[before:behind] + np.int32(start - first)
            pieces.append(piece)
            runs_made.append((count, count + len(piece), before))
            count += len(piece)
        places = np.concatenate([old.places[:0], *pieces])
        return places, Neighbours(Runs.made(runs_made), len(old)), fresh

    @property
    def _is_same_tree(self) -> bool:
        return not self._put and not self._taken

    def made(self) -> ArchiveSnapshot:
        """Returns the snapshot."""
        old, nodes = self._old, self._changed_nodes
        places, near, fresh = self._leaves()
        order = self._order(near, fresh)
        is_same = order.document_of is old.order.document_of and places is old.places
        starts = old.leaf_index.starts if is_same else document_starts(order.document_of)
        tree = HeadingTree(self._parents, self._ends, places, starts, order.headings, order.heading_of)
        features = self._features(fresh)
        text = RowChange(near.runs, text_segment(features, [time_note(leaf.time) for leaf in fresh]))
        documents = Documents(near, starts, old.leaf_index.starts)
        headings = self._headings(tree, places, documents)
        types = {name: number for number, name in enumerate(old.types)}
        sets = {tags: number for number, tags in enumerate(old.tag_sets)}
        fresh_types = [types.setdefault(leaf.type, len(types)) for leaf in fresh]
        fresh_tags = [sets.setdefault(frozenset(leaf.tags), len(sets)) for leaf in fresh]
        blobs = np.array([leaf.blob for leaf in fresh], dtype=f"S{BLOB_LENGTH}")
        return ArchiveSnapshot(
            archive_id=old.archive_id,
            ids=self._near_nodes.copied(old.ids, np.array([node.entry_id for node in nodes], dtype=f"S{ID_LENGTH}")),
            parents=self._parents,
            ends=self._ends,
            places=places,
            blobs=old.blobs.of_runs(near.runs, blobs),
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
                TreeSpans(self._ends, places, starts, is_same),
                self._borders(places),
            ),
            order=order,
            change=LeafChange(old.number, text, headings),
        )

    def _borders(self, places: Numbers) -> NDArray[np.int64]:
        """Returns the leaves before which a node that is new or has moved begins or ends."""
        put = self._came_from.fresh
        return np.searchsorted(places, np.concatenate([put, self._ends[put]]))

    def _order(self, near: Neighbours, fresh: Sequence[TreeNode]) -> OrderFacts:
        old, nodes, near_nodes = self._old.order, self._changed_nodes, self._near_nodes
        headings = {heading: number for number, heading in enumerate(old.headings)}
        documents = {key: number for number, key in enumerate(old.documents)}
        heading_of = [headings.setdefault(node.heading or "", len(headings)) for node in nodes]
        keys = [document_key(leaf) for leaf in fresh]
        document_of = [-1 if key is None else documents.setdefault(key, len(documents)) for key in keys]
        return OrderFacts(
            positions=near_nodes.copied(old.positions, np.array([node.position.encode() for node in nodes], dtype="S")),
            headings=tuple(headings),
            heading_of=near_nodes.copied(old.heading_of, np.array(heading_of, dtype=np.int32)),
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
        runs = documents.near.runs.with_fresh(self._other_headings(tree, places, documents))
        fresh = runs.fresh
        if len(fresh) > _MOST_LEAVES:
            raise UnclearOrderError
        if not tree.heading_of.any():
            return RowChange(runs, heading_segment([()] * len(fresh)))
        return RowChange(runs, heading_segment([tree.of(leaf) for leaf in fresh.tolist()]))

    def _other_headings(self, tree: HeadingTree, places: Numbers, documents: Documents) -> list[tuple[int, int]]:
        """Returns ranges of leaves that may have other headings."""
        old = self._old
        found: list[tuple[int, int]] = []
        was = HeadingTree(
            old.parents, old.ends, old.places, old.leaf_index.starts, old.order.headings, old.order.heading_of
        )
        befores = self._came_from.source_at(np.array(self._places, dtype=np.int64)).tolist()
        for node, before in zip(self._places, befores, strict=True):
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
            if size == size_before and places is old.places:
                continue  # no node is wider than before
            for node in self._flips(tree, was, document, (size, size_before)).tolist():
                start, end = tree.leaves_below(node)
                found.append((max(start, first), min(end, first + size)))
        return [(start, end) for start, end in found if start < end]

    def _flips(self, tree: HeadingTree, was: HeadingTree, document: int, sizes: tuple[int, int]) -> NDArray[np.int64]:
        """Returns the nodes over a document whose heading counts now and did not count before, or the other way round.

        Only a node that is wide now or was wide before can be one; most are not, and need not be looked at closely.
        """
        nodes = tree.over(document)
        before = self._came_from.source_at(nodes)
        nodes, before = nodes[before >= 0], before[before >= 0]
        least = WHOLE * min(sizes)
        wide = (self._ends[nodes] - nodes >= least) | (self._old.ends[before] - before >= least)
        nodes, before = nodes[wide], before[wide]
        flips: NDArray[np.int64] = nodes[tree.shown(nodes, sizes[0]) != was.shown(before, sizes[1])]
        return flips

    def _documents(self, tree: HeadingTree, places: Numbers, documents: Documents) -> list[int]:
        """Returns the documents in which another heading may count: of another size, or below nodes of another width.

        A node that is wider than a document never counts in it. So of the documents below a node whose width changed,
        only the first and the last one are looked at, which may be partly outside of it. Widths change above what
        moved, also where the order of leaves stays.
        """
        if not tree.heading_of.any() and not self._old.order.heading_of.any():
            return []
        found, starts = set(documents.changed.tolist()), documents.starts
        for place in np.union1d(documents.near.broken, self._borders(places)).tolist():
            for leaf in {max(place - 1, 0), min(place, len(places) - 1)} if len(places) else ():
                node = int(places[leaf])
                while node >= 0:
                    first, behind = np.searchsorted(places, [node, self._ends[node]]).tolist()
                    found.update((np.searchsorted(starts[:-1], [first, behind - 1], side="right") - 1).tolist())
                    node = int(self._parents[node])
        return sorted(found)
