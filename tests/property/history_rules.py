"""Steps of a random history by MemoTree's own rules: merges, also in a session, picks and restores."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
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
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.state_merge import UnreadableFilesError, UnrelatedHistoriesError, merge_states
from memotree_storage.mirror.state_restore import Restored
from memotree_storage.model.node import new_id
from memotree_storage.ports import Signature
from memotree_storage.postgres import sessions
from memotree_storage.postgres.session_conflicts import conflicts_of, end_conflicts
from memotree_storage.postgres.tree import Snapshot, State
from property.line_histories import (
    Files,
    Model,
    Point,
    git_merges,
    merged_entries,
    merged_files,
    read_commit,
    read_merge,
    restored_files,
)
from property.store_harness import WorkspaceMachine, pick
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


class MergeRules(WorkspaceMachine):
    """The steps; a machine that has them keeps a model of the history, and writes commits with git's own commands."""

    model: Model
    repository: GitRepository

    def _branches(self) -> list[str]:
        raise NotImplementedError

    def _at(self, ref: str) -> Point:
        raise NotImplementedError

    def _by(self) -> Signature:
        raise NotImplementedError

    def _move(self, ref: str, commit_id: str | None) -> None:
        raise NotImplementedError

    def _follow(self, *, quiet: bool = False) -> None:
        raise NotImplementedError

    def _changed(self, before: Files, wanted: list[tuple[str, int, int]]) -> Files:
        raise NotImplementedError

    def _write(self, parent: Point, others: tuple[str, ...], files: Files, names: int = 0) -> Point:
        raise NotImplementedError

    def _note(self, commit_id: str, parents: tuple[str, ...], by: Signature, parent: Point, files: Files) -> Point:
        raise NotImplementedError

    @precondition(lambda self: self._branches())
    @rule(branch=choices, other=choices, squash=st.booleans(), mine=st.none() | changes, others=st.none() | changes)
    def merge_by_fields(
        self,
        branch: int,
        other: int,
        squash: bool,
        mine: list[tuple[str, int, int]] | None,
        others: list[tuple[str, int, int]] | None,
    ) -> None:
        """Merge by MemoTree's own rules, after more changes of both sides or none; what conflicts is refused."""
        ref = pick(self._branches(), branch)
        reachable = self.model.reachable()
        theirs = self.model.points[pick([key for key in self.model.points if key in reachable], other)]
        if others:
            theirs = self._write(theirs, (), self._changed(theirs.files, others))
            self._move("refs/heads/three", theirs.commit_id)
        if mine:
            ours = self._at(ref)
            self._move(ref, self._write(ours, (), self._changed(ours.files, mine)).commit_id)
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
    def pick_by_fields(self, branch: int, commit: int, reverts: bool, mine: list[tuple[str, int, int]] | None) -> None:
        """Revert a commit, or pick one, by MemoTree's own rules; what conflicts is refused."""
        ref = pick(self._branches(), branch)
        if mine:
            ours = self._at(ref)
            self._move(ref, self._write(ours, (), self._changed(ours.files, mine)).commit_id)
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
    def merge_in_a_session(
        self,
        branch: int,
        other: int,
        mine: list[tuple[str, int, int]],
        others: list[tuple[str, int, int]],
        later: list[tuple[str, int, int]] | None,
    ) -> None:
        """Merge in a session, and choose our side of each conflict; what leaves no tree is refused.

        Both sides have changed something, and the branch changes again (``later``) before the commit, or not.
        """
        ref = pick(self._branches(), branch)
        reachable = self.model.reachable()
        theirs = self.model.points[pick([key for key in self.model.points if key in reachable], other)]
        theirs = self._write(theirs, (), self._changed(theirs.files, others))
        self._move("refs/heads/three", theirs.commit_id)
        ours = self._at(ref)
        self._move(ref, self._write(ours, (), self._changed(ours.files, mine)).commit_id)
        self._follow()
        staged = self.harness.run(self._staged(ref, theirs.commit_id))
        if staged is None:
            return
        before = self._at(ref)
        bases = self.model.merge_bases(before.commit_id, theirs.commit_id)
        if later:
            self._move(ref, self._write(before, (), self._changed(before.files, later)).commit_id)
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
        reachable = self.model.reachable()
        point = self.model.points[pick([key for key in self.model.points if key in reachable], source)]
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
                *(conn, transaction.repository, session, merge),
                tool="merge",
                message="",
                merged=theirs,
                max_depth=None,
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
