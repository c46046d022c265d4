"""Any history in Git reads the same from the mirror: at every commit, after every step and after a rebuild.

The model is a commit as a dictionary of entries. Branches, tags and merges only name and join commits.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from memotree_storage.erasure.rewriting import Order, rewrite_history
from memotree_storage.git.erasures import rewritten_commits
from memotree_storage.maintenance.line_collection import collect_unreachable_lines
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.erasure import ERASED, ErasureTarget
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import entry_path
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.ports import CommitDraft, TagDraft
from memotree_storage.postgres import archive_trees, misplaced, projector, registry, tree
from memotree_storage.postgres.tree import Snapshot, State
from property.history_rules import MergeRules, Wanted, changes, choices
from property.line_histories import BRANCHES, TAGS, Files, Point, check_merge_bases, columns, row, shuffled
from property.store_harness import StoreHarness, numbered_id, pick
from property.trees import ancestors, archive_tree, check_tree, children, shown, subtree

# --- The machine -----------------------------------------------------------------------------------------------------


class Histories(MergeRules):
    """Random changes of one repository with git's own commands; the mirror catches up."""

    @initialize()
    def make(self) -> None:
        first = self.repository.refs()["refs/heads/main"]
        when = self.repository.commit_info(first).committer.when
        self.model.points[first] = Point(first, (), when, {}, {})
        self.model.refs["refs/heads/main"] = first

    # --- steps ---

    @precondition(lambda self: self._branches())
    @rule(branch=choices, wanted=changes, quiet=st.booleans(), names=choices)
    def commit(self, branch: int, wanted: Wanted, quiet: bool, names: int = 0) -> None:
        ref = pick(self._branches(), branch)
        point = self._write(self._at(ref), (), self._changed(self._at(ref).files, wanted), names)
        self._move(ref, point.commit_id)
        self.behind |= quiet
        self._follow(quiet=quiet)

    @rule(name=st.sampled_from(BRANCHES), at=choices)
    def point_branch(self, name: str, at: int) -> None:
        """Create a branch at any commit, move it back or forward, or create a deleted one again at another commit."""
        self._move(f"refs/heads/{name}", pick(list(self.model.points), at))
        self._follow()

    @precondition(lambda self: self._branches())
    @rule(branch=choices, quiet=st.booleans())
    def delete_branch(self, branch: int, quiet: bool) -> None:
        self._move(pick(self._branches(), branch), None)
        self._follow(quiet=quiet)

    @rule(name=st.sampled_from(TAGS), at=choices, annotated=st.booleans())
    def tag(self, name: str, at: int, annotated: bool) -> None:
        ref, commit_id = f"refs/tags/{name}", pick(list(self.model.points), at)
        target = self.repository.write_tag(TagDraft(name, "A tag\n", self._by()), commit_id) if annotated else commit_id
        assert self.repository.move_ref(ref, self.repository.refs().get(ref), target)
        self.model.refs[ref] = commit_id
        self._follow()

    @rule(name=st.sampled_from(TAGS))
    def delete_tag(self, name: str) -> None:
        self._move(f"refs/tags/{name}", None)
        self._follow()

    @precondition(lambda self: self._branches())
    @rule(branch=choices, other=choices, takes=st.integers(0, 2**12), wanted=st.none() | changes, names=choices)
    def merge(self, branch: int, other: int, takes: int, wanted: Wanted | None, names: int) -> None:
        """Commit with two parents and any tree, as after a merge resolved by hand."""
        ref = pick(self._branches(), branch)
        ours, theirs = self._at(ref), self.model.points[pick(list(self.model.points), other)]
        files: Files = {}
        for number, entry_id in enumerate(sorted({*ours.files, *theirs.files})):
            side = theirs.files if takes >> (number % 12) & 1 else ours.files
            if entry_id in side:
                files[entry_id] = side[entry_id]
        point = self._write(ours, (theirs.commit_id,), self._changed(files, wanted or []), names)
        self._move(ref, point.commit_id)
        self._follow()

    @rule(seed=st.integers(0, 2**32))
    def rebuild(self, seed: int) -> None:
        """Rebuild from Git, with its commits in any order that has parents first, and its refs in any order."""
        with shuffled(self.repository, random.Random(seed)):
            self.harness.run(self.harness.store.rebuild(self.workspace))
        self.behind = False

    @rule()
    def collect(self) -> None:
        """Collect the unreachable lines; all other lines stay."""
        self._follow()
        self.harness.run(self._collect())

    @precondition(lambda self: self._branches() and not self.behind)
    @rule(number=choices)
    def erase(self, number: int) -> None:
        """Erase a text from the whole history: all commits that refs reach may have new ids, the others are gone."""
        text = f"content {number % 40}"
        held = [commit_id for ref, commit_id in self.repository.refs().items() if ref.startswith(KEEP_PREFIX)]
        reached = self.model.reachable(*self.model.refs.values(), *held)
        self.harness.run(self._erase(text))
        self.repository = self.harness.store.repositories.get(self.workspace)
        new = rewritten_commits(self.repository)
        before, self.model.points = self.model.points, {}
        for point in before.values():  # parents come first
            if point.commit_id in reached:
                files = {key: _without(entry, text) for key, entry in point.files.items()}
                parents = tuple(new.get(parent, parent) for parent in point.parents)
                parent = self.model.points[parents[0]] if parents else None
                self._add(new.get(point.commit_id, point.commit_id), parents, point.when, parent, files)
        self.model.refs = {ref: new.get(commit_id, commit_id) for ref, commit_id in self.model.refs.items()}

    # --- what holds ---

    @invariant()
    def every_commit_reads_as_git_has_it(self) -> None:
        if not self.behind:
            self.harness.run(self._check())

    async def _check(self) -> None:
        store = self.harness.store
        async with store.database.connection() as conn:
            known = await projector.known_commits(conn, self.workspace)
            assert self.model.reachable() <= known
            for ref, commit_id in self.model.refs.items():
                _, resolved = await registry.resolve(conn, self.workspace, ref)
                assert resolved.state.commit_id == commit_id
            times = {point.commit_id: point.when for point in self.model.points.values()}
            for commit_id in known:
                await self._check_point(conn, self.model.points[commit_id], times)
            await check_merge_bases(conn, self.workspace, self.model, sorted(known), self.count)
        assert await store._counts_agree(self.workspace)

    async def _check_point(self, conn: Any, point: Point, times: Mapping[str, datetime]) -> None:
        state, alive = State(self.workspace, point.commit_id), point.alive
        found = await tree.everything(Snapshot(conn, state))
        assert [columns(version) for version in found] == [row(point, times, alive[key]) for key in sorted(alive)]
        files: dict[str, Any] = alive
        alive, kinds = cast("tuple[dict[str, Any], dict[str, str]]", shown(files))
        assert {key: place.fault for key, place in (await misplaced.places(conn, state)).items()} == kinds
        await check_tree(Snapshot(conn, state), alive, self.count)
        leaves = await archive_trees.ordered_nodes(Snapshot(conn, state))
        assert sorted(leaf.entry_id for leaf in leaves) == sorted(
            entry.id for entry in alive.values() if isinstance(entry, Node)
        )
        for archive in (entry for entry in alive.values() if isinstance(entry, Archive)):
            below = archive_tree(alive, archive.id)
            inside = {entry_id for entry_id, _ in below}
            elsewhere = any(alive[key].archive_id != files[key].archive_id for key in inside)
            if "other_archive" not in kinds.values():  # such a node begins a tree in its archive
                order: Any = sorted if elsewhere or "cycle" in kinds.values() else list  # these come last
                assert order((leaf.entry_id, leaf.depth) for leaf in leaves if leaf.entry_id in inside) == order(below)
            some = await archive_trees.ordered_nodes(Snapshot(conn, state), {archive.id})
            assert some == [leaf for leaf in leaves if leaf.archive_id == archive.id]
            assert {leaf.entry_id for leaf in some} == {
                entry.id for entry in files.values() if isinstance(entry, Node) and entry.archive_id == archive.id
            }
        nodes = sorted(entry.id for entry in alive.values() if isinstance(entry, Node))
        if nodes:
            below_each = {key: children(alive, key) for key in nodes}
            counts = {key: len(expected) for key, expected in below_each.items()}
            assert await tree.child_counts(Snapshot(conn, state), nodes) == counts
            top = nodes[self.count % len(nodes)]
            walked = await tree.subtree(Snapshot(conn, state), [top])
            assert [(item.entry_id, item.depth) for item in walked] == subtree(alive, [top])
            one = await tree.one(Snapshot(conn, state), top)
            assert one is not None
            assert (columns(one[0]), *one[1:]) == (row(point, times, files[top]), ancestors(alive, top), counts[top])

    # --- by hand ---

    async def _collect(self) -> None:
        store = self.harness.store
        lock = store.locks.workspaces.of(self.workspace)
        await collect_unreachable_lines(store.database, self.workspace, self.repository, lock)

    async def _told_faults(self, commit_id: str) -> list[tuple[str, str]]:
        async with self.harness.store.database.connection() as conn:
            cursor = await conn.execute("select path, description from mirror.fault where commit_id = %s", (commit_id,))
            return await cursor.fetchall()

    async def _erase(self, text: str) -> None:
        self.count += 1
        by = self._by()
        order = Order(numbered_id(self.count), self.workspace, ErasureTarget(text=text), "ada", "It leaked.", by)
        await rewrite_history(self.harness.store, order)


def _without(entry: Entry | None, text: str) -> Entry | None:
    """An entry whose content does not have a text any more, which stands nowhere else."""
    if not isinstance(entry, Node) or text not in entry.content:
        return entry
    return replace(entry, content=entry.content.replace(text, ERASED))


@pytest.mark.requirement("GIT-1", "GIT-3", "GIT-4", "GIT-6", "STORE-3")
def test_the_mirror_of_every_commit_equals_git_after_any_changes_of_branches(harness: StoreHarness) -> None:
    run_state_machine_as_test(lambda: Histories(harness), settings=effort(4, steps=20, shrink=False))


@pytest.mark.requirement("GIT-1", "STORE-3")
def test_a_collected_commit_with_an_unreadable_file_can_be_mirrored_again(harness: StoreHarness) -> None:
    machine = Histories(harness)
    machine.make()
    machine.commit(0, [("create", 0, 0), ("create", 1, 1)], quiet=False)
    machine.commit(0, [("spoil", 0, 0)], quiet=False)
    spoiled = len(machine.model.points) - 1
    machine.point_branch("main", 0)
    machine.commit(0, [("create", 2, 2)], quiet=False)
    machine.collect()
    machine.point_branch("one", spoiled)
    machine.every_commit_reads_as_git_has_it()
    machine.teardown()


@pytest.mark.requirement("GIT-1", "STORE-3")
def test_a_node_and_an_archive_with_the_same_id_are_reported_and_do_not_stop_the_mirror(harness: StoreHarness) -> None:
    machine = Histories(harness)
    machine.make()
    machine.commit(0, [("create", 0, 0), ("create", 1, 1)], quiet=False)
    ref = "refs/heads/main"
    point = machine.model.points[machine.model.refs[ref]]
    twin, archive = numbered_id(999), next(key for key, entry in point.files.items() if isinstance(entry, Archive))
    both = (Archive(twin, "twin"), Node(twin, archive, None, "a0", title="twin"))
    by = machine._by()
    draft = CommitDraft(point.commit_id, {entry_path(one): encode_entry(one) for one in both}, "Two\n", by, by)
    commit_id = machine.repository.write_commit(draft).commit_id
    assert machine.repository.move_ref(ref, point.commit_id, commit_id)
    harness.run(harness.store.catch_up(machine.workspace))
    assert [path for path, _ in harness.run(machine._told_faults(commit_id))] == [entry_path(both[1])]
    machine.teardown()
