"""Refuses a push to a branch that must not change so, before any ref moves.

That is a protected branch, one that the caller may not write, one that would be rewound without permission, or one
that would get commits in the name of the service or of others.

git runs this before a push (``hooks/pre-receive``, see `memotree_storage.git.hooks`) if the repository has protections,
the server that runs git limits what its caller may push, or the push rewinds a branch. It shows what this writes as
lines of the remote. It reads the repository, and needs no server.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memotree_storage.errors import MemoTreeError
from memotree_storage.git.protections import refuse_protected
from memotree_storage.git.push_policies import read_push_policy
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.proposal import is_among
from memotree_storage.model.protection import names_branch
from memotree_storage.ports import CommitReader

from memotree.local.new_commits import new_commits
from memotree.local.push_output import (
    BRANCHES,
    DENIED,
    FAILED,
    PUSH_AUTHOR,
    PUSH_BRANCHES,
    PUSH_COMMITTER,
    note_refusal,
    write_lines,
)

_MOST_TOLD: Final = 10
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a push is refused.

    Attributes:
        told: The sentence for whoever pushes.
        reason: The error code for the audit log.
        status: The gRPC status for it.
    """

    told: str
    reason: str
    status: str = FAILED


def refusals(repository: CommitReader, updates: Iterable[str], rewound: Sequence[str] = ()) -> list[Refusal]:
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
                found.append(Refusal(error.message, error.reason))
    if not rewound:
        return found
    try:
        policy = read_push_policy(repository)
    except MemoTreeError as error:
        return [*found, Refusal(error.message, error.reason)]
    return found + [
        Refusal(
            f"{branch} would be rewound: commits that it has would be on it no more. Pull and merge, and push again; "
            f"or let pushes rewind it: memotree branch pushes --rewindable {branch}",
            "BRANCH_NOT_REWINDABLE",
        )
        for branch in (name.removeprefix(BRANCHES) for name in rewound)
        if not policy.may_rewind(branch)
    ]


def unwritable(updates: Iterable[str], patterns: Sequence[str]) -> list[Refusal]:
    """Return why a push is refused to somebody who may write only some branches; nothing if it is not.

    Args:
        updates: For each ref a line with its old commit id, its new one and its name.
        patterns: The patterns of these branches.
    """
    found = []
    for update in updates:
        name = update.split(" ", 2)[2]
        branch = name.removeprefix(BRANCHES)
        if not name.startswith(BRANCHES) or not any(names_branch(pattern, branch) for pattern in patterns):
            told = f"You may not push {branch}: your role as a writer is for {', '.join(patterns)}."
            found.append(Refusal(told, "ROLE_MISSING", DENIED))
    return found


def imitated(repository: Path, updates: Iterable[str], committer: str, author: str = "") -> list[Refusal]:
    """Return why a push is refused that has new commits in the name of others; nothing if it has none.

    What the service has committed is believed: of which session it was, and which tag belongs to it. And whoever is the
    author of a commit cannot approve it.

    Args:
        repository: The folder of the repository.
        updates: For each ref a line with its old object id, its new one and its name.
        committer: The committer's addresses of the service, between spaces.
        author: Who must be the author; empty if anybody may be it.
    """
    committers = committer.lower().split()
    new = [update.split(" ", 2)[1] for update in updates]
    heads = [each for each in new if each.strip("0")]
    found = []
    try:
        for commit in new_commits(repository, heads):
            if commit.committer.email.lower() in committers:
                told = (
                    f"Commit {commit.commit_id} says that MemoTree has committed it. Commit it in your own name: "
                    "git commit --amend --no-edit"
                )
                found.append(Refusal(told, "COMMITTER_NOT_PERMITTED", DENIED))
            elif author and not is_among(commit.author.name, [author]):
                name = commit.author.name[:_LONGEST_NAME]
                told = (
                    f"Commit {commit.commit_id} names {name!r} as its author, and {author} pushes it. Make it in "
                    f"your own name: git -c user.name='{author}' commit --amend --no-edit --reset-author"
                )
                found.append(Refusal(told, "AUTHOR_NOT_PERMITTED", DENIED))
            if len(found) == _MOST_TOLD:
                break
    except MemoTreeError as error:
        found.append(Refusal(error.message, error.reason))
    return found


def main() -> int:
    """Read the updates from standard input, and write why they are refused; the exit status is 1 then."""
    lines = sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")
    end = lines.index("") if "" in lines else len(lines)
    with GitRepository.open(Path.cwd()) as repository:
        found = refusals(repository, lines[:end], [line for line in lines[end:] if line])
    patterns = os.environ.get(PUSH_BRANCHES, "").split()
    if patterns:
        found += unwritable(lines[:end], patterns)
    committer = os.environ.get(PUSH_COMMITTER, "")
    if committer:
        found += imitated(Path.cwd(), lines[:end], committer, os.environ.get(PUSH_AUTHOR, ""))
    for each in found:
        note_refusal(each.status, each.reason)
    return 1 if write_lines(each.told for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
