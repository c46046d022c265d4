"""A recall returns exactly the leaves that are alive and hold at its state, after any commits, branches and edits.

The model is brute force: the leaves are the alive nodes with a content of their own that have not ended and that no
alive node supersedes. All vectors of these tests have only positive components, so that every leaf is similar to every
question.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from campaigns import effort
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from integration.recall.talks import Models
from memotree_storage.model.node import Archive, Entry, Node, Relation
from property.drafted_states import PLACES, START, DraftedStates, Wanted, childless
from property.store_harness import StoreHarness, numbered_id, pick

from memotree.forest.recall.ancestry import Hit, representatives
from memotree.forest.recall.recall import Recall
from memotree.request.limits import ServiceLimits
from memotree.v1 import forest_service_pb2 as pb

ARCHIVES: Final = [Archive(numbered_id(1_000_000 + number), f"a{number}", f"model-{number % 2}") for number in range(3)]
NOW: Final = f"{datetime.now(UTC):%Y-%m-%d}"
WORD: Final = "apple"
DAYS: Final = ["2001-01-01", "2002-01-01", "2099-01-01"]
TYPES: Final = ["note", "leaf_chunk", "summary_node"]

KINDS: Final = ["create", "create", "edit", "move", "archive", "delete", "date", "supersede"]

choices = st.integers(0, 1000)
edits = st.lists(st.tuples(st.sampled_from(KINDS), choices, choices), min_size=1, max_size=3)


@pytest.fixture
def harness(postgres: str, tmp_path: Path) -> Iterator[StoreHarness]:
    """A store whose indexer runs only if a recall waits for it."""
    opened = StoreHarness.open(postgres, tmp_path)
    opened.run(opened.store.indexer.stop())
    try:
        yield opened
    finally:
        opened.close()


class Recalls(DraftedStates):
    """Random commits, branches and sessions; after each step some states are recalled."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        models = Models(harness.store.embedder)
        self.recalling = Recall(harness.store, ServiceLimits(), models, cache_bytes=40_000, related=lambda _: ())

    @initialize()
    def begin(self) -> None:
        self.order.clear()  # no node may be made where there is no archive
        self._commit("main", {archive.id: archive for archive in ARCHIVES})
        self.commit(0, [("create", number, number) for number in range(4)])
        self.open(0)

    # --- steps ---

    @rule(branch=choices, wanted=edits)
    def commit(self, branch: int, wanted: Wanted) -> None:
        name = pick(sorted(self.refs), branch)
        self._commit(name, self._changes(self.states[self.refs[name]], wanted))

    @rule(at=choices)
    def fork(self, at: int) -> None:
        """Create or move the branch ``side`` to any commit."""
        self._point("side", pick(self.order, at))

    @precondition(lambda self: len(self.drafts) < 2)
    @rule(branch=choices)
    def open(self, branch: int) -> None:
        self._open(pick(sorted(self.refs), branch))

    @rule(which=choices, first=edits, second=edits)
    def stage_twice(self, which: int, first: Wanted, second: Wanted) -> None:
        """Change a session between two recalls; the second sees the change."""
        self.stage(which, first)
        self.leaves_are_the_alive_ones()
        self.stage(which, second)

    @rule(which=choices, wanted=edits)
    def stage(self, which: int, wanted: Wanted) -> None:
        draft = pick(self.drafts, which)
        self._stage(draft, self._changes(self._state_of(draft), wanted))

    @rule()
    def rebuild(self) -> None:
        """Rebuild: the lines and versions of the mirror have new ids afterwards.

        A commit that no branch reaches any more is not mirrored again.
        """
        reached: set[str] = set()
        for tip in self.refs.values():
            commit_id: str | None = tip
            while commit_id is not None and commit_id not in reached:
                reached.add(commit_id)
                commit_id = self.parents.get(commit_id)
        self.order = [commit_id for commit_id in self.order if commit_id in reached]
        self.drafts = [draft for draft in self.drafts if draft.base in reached]
        self.harness.run(self.harness.store.rebuild(self.workspace))
        self.harness.run(self.harness.store.indexer.stop())

    # --- what holds ---

    @invariant()
    def leaves_are_the_alive_ones(self) -> None:
        for commit_id in dict.fromkeys([*self.refs.values(), pick(self.order, self.count)]):
            self._check(commit_id, commit_id, self.states[commit_id])
        for draft in self.drafts:
            self._check(draft.id, draft.base, self._state_of(draft))

    def _check(self, revision: str, commit_id: str, alive: dict[str, Entry]) -> None:
        every = {
            key: node
            for key, node in alive.items()
            if isinstance(node, Node) and node.type != "summary_node" and node.content
        }
        assert self._recalled(revision, commit_id, include_outdated=True) == every.keys()
        assert self._recalled(revision, commit_id, valid_at=DAYS[0]) == {
            key for key, node in every.items() if self._holds(alive, node, DAYS[0])
        }
        leaves = {key: node for key, node in every.items() if self._holds(alive, node)}
        assert self._recalled(revision, commit_id) == leaves.keys()
        here = ARCHIVES[self.count % 3]
        assert self._recalled(revision, commit_id, archives=[here.id]) == {
            key for key, node in leaves.items() if node.archive_id == here.id
        }
        of_model = {archive.id for archive in ARCHIVES if archive.model_id == "model-0"}
        assert self._recalled(revision, commit_id, model_id="model-0", tags=["tagged"]) == {
            key for key, node in leaves.items() if node.archive_id in of_model and node.tags
        }
        tops = sorted(key for key, entry in alive.items() if isinstance(entry, Node))
        if tops:
            top = pick(tops, self.count)
            assert self._recalled(revision, commit_id, scope_node_id=top) == {
                key for key in leaves if top in self._way(alive, key)
            }
        self._check_nodes(revision, alive, here)

    def _recalled(self, revision: str, commit_id: str, **wanted: Any) -> set[str]:
        answer = self._ask(revision, wanted, token_budget=100_000)
        assert answer.commit_id == commit_id
        found = [one for passage in answer.passages for one in passage.nodes]
        ids = {one.node.id for one in found}
        assert len(ids) == len(found) == answer.leaves_considered
        alive = self._known(revision)
        for one in found:
            node = alive[one.node.id]
            assert isinstance(node, Node)
            assert (one.node.content, one.node.archive_id) == (node.content, node.archive_id)
            assert (one.node.title, tuple(one.node.tags)) == (node.title, node.tags)
            assert list(one.node.path) == self._way(alive, node.id)[:-1]
        for passage in answer.passages:
            assert {one.node.archive_id for one in passage.nodes} == {passage.archive_id}
        return ids

    def _check_nodes(self, revision: str, alive: dict[str, Entry], here: Archive) -> None:
        """Recall with the strategies that search the index."""
        inside = {
            key
            for key, node in alive.items()
            if isinstance(node, Node) and node.archive_id == here.id and self._holds(alive, node)
        }
        wanted = {"archives": [here.id]}
        flat = self._ask(revision, wanted, strategy=pb.RECALL_STRATEGY_COLLAPSED, top_k=1000)
        assert {one.node.id for one in flat.nodes} == inside
        tops = self._ask(revision, wanted, strategy=pb.RECALL_STRATEGY_LCA, top_k=1000)
        assert {one.node.id for one in tops.nodes} == self._tops(alive, inside)

    def _tops(self, alive: dict[str, Entry], inside: set[str]) -> set[str]:
        """The lowest common ancestor of the nodes of each tree, or if that does not hold, these nodes themselves."""
        found = set[str]()
        ways = [self._way(alive, key) for key in sorted(inside)]
        for root in {way[0] for way in ways}:
            tree_ways = [way for way in ways if way[0] == root]
            shared = [steps[0] for steps in zip(*tree_ways, strict=False) if len(set(steps)) == 1]
            top = alive[shared[-1]]
            assert isinstance(top, Node)
            found |= {top.id} if self._holds(alive, top) else {way[-1] for way in tree_ways}
        return found

    def _ask(self, revision: str, wanted: dict[str, Any], **fields: Any) -> pb.RecallResponse:
        request = pb.RecallRequest(
            workspace=self.workspace, revision=revision, query=WORD, filter=pb.RecallFilter(**wanted), **fields
        )
        return self.harness.run(self.recalling.recall(request))

    # --- by hand ---

    @staticmethod
    def _holds(alive: dict[str, Entry], node: Node, day: str = "") -> bool:
        """Whether a node holds on a day, or without one has not ended by now."""
        begin, end = node.attributes.get("valid_from", "0000"), node.attributes.get("valid_to", "9999")
        if begin >= end:  # as only a push can write it; then it says nothing
            begin, end = "0000", "9999"
        for other in alive.values():
            if isinstance(other, Node) and Relation("SUPERSEDES", node.id) in other.relations:
                end = min(end, other.attributes.get("valid_from", str(START)))
        return begin <= day < end if day else end > NOW

    def _known(self, revision: str) -> dict[str, Entry]:
        if revision in self.states:
            return self.states[revision]
        return self._state_of(next(draft for draft in self.drafts if draft.id == revision))

    @staticmethod
    def _way(alive: dict[str, Entry], key: str) -> list[str]:
        way = [key]
        while isinstance(node := alive[way[0]], Node) and node.parent_id is not None:
            way.insert(0, node.parent_id)
        return way

    def _changed(self, kind: str, nodes: list[Node], first: int, second: int) -> Node:
        made: Node = pick(nodes, first)
        if kind == "archive":
            return replace(pick(childless(nodes), first), parent_id=None, archive_id=pick(ARCHIVES, second).id)
        if kind == "date":
            times = {"valid_from": DAYS[first % 3], "valid_to": DAYS[second % 3]}
            return replace(made, attributes={key: times[key] for key in sorted(times)[: second % 3]})
        target: Node = pick(nodes, second)  # to be superseded
        others = (each for each in made.relations if each.target_id != target.id)
        relations = tuple(sorted([*others, Relation("SUPERSEDES", target.id)])) if target.id != made.id else ()
        return replace(made, relations=relations)

    def _node(self, node_id: str, parent: Node | None, number: int) -> Node:
        kind = pick(TYPES, number)
        return Node(
            node_id,
            parent.archive_id if parent else pick(ARCHIVES, number).id,
            parent.id if parent else None,
            pick(PLACES, number),
            type=kind,
            title=f"{WORD} {number}",
            summary=f"{WORD} {number}",
            content="" if kind == "summary_node" or number % 7 == 0 else f"{WORD} number {number}",
            tags=("tagged",) if number % 3 else (),
        )


@pytest.mark.requirement("FOREST-6", "FOREST-8", "STORE-5", "GIT-4")
def test_a_recall_returns_exactly_the_alive_leaves_of_its_state(harness: StoreHarness) -> None:
    run_state_machine_as_test(lambda: Recalls(harness), settings=effort(3, steps=12, shrink=False))


# --- The lowest common ancestor, which is above or is every hit of a tree ---------------------------------------------

forests = st.lists(st.integers(-1, 30), min_size=1, max_size=32).map(
    lambda wanted: [min(parent, number - 1) for number, parent in enumerate(wanted)]
)
"""Trees as the number of each node's parent, which has a lower number; -1 for a root."""


def way_to(parents: list[int], number: int) -> tuple[str, ...]:
    above = way_to(parents, parents[number]) if parents[number] >= 0 else ()
    return (*above, str(number))


def model(parents: list[int], numbers: set[int]) -> int:
    """Computed by sets of ancestors: the common ancestor with most nodes above it."""
    common = set.intersection(*({int(step) for step in way_to(parents, number)} for number in numbers))
    return max(common, key=lambda number: len(way_to(parents, number)))


@pytest.mark.requirement("FOREST-6")
@given(forests, st.data())
def test_hits_of_one_root_become_their_deepest_common_ancestor_with_the_best_score(
    parents: list[int], data: st.DataObject
) -> None:
    numbers = data.draw(st.sets(st.integers(0, len(parents) - 1), min_size=1))
    scores = {number: data.draw(st.sampled_from([0.2, 0.4, 0.6, 0.8])) for number in sorted(numbers)}
    found = representatives([Hit(way_to(parents, number), scores[number]) for number in sorted(numbers)])
    expected = []
    for root in {way_to(parents, number)[0] for number in numbers}:
        tree = {number for number in numbers if way_to(parents, number)[0] == root}
        expected.append((str(model(parents, tree)), max(scores[number] for number in tree), len(tree)))
    assert sorted((one.node_id, one.score, len(one.hits)) for one in found) == sorted(expected)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
