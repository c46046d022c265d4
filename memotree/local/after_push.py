"""Takes in what was pushed to a repository, and tells whoever pushed it what is wrong with it.

git runs this after a push (``hooks/post-receive``, see `memotree_storage.git.hooks`) and shows what it writes as lines
of the remote. The push has happened by then, whatever this does.
"""

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Final

from memotree.client.blocking import Client
from memotree.client.errors import MemoTreeClientError, NotFoundError
from memotree.identity.key_file import read_key
from memotree.local.push_output import BRANCHES, MOST_FAULTS, SECONDS, fault_lines, folder_of, write_lines
from memotree.server.announcement import read_announcement

_DEFAULT: Final = ""
"""The revision that is the default branch."""

_MOST_BRANCHES: Final = 10
"""Branches of one push whose faults are told; all are taken in."""


def branches(updates: Iterable[str]) -> list[str]:
    """Return the names of the branches that a push wrote and did not delete.

    Args:
        updates: For each ref a line with its old commit id, its new one and its name.
    """
    found = []
    for update in updates:
        _, new, name = update.rstrip("\n").split(" ", 2)
        if name.startswith(BRANCHES) and new.strip("0"):
            found.append(name.removeprefix(BRANCHES))
    return found


def told(data_folder: Path, workspace_id: str, pushed: list[str]) -> Iterator[str]:
    """Let the server of a folder take in a push, and yield lines about it.

    Args:
        data_folder: The folder of the server.
        workspace_id: The workspace of the repository.
        pushed: The branches that were written; none if only tags were, or if branches were deleted.
    """
    announced = read_announcement(data_folder)
    if announced is None:
        yield "MemoTree is not running. A server takes this in when it starts."
        return
    with Client(
        announced.address, timeout=SECONDS, attempts=1, key=read_key(data_folder), tls=False, certificate=""
    ) as client:
        workspace = client.workspace(workspace_id)
        for branch in pushed[:_MOST_BRANCHES] or [_DEFAULT]:
            revision = f"{BRANCHES}{branch}" if branch else _DEFAULT
            try:
                faults = list(islice(workspace.at(revision).faults(), MOST_FAULTS + 1))
            except NotFoundError as error:
                yield f"MemoTree does not have {branch or workspace_id}: {error}"
                continue
            except MemoTreeClientError as error:
                yield f"MemoTree cannot say yet what it made of this: {error}"
                return
            if branch:
                yield f"MemoTree has taken in {branch}{_remark(len(faults))}"
                more = f"  There are more: memotree faults --workspace {workspace_id} --at {quote(branch)}"
                yield from fault_lines(faults, more)
        if len(pushed) > _MOST_BRANCHES:
            yield f"There are {len(pushed) - _MOST_BRANCHES} more branches; memotree faults lists their faults."


def _remark(count: int) -> str:
    if not count:
        return "."
    return ". It has a fault:" if count == 1 else ". It has faults:"


def main(data_folder: Path, repository: Path) -> None:
    """Read the updates from standard input, and write what became of them to standard output.

    Args:
        data_folder: The folder of the server that wrote the hook.
        repository: Where it runs.
    """
    updates = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    folder = folder_of(data_folder, repository)
    write_lines(told(folder, repository.name.removesuffix(".git"), branches(updates)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path.cwd())
