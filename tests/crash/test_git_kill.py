"""Writers are killed with SIGKILL at each step of a commit and at random moments: acknowledged commits are kept.

A writer process prints a line for each acknowledged move of the ref. After the kill a new process (this one) opens the
repository as a restarted server would.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.faults import ENVIRONMENT_VARIABLE
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge

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

WRITER: Final = """
import sys
from pathlib import Path
from datetime import UTC, datetime
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import CommitDraft, Signature

MAIN = "refs/heads/main"
WHO = Signature("Writer", "writer@example.org", datetime(2024, 1, 1, tzinfo=UTC))

def draft(parent, changes, message):
    return CommitDraft(parent, changes, message, WHO, WHO)

store = GitRepository.open(Path(sys.argv[1]))
head = store.refs().get(MAIN)
number = 0 if head is None else int(store.commit_info(head).message.split()[1]) + 1
for number in range(number, number + int(sys.argv[2])):
    written = store.write_commit(draft(head, {f"nodes/{number % 3}/{number}.md": b"%d" % number}, f"commit {number}"))
    assert store.move_ref(MAIN, head, written.commit_id)
    store.pack_refs()
    print(written.commit_id, flush=True)
    head = written.commit_id
"""


def start(repository: Path, commits: int, fault: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - this interpreter and the program above
        [sys.executable, "-c", WRITER, str(repository), str(commits)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {ENVIRONMENT_VARIABLE: fault},
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


@pytest.mark.requirement("STORE-1")
@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("name", POINTS)
def test_a_kill_at_each_step_of_a_commit_loses_nothing(repository: Path, name: str, turn: int) -> None:
    writer = start(repository, 5, f"{name}:{turn}")
    out, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    acknowledged = out.split()
    assert len(acknowledged) == turn - 1
    assert_whole(repository, acknowledged)


@pytest.mark.requirement("STORE-1")
def test_fault_points_are_reached_in_the_order_of_durability(repository: Path) -> None:
    seen = []
    for name in POINTS:
        writer = start(repository, 1, name)
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        with GitRepository.open(repository) as store:
            seen.append(store.refs().get(MAIN) is not None)
            store.recover()
            if head := store.refs().get(MAIN):
                assert store.move_ref(MAIN, head, None)
    assert seen == [False] * 5 + [True] * 3


@pytest.mark.requirement("STORE-1")
def test_kills_at_random_moments_lose_nothing(repository: Path) -> None:
    rng = random.Random(os.getpid())
    acknowledged: list[str] = []
    for _ in range(20):
        writer = start(repository, 1_000_000)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(rng.randrange(1, 4))]
        # Any moment of the next few commits: the pause is the randomness of the test, not a wait for something.
        select.select([], [], [], rng.random() * 0.01)
        writer.kill()
        out, _ = writer.communicate()
        acknowledged += "".join([*lines, out]).split()
        with GitRepository.open(repository, lock_timeout=1.0) as store:
            head = store.refs().get(MAIN)
            assert head is not None
            chain = [info.commit_id for info in store.history([head], lambda _: False)]
            assert chain[: len(acknowledged)] == acknowledged
            assert len(chain) - len(acknowledged) in {0, 1}
            acknowledged = chain
    assert_whole(repository, acknowledged)


@pytest.mark.requirement("STORE-2")
def test_processes_that_race_lose_no_commit(repository: Path) -> None:
    program = WRITER.replace("    assert store.move_ref(MAIN, head, written.commit_id)\n", RETRY)
    writers = [
        subprocess.Popen(  # noqa: S603 - this interpreter and the program above
            [sys.executable, "-c", program, str(repository), "15"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    acknowledged = [commit for writer in writers for commit in writer.communicate(timeout=60)[0].split()]
    assert [writer.returncode for writer in writers] == [0] * 4
    with GitRepository.open(repository) as store:
        (head,) = store.refs().values()
        chain = [info.commit_id for info in store.history([head], lambda _: False)]
    assert sorted(chain) == sorted(acknowledged)
    assert len(chain) == 60
    Judge(repository).check()


RETRY: Final = """
    while not store.move_ref(MAIN, head, written.commit_id):
        head = store.refs().get(MAIN)
        written = store.write_commit(draft(head, {f"{number}": b""}, f"commit {number}"))
"""


@pytest.mark.requirement("STORE-1")
def test_a_writer_killed_while_it_holds_the_lock_does_not_block_a_waiting_one(repository: Path) -> None:
    with GitRepository.open(repository, lock_timeout=30.0) as store:
        written = store.write_commit(draft(None, {"a": b"1"}))
        writer = start(repository, 1, "git.ref-locked")
        deadline = time.monotonic() + 30
        while writer.poll() is None and time.monotonic() < deadline:
            if store.move_ref(MAIN, None, written.commit_id):
                break
        writer.communicate()
        assert store.refs().get(MAIN) == written.commit_id or store.move_ref(MAIN, None, written.commit_id)
