"""Steps of a random history by MemoTree's own rules: merges, also in a session, picks and restores."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from memotree_storage.commit.branch_merge import MergeOrder, MergeStyle, merge_into_branch
from memotree_storage.commit.commit_pick import Pick, PickOrder, pick_commit
from memotree_storage.commit.commit_restore import RestoreOrder, restore_on_branch
from memotree_storage.commit.merge_commit import Identity, MergeConflictError, Merged
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.session_commit import CommitOrder, CommitResult, NothingToCommitError, commit_session
from memotree_storage.commit.session_merge import stage_merge
from memotree_storage.commit.transaction import WorkspaceTransaction, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.errors import MemoTreeError
from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.state_merge import UnreadableFilesError, UnrelatedHistoriesError, merge_states
from memotree_storage.mirror.state_restore import Restored
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Node, Relation, new_id
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import sessions
from memotree_storage.postgres.session_conflicts import conflicts_of, end_conflicts
from memotree_storage.postgres.tree import Snapshot, State
from property.line_histories import (
    PLACES,
    START,
    Files,
    Model,
    Point,
    git_merges,
    join,
    merged_entries,
    merged_files,
    path_of,
    read_commit,
    read_merge,
    restored_files,
    sorting_after,
)
from property.store_harness import StoreHarness, WorkspaceMachine, numbered_id, pick
from property.trees import faults

T = TypeVar("T")

changes = st.lists(
    st.tuples(
        st.sampled_from(["create", "create", "edit", "move", "move", "delete", "spoil", "again", "archive", "drop"]),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=4,
)
choices = st.integers(0, 1000)

Wanted = list[tuple[str, int, int]]
"""Changes: a kind, and two numbers that choose among entries and values."""


class MergeRules(WorkspaceMachine):
    """The steps, a model of the history, and what a person writes with git's own commands."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        self.model = Model()
        self.behind = False
        self.repository: GitRepository = harness.store.repositories.get(self.workspace)

    @precondition(lambda self: self._branches())
    @rule(branch=choices, other=choices, squash=st.booleans(), mine=st.none() | changes, others=st.none() | changes)
    def merge_by_fields(
        self, branch: int, other: int, squash: bool, mine: Wanted | None, others: Wanted | None
    ) -> None:
        """Merge by MemoTree's own rules, after more changes of both sides or none; what conflicts is refused."""
        ref = pick(self._branches(), branch)
        theirs = self._reached(other)
        if others:
            theirs = self._write(theirs, (), self._changed(theirs.files, others))
            self._move("refs/heads/three", theirs.commit_id)
        self._change_branch(ref, mine)
        self._follow()
        ours = self._at(ref)
        bases = self.model.merge_bases(ours.commit_id, theirs.commit_id)
        base = self.model.points[next(iter(bases))] if len(bases) == 1 else None
        expected, conflicts = merged_files(base, ours, theirs) if base else (None, [])
        by = self._by()
        merged = self.harness.run(self._merge(ref, theirs.commit_id, by, squash=squash))
        if isinstance(merged, MemoTreeError):
            assert self.repository.refs()[ref] == ours.commit_id
            # Where a side lacks the entry, git may take its file with a new title for another file.
            if base and any(all(point.files.get(key) for point in (base, ours, theirs)) for key in conflicts):
                assert not git_merges(self.repository, ours, theirs)
            return
        assert not bases or merged.is_new or theirs.commit_id in bases or (squash and expected == ours.files)
        if not merged.is_new:
            return
        info = self.repository.commit_info(merged.commit_id)
        assert info.parents == ((ours.commit_id,) if squash else (ours.commit_id, theirs.commit_id))
        files = expected if expected is not None else read_merge(self.repository, merged, ours)
        assert files is not None
        self._note(merged.commit_id, info.parents, by, ours, files)
        self.model.refs[ref] = merged.commit_id

    @precondition(lambda self: self._branches() and any(len(one.parents) == 1 for one in self.model.points.values()))
    @rule(branch=choices, commit=choices, reverts=st.booleans(), mine=st.none() | changes)
    def pick_by_fields(self, branch: int, commit: int, reverts: bool, mine: Wanted | None) -> None:
        """Revert a commit, or pick one, by MemoTree's own rules; what conflicts is refused."""
        ref = pick(self._branches(), branch)
        self._change_branch(ref, mine)
        self._follow()
        ours, reachable = self._at(ref), self.model.reachable()
        single = [key for key, one in self.model.points.items() if len(one.parents) == 1 and key in reachable]
        if not single:
            return
        point = self.model.points[pick(single, commit)]
        sides = self.model.points[point.parents[0]], point
        base, theirs = sides[::-1] if reverts else sides
        expected, _ = merged_files(base, ours, theirs)
        by = self._by()
        picked = self.harness.run(self._pick(ref, Pick(point.commit_id, reverts=reverts), by))
        if isinstance(picked, MemoTreeError):
            assert self.repository.refs()[ref] == ours.commit_id
            assert not isinstance(picked, NothingToCommitError) or expected == ours.files
            return
        assert expected is not None
        self._note(picked.commit_id, (ours.commit_id,), by, ours, expected)
        self.model.refs[ref] = picked.commit_id

    @precondition(lambda self: self._branches())
    @rule(branch=choices, other=choices, mine=changes, others=changes, later=st.none() | changes)
    def merge_in_a_session(self, branch: int, other: int, mine: Wanted, others: Wanted, later: Wanted | None) -> None:
        """Merge in a session, and choose our side of each conflict; what leaves no tree is refused.

        Both sides have changed something, and the branch changes again (``later``) before the commit, or not.
        """
        ref = pick(self._branches(), branch)
        theirs = self._reached(other)
        theirs = self._write(theirs, (), self._changed(theirs.files, others))
        self._move("refs/heads/three", theirs.commit_id)
        self._change_branch(ref, mine)
        self._follow()
        staged = self.harness.run(self._staged(ref, theirs.commit_id))
        if staged is None:
            return
        before = self._at(ref)
        bases = self.model.merge_bases(before.commit_id, theirs.commit_id)
        if later:
            self._change_branch(ref, later)
            self._follow()
        ours, by = self._at(ref), self._by()
        made = self.harness.run(self._committed(staged, by))
        if made is None or isinstance(made, MemoTreeError):
            assert self.repository.refs()[ref] == ours.commit_id
            return
        info = self.repository.commit_info(made.commit_id)
        joined = theirs.commit_id not in self.model.reachable(ours.commit_id)
        assert info.parents == ((ours.commit_id, theirs.commit_id) if joined else (ours.commit_id,))
        if len(bases) == 1 and not later:
            expected, _ = merged_entries(self.model.points[next(iter(bases))], ours, theirs)
            files = expected
        else:
            files = read_commit(self.repository, made.commit_id, ours, theirs)
        self._note(made.commit_id, info.parents, by, ours, files)
        self.model.refs[ref] = made.commit_id

    @precondition(lambda self: self._branches())
    @rule(branch=choices, source=choices, one=choices, two=choices, below=st.booleans(), others=st.booleans())
    def restore(self, branch: int, source: int, one: int, two: int, below: bool, others: bool) -> None:
        """Restore two entries from any commit, with what stood below or without; what leaves no tree is refused."""
        ref = pick(self._branches(), branch)
        point = self._reached(source)
        self._follow()
        ours = self._at(ref)
        if not point.alive:
            return
        ids = {pick(sorted(point.alive), one), pick(sorted(point.alive), two)}
        restored = Restored(sorted(ids), below=below, removes_others=below and others)
        expected = restored_files(point, ours, restored)
        by = self._by()
        made = self.harness.run(self._restore(ref, State(self.workspace, point.commit_id), restored, by))
        if isinstance(made, MemoTreeError):
            assert self.repository.refs()[ref] == ours.commit_id
            if isinstance(made, NothingToCommitError):
                assert {key: entry for key, entry in expected.items() if entry} == ours.alive
            else:
                assert faults({key: entry for key, entry in expected.items() if entry is not None})
            return
        self._note(made.commit_id, (ours.commit_id,), by, ours, expected)
        self.model.refs[ref] = made.commit_id

    # --- by hand ---

    def _branches(self) -> list[str]:
        return sorted(ref for ref in self.model.refs if ref.startswith("refs/heads/"))

    def _at(self, ref: str) -> Point:
        return self.model.points[self.model.refs[ref]]

    def _reached(self, number: int) -> Point:
        """A commit that refs reach."""
        reachable = self.model.reachable()
        return self.model.points[pick([key for key in self.model.points if key in reachable], number)]

    def _change_branch(self, ref: str, wanted: Wanted | None) -> None:
        """Commit changes to a branch, if any are wanted."""
        if wanted:
            ours = self._at(ref)
            self._move(ref, self._write(ours, (), self._changed(ours.files, wanted)).commit_id)

    def _by(self) -> Signature:
        self.count += 1
        return Signature("A person", "person@example.org", START + timedelta(minutes=self.count))

    def _move(self, ref: str, commit_id: str | None) -> None:
        assert self.repository.move_ref(ref, self.repository.refs().get(ref), commit_id)
        if commit_id is None:
            self.model.refs.pop(ref, None)
        else:
            self.model.refs[ref] = commit_id

    def _follow(self, *, quiet: bool = False) -> None:
        """Let the mirror catch up, unless the step asks to leave that to a later one."""
        if not quiet:
            self.harness.run(self.harness.store.catch_up(self.workspace))
        self.behind = quiet

    def _changed(self, before: Files, wanted: Wanted) -> Files:
        files = dict(before)
        for kind, first, second in wanted:
            self._change(files, kind, first, second)
        return files

    def _change(self, files: Files, kind: str, first: int, second: int) -> None:
        nodes = sorted(key for key, entry in files.items() if isinstance(entry, Node))
        archives = sorted(key for key, entry in files.items() if isinstance(entry, Archive))
        if kind == "archive" or not archives:
            entry_id = pick(archives, first) if len(archives) > 1 else self._new_id()
            files[entry_id] = Archive(entry_id, f"archive {first} {second}", "model", f"described {second}")
        elif kind == "create" or not nodes:
            self._create(files, self._new_id(), pick(archives, first), nodes, second)
        elif kind == "again":
            gone = sorted({*self._ever()} - {*files})
            if gone:
                self._create(files, pick(gone, first), pick(archives, first), nodes, second)
        elif kind == "move":
            node = files[pick(nodes, first)]
            assert isinstance(node, Node)
            parent = pick([None, *(key for key in nodes if key != node.id)], second)
            files[node.id] = replace(node, parent_id=parent, position=pick(PLACES, first + second))
        elif kind == "edit":
            node = files[pick(nodes, first)]
            assert isinstance(node, Node)
            target = pick([key for key in nodes if key != node.id] or [numbered_id(0)], second)
            files[node.id] = replace(
                node,
                title=f"title {second}",
                brief=f"brief {second}",
                summary=f"sum {first}\nmary",
                content=f"content {second}\n" * (second % 3),
                tags=tuple(sorted({f"t{first % 3}", f"t{second % 3}"})),
                attributes={f"key{first % 2}": str(second)},
                relations=(Relation("REFERENCES", target, f"because {second}"),),
            )
        elif kind == "spoil":
            files[pick(nodes, first)] = None
        elif kind == "delete":
            del files[pick(nodes, first)]
        elif kind == "drop":
            del files[pick(archives, first)]

    def _create(self, files: Files, entry_id: str, archive: str, nodes: list[str], number: int) -> None:
        parent = pick([None, *(key for key in nodes if key != entry_id)], number)
        files[entry_id] = Node(entry_id, archive, parent, pick(PLACES, number), title=f"node {number}")

    def _ever(self) -> set[str]:
        return {
            key for point in self.model.points.values() for key, entry in point.files.items() if isinstance(entry, Node)
        }

    def _paths(self, parent: Point, files: Files, names: int) -> dict[str, bytes | None]:
        """Paths with their new bytes; an unreadable file has a text that is no node.

        Unchanged files get another name now and then, and some entries a second file, which is no entry.
        """
        paths: dict[str, bytes | None] = {}
        for number, key in enumerate(sorted({*parent.files, *files}), names):
            present = entry_files(self.repository, parent.commit_id, [key])[key]
            entry = files.get(key)
            stays = key in files and key in parent.files and parent.files[key] == entry
            if stays and (number % 4 or len(present) > 1):
                continue
            paths |= dict.fromkeys(file.path for file in present)
            if key in files:
                path = path_of(key, entry, number // 4)
                paths[path] = b"what is this?\n" if entry is None else encode_entry(entry)
                second = sorting_after(path, key)
                if number % 3 == 0 and second != path:
                    paths[second] = encode_entry(Node(key, key, None, "a0", title="second"))
        return paths

    def _new_id(self) -> str:
        self.count += 1
        return numbered_id(self.count)

    def _write(self, parent: Point, others: tuple[str, ...], files: Files, names: int = 0) -> Point:
        """A commit with these files; with further parents it is a merge."""
        by = self._by()
        draft = CommitDraft(parent.commit_id, self._paths(parent, files, names), f"Commit {self.count}\n", by, by)
        commit_id = self.repository.write_commit(draft).commit_id
        if others:
            info = self.repository.commit_info(commit_id)
            commit_id = join(self.repository, info, (parent.commit_id, *others))
        return self._note(commit_id, (parent.commit_id, *others), by, parent, files)

    def _note(self, commit_id: str, parents: tuple[str, ...], by: Signature, parent: Point, files: Files) -> Point:
        """Add a commit to the model."""
        return self._add(commit_id, parents, by.when, parent, files)

    def _add(
        self, commit_id: str, parents: tuple[str, ...], when: datetime, parent: Point | None, files: Files
    ) -> Point:
        there = Point("", (), when, {}, {}) if parent is None else parent
        written = {
            key: there.written[key] if there.files.get(key) == entry and key in there.written else commit_id
            for key, entry in files.items()
            if entry is not None
        }
        point = Point(commit_id, parents, when, files, written)
        self.model.points[commit_id] = point
        return point

    # --- merges by MemoTree's rules ---

    async def _merge(self, ref: str, theirs: str, by: Signature, *, squash: bool) -> Merged | MemoTreeError:
        """Merge, or return why that is refused."""
        style = MergeStyle.SQUASH if squash else MergeStyle.COMMIT
        order = MergeOrder(ref.removeprefix("refs/heads/"), "a commit", style, "Merge", Identity(by, by))

        async def find() -> str:
            return theirs

        return await self._unless_refused(lambda transaction: merge_into_branch(transaction, order, find))

    async def _pick(self, ref: str, chosen: Pick, by: Signature) -> Merged | MemoTreeError:
        """Pick or revert a commit, or return why that is refused."""
        order = PickOrder(ref.removeprefix("refs/heads/"), chosen, "", Identity(by, by))

        async def find() -> str:
            return chosen.commit_id

        return await self._unless_refused(lambda transaction: pick_commit(transaction, order, find))

    async def _unless_refused(self, work: Callable[[WorkspaceTransaction], Awaitable[T]]) -> T | MemoTreeError:
        async def run(commit_point: CommitPoint) -> T:
            async with workspace_transaction(self.harness.store, self.workspace, commit_point) as transaction:
                return await work(transaction)

        try:
            return await finish_past_commit_point(run)
        except (MergeConflictError, UnreadableFilesError, UnrelatedHistoriesError, NothingToCommitError) as error:
            return error

    async def _restore(self, ref: str, source: State, restored: Restored, by: Signature) -> Merged | MemoTreeError:
        order = RestoreOrder(ref.removeprefix("refs/heads/"), "", Identity(by, by))

        async def find() -> tuple[State, Restored]:
            return source, restored

        return await self._unless_refused(lambda transaction: restore_on_branch(transaction, order, find))

    async def _staged(self, ref: str, theirs: str) -> str | None:
        """A session on a branch that merges a commit; ``None`` if that cannot be merged, or is merged already."""
        store, session_id = self.harness.store, new_id()

        async def stage(transaction: WorkspaceTransaction) -> str | None:
            conn, head = transaction.conn, State(self.workspace, self.model.refs[ref])
            branch = ref.removeprefix("refs/heads/")
            session = await sessions.open_session(
                Snapshot(conn, head), session_id, branch=branch, agent="tester", ttl=timedelta(hours=1)
            )
            merge = await merge_states(conn, store.entries, transaction.repository, session.tree, theirs)
            if merge.is_merged:
                return None
            await stage_merge(
                *(conn, transaction.repository, session, merge), tool="merge", message="", merged=theirs, max_depth=None
            )
            kept = await conflicts_of(conn, session_id)
            chosen = [(one.conflict.node_id, one.number) for one in kept if one.conflict.kind.is_of_values]
            await end_conflicts(conn, session_id, chosen)
            return session_id

        found = await self._unless_refused(stage)
        return None if isinstance(found, MemoTreeError) else found

    async def _committed(self, session_id: str, by: Signature) -> CommitResult | MemoTreeError:
        order = CommitOrder("Merge", by, by)
        try:
            return await commit_session(self.harness.store, self.workspace, session_id, order)
        except (ConflictError, NothingToCommitError) as error:
            return error
