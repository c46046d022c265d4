"""A process that commits into a repository and notes each acknowledged commit; a test kills it."""

from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from crash.service import forked
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import CommitDraft, Signature

MAIN: Final = "refs/heads/main"
WHO: Final = Signature("Writer", "writer@example.org", datetime(2024, 1, 1, tzinfo=UTC))


def write(repository: Path, commits: int) -> None:
    """Make commits one after the other; where others do the same at once, each until it is on the branch."""
    store = GitRepository.open(repository)
    with noted(repository).open("ab", buffering=0) as notes:
        head = store.refs().get(MAIN)
        first = 0 if head is None else int(store.commit_info(head).message.split()[1]) + 1
        for number in range(first, first + commits):
            changes = {f"nodes/{number % 3}/{number}.md": b"%d" % number}
            while True:
                made = store.write_commit(CommitDraft(head, changes, f"commit {number}", WHO, WHO)).commit_id
                if store.move_ref(MAIN, head, made):
                    break
                head = store.refs().get(MAIN)
            store.pack_refs()
            notes.write(f"{made}\n".encode())
            head = made


def noted(repository: Path) -> Path:
    """The file with the acknowledged commits."""
    return repository.with_name("acknowledged")


def acknowledged(repository: Path) -> list[str]:
    """The acknowledged commits in order."""
    return noted(repository).read_text(encoding="ascii").split() if noted(repository).exists() else []


def started(repository: Path, commits: int, fault: str = "") -> BaseProcess:
    """A process that writes, and kills itself at a fault point."""
    process = forked(write, repository, commits, fault=fault)
    process.start()
    return process
