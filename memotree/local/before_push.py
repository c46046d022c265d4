"""Refuses a push to a protected branch, or one that rewinds a branch without permission, before any ref moves.

git runs this before a push (``hooks/pre-receive``, see `memotree_storage.git.hooks`) if the repository has protections
or the push rewinds a branch, and shows what it writes as lines of the remote. It reads the repository, and needs no
server.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from memotree_storage.errors import MemoTreeError
from memotree_storage.git.protections import refuse_protected
from memotree_storage.git.push_policies import read_push_policy
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import CommitReader

from memotree.local.push_output import BRANCHES, write_lines


def refusals(repository: CommitReader, updates: Iterable[str], rewound: Sequence[str] = ()) -> list[str]:
    """Return why a push is refused; nothing if it is not. A new branch changes none that is protected.

    Args:
        repository: The repository.
        updates: For each ref a line with its old commit id, its new one and its name.
        rewound: The full names of the branches that would lose commits and stay.
    """
    found = []
    for update in updates:
        old, _, name = update.split(" ", 2)
        if name.startswith(BRANCHES) and old.strip("0"):
            try:
                refuse_protected(repository, name.removeprefix(BRANCHES))
            except MemoTreeError as error:
                found.append(error.message)
    if not rewound:
        return found
    try:
        policy = read_push_policy(repository)
    except MemoTreeError as error:
        return [*found, error.message]
    return found + [
        f"{branch} would be rewound: commits that it has would be on it no more. Pull and merge, and push again; or "
        f"let pushes rewind it: memotree branch pushes --rewindable {branch}"
        for branch in (name.removeprefix(BRANCHES) for name in rewound)
        if not policy.may_rewind(branch)
    ]


def main() -> int:
    """Read the updates from standard input, and write why they are refused; the exit status is 1 then."""
    lines = sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")
    end = lines.index("") if "" in lines else len(lines)
    with GitRepository.open(Path.cwd()) as repository:
        told = refusals(repository, lines[:end], [line for line in lines[end:] if line])
    return 1 if write_lines(told) else 0


if __name__ == "__main__":
    sys.exit(main())
