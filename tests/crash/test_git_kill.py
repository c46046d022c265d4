"""Writers are killed with SIGKILL at each step of a commit and at random moments: acknowledged commits are kept.

After the kill a new process (this one) opens the repository as a restarted server would.
"""

import select
import signal
import time
from pathlib import Path
from typing import Final

import pytest
from campaigns import budget, dice
from crash.git_writer import acknowledged, started
from crash.service import DEADLINE
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge

pytestmark = pytest.mark.requirement("STORE-1")

POINTS: Final = (
    "git.before-pack",
    "git.pack-written",
    "git.pack-synced",
    "git.before-ref",
    "git.ref-locked",
    "git.ref-moved",
    "git.ref-synced",
    "git.refs-packed",
)


def assert_whole(repository: Path, acknowledged: list[str]) -> None:
    """Check that the branch has all acknowledged commits and at most one more, and that the next commit works."""
    with GitRepository.open(repository, lock_timeout=1.0) as store:
        head = store.refs().get(MAIN)
        chain = [] if head is None else [info.commit_id for info in store.history([head], lambda _: False)]
        assert chain[: len(acknowledged)] == acknowledged
        assert len(chain) - len(acknowledged) in {0, 1}
        written = store.write_commit(draft(head, {"next": b"works"}, f"commit {len(chain)}"))
        assert store.move_ref(MAIN, head, written.commit_id), "a stale lock blocks nobody"
        expected = {f"nodes/{number % 3}/{number}.md": b"%d" % number for number in range(len(chain))}
        assert files(store, written.commit_id) == expected | {"next": b"works"}
        store.recover()
        assert store.recover() == []
    Judge(repository).check()
    left = [path.name for path in repository.rglob("*") if path.name.endswith(".lock") or path.name.startswith("tmp_")]
    assert left == ["write.lock"]
    assert list((repository / "memotree" / "locks").iterdir()) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    GitRepository.create(tmp_path / "a.git").close()
    return tmp_path / "a.git"


@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("name", POINTS)
def test_a_kill_at_each_step_of_a_commit_loses_nothing(repository: Path, name: str, turn: int) -> None:
    writer = started(repository, 5, f"{name}:{turn}")
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    with GitRepository.open(repository) as store:
        has_branch = MAIN in store.refs()
    assert has_branch == (turn > 1 or name in {"git.ref-moved", "git.ref-synced", "git.refs-packed"})
    assert len(acknowledged(repository)) == turn - 1
    assert_whole(repository, acknowledged(repository))


def test_kills_at_random_moments_lose_nothing(repository: Path) -> None:
    rng = dice("git kills")
    kept: list[str] = []
    for _ in range(budget(8)):
        writer = started(repository, 1_000_000)
        before, wanted, end = len(acknowledged(repository)), rng.randrange(1, 4), time.monotonic() + DEADLINE
        while len(acknowledged(repository)) < before + wanted:
            assert time.monotonic() < end, f"the writer did not make {wanted} commits"
        # Any moment of the next few commits: the pause is the randomness of the test, not a wait for something.
        select.select([], [], [], rng.random() * 0.01)
        writer.kill()
        writer.join()
        kept += acknowledged(repository)[before:]
        with GitRepository.open(repository, lock_timeout=1.0) as store:
            chain = [info.commit_id for info in store.history([store.refs()[MAIN]], lambda _: False)]
        assert chain[: len(kept)] == kept
        assert len(chain) - len(kept) in {0, 1}
        kept = chain
    assert_whole(repository, kept)


@pytest.mark.requirement("STORE-2")
def test_processes_that_race_lose_no_commit(repository: Path) -> None:
    writers = [started(repository, 10) for _ in range(4)]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with GitRepository.open(repository) as store:
        (head,) = store.refs().values()
        chain = [info.commit_id for info in store.history([head], lambda _: False)]
    assert sorted(chain) == sorted(acknowledged(repository))
    assert len(chain) == 40
    Judge(repository).check()


def test_a_writer_killed_while_it_holds_the_lock_does_not_block_a_waiting_one(repository: Path) -> None:
    with GitRepository.open(repository, lock_timeout=DEADLINE) as store:
        written = store.write_commit(draft(None, {"a": b"1"}))
        writer = started(repository, 1, "git.ref-locked")
        while writer.is_alive() and not store.move_ref(MAIN, None, written.commit_id):
            assert store.refs().get(MAIN) is None
        writer.join(DEADLINE)
        assert store.refs().get(MAIN) == written.commit_id or store.move_ref(MAIN, None, written.commit_id)
