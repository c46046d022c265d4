"""The checks of a proposal: its files, its merge, and the memory tests of its branch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.commit.transaction import repository_of
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.mirror.state_merge import merge_states
from memotree_storage.mirror.tree_faults import tell_fault, tree_faults, unreadable_files
from memotree_storage.ports import CommitReader
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.review.memory_tests import MemoryTests, TestFile, test_files
from memotree.sessions.merged_summaries import with_renewed_summary
from memotree.v1 import review_service_pb2 as pb

_MOST_FAULTS: Final = 1000
_MOST_TOLD: Final = 5


@dataclass(frozen=True, slots=True)
class CheckedStates:
    """What is checked: the commit that is proposed, and the head of the branch that shall get it."""

    workspace_id: str
    head: str
    target: str


class Checks:
    """Runs the checks of proposals; nothing is written.

    Args:
        store: The store.
        memory_tests: Runs memory tests.
    """

    def __init__(self, store: Store, memory_tests: MemoryTests) -> None:
        self._store = store
        self._memory_tests = memory_tests

    async def run(self, states: CheckedStates) -> list[pb.ProposalCheck]:
        """Run all checks.

        Raises:
            UnavailableError: A store or an embedding model does not answer.
        """
        repository = await repository_of(self._store, states.workspace_id)
        async with self._store.database.repeatable_read() as conn:
            structure = await self._structure(conn, repository, states)
            conflicts = await self._conflicts(conn, repository, states)
        return [structure, conflicts, await self._tests(repository, states)]

    async def _structure(self, conn: Connection, repository: CommitReader, states: CheckedStates) -> pb.ProposalCheck:
        """Whether the proposal brings faults that its target does not have."""
        there, had = [
            await _faults(Snapshot(conn, State(states.workspace_id, commit_id)), repository)
            for commit_id in (states.head, states.target)
        ]
        return _check("structure", [fault for fault in there if fault not in had], "All files can be read.")

    async def _conflicts(self, conn: Connection, repository: CommitReader, states: CheckedStates) -> pb.ProposalCheck:
        ours = State(states.workspace_id, states.target)
        try:
            merge = await merge_states(
                *(conn, self._store.entries, repository, ours, states.head),
                max_depth=self._store.max_depth,
                renew=with_renewed_summary,
            )
        except FailedPreconditionError as error:  # files that cannot be read or merged, or another history
            return pb.ProposalCheck(name="conflicts", detail=error.message)
        return _check("conflicts", [each.description for each in merge.conflicts], "It merges without conflicts.")

    async def _tests(self, repository: CommitReader, states: CheckedStates) -> pb.ProposalCheck:
        results = await self._memory_tests.run_at(states.workspace_id, states.head)
        there, had = [
            await in_store_thread(test_files, repository, commit_id) for commit_id in (states.head, states.target)
        ]
        faults = [f"{result.test.name}: {' '.join(result.faults)}" for result in results if not result.passed]
        check = _check("memory tests", faults, f"{len(results)} of {len(results)} pass.")
        check.detail += _changed(there, had)
        return check


async def _faults(snapshot: Snapshot, repository: CommitReader) -> list[str]:
    rows = await tree_faults(snapshot, "", _MOST_FAULTS)
    commit_id = snapshot.state.commit_id
    told = await in_store_thread(lambda: [tell_fault(repository, commit_id, row).sentence for row in rows])
    files = await unreadable_files(snapshot, repository, "", _MOST_FAULTS)
    return told + [fault.sentence for fault in files]


def _check(name: str, faults: Sequence[str], fine: str) -> pb.ProposalCheck:
    if not faults:
        return pb.ProposalCheck(name=name, passed=True, detail=fine)
    more = f" There are {len(faults) - _MOST_TOLD} more." if len(faults) > _MOST_TOLD else ""
    return pb.ProposalCheck(name=name, detail=" ".join(faults[:_MOST_TOLD]) + more)


def _changed(there: Sequence[TestFile], had: Sequence[TestFile]) -> str:
    """Which tests differ from the target's: a proposal could make a check pass by its tests."""
    now, before = {file.name: file.blob for file in there}, {file.name: file.blob for file in had}
    changed = sorted(name for name in now.keys() & before.keys() if now[name] != before[name])
    groups = (
        ("changes", changed),
        ("adds", sorted(now.keys() - before.keys())),
        ("lacks", sorted(before.keys() - now.keys())),
    )
    return "".join(f" The proposal {verb} the tests {', '.join(names)}." for verb, names in groups if names)
