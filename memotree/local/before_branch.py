"""Refuses an update of a branch that brings faults into it, in a workspace whose policy is strict.

git runs this before each branch moves (``hooks/update``, see `memotree_storage.git.hooks`), when the objects of the
push are in the repository, and shows what it writes as lines of the remote. It asks the server, which knows the tree;
without one, a strict workspace takes no pushes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from memotree.client.blocking import Client
from memotree.client.errors import MemoTreeClientError
from memotree.identity.key_file import read_key
from memotree.local.push_output import BRANCHES, FAILED, SECONDS, fault_lines, folder_of, note_refusal, write_lines
from memotree.server.announcement import read_announcement


def refusals(data_folder: Path, workspace_id: str, name: str, old: str, new: str) -> Iterator[str]:
    """Yield lines about why a branch must not move, and note why; none if it may.

    Args:
        data_folder: The folder of the server.
        workspace_id: The workspace of the repository.
        name: The full name of the branch.
        old: The commit at which it is; zeros for a new one.
        new: The commit to which it would move.
    """
    branch = name.removeprefix(BRANCHES)
    announced = read_announcement(data_folder)
    if announced is None:
        note_refusal("UNAVAILABLE", "PUSH_NOT_CHECKED")
        yield f"MemoTree is not running, which checks pushes to {branch}. Start it (memotree serve), and push again."
        return
    with Client(
        announced.address, timeout=SECONDS, attempts=1, key=read_key(data_folder), tls=False, certificate=""
    ) as client:
        try:
            faults = client.workspace(workspace_id).check_push(new, old_commit_id=old if old.strip("0") else "")
        except MemoTreeClientError as error:
            note_refusal("UNAVAILABLE", "PUSH_NOT_CHECKED")
            yield f"MemoTree cannot check this push to {branch}: {error}"
            return
    if faults:
        note_refusal(FAILED, "PUSH_HAS_FAULTS")
        yield f"{branch} takes no faults, and this push would bring some. Mend them, and push again:"
        yield from fault_lines(faults, "  There are more.")


def main(data_folder: Path, repository: Path, name: str, old: str, new: str) -> int:
    """Write why the branch must not move; the exit status is 1 then.

    Args:
        data_folder: The folder of the server that wrote the hook.
        repository: Where it runs.
        name: The full name of the branch.
        old: The commit at which it is.
        new: The commit to which it would move.
    """
    folder = folder_of(data_folder, repository)
    return 1 if write_lines(refusals(folder, repository.name.removesuffix(".git"), name, old, new)) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path.cwd(), *sys.argv[2:5]))
