"""What the hooks of a repository write, which git shows as lines of the remote, and which server they ask.

Why they refuse a push they also note for the audit log. It imports no gRPC, so that a hook that asks no server starts
at once.
"""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memotree.client.workspace_values import Fault

BRANCHES: Final = "refs/heads/"
"""What the full names of branches begin with."""

PUSH_BRANCHES: Final = "MEMOTREE_PUSH_BRANCHES"
"""The variable with the patterns of the branches that whoever pushes may write, between spaces; empty for all refs. The
server that runs git sets it."""

PUSH_COMMITTER: Final = "MEMOTREE_PUSH_COMMITTER"
"""The variable with the committer's addresses of the service's own commits, between spaces, which whoever pushes must
not imitate; empty if it is not known who pushes."""

PUSH_AUTHOR: Final = "MEMOTREE_PUSH_AUTHOR"
"""The variable with the name of who pushes, who must be the author of new commits; empty if anybody may be it."""

PUSH_REFUSALS: Final = "MEMOTREE_PUSH_REFUSALS"
"""The variable with the path of a file in which the hooks note why they refuse a push, for the audit log; empty if
nobody reads it. The server that runs git sets it."""

DENIED: Final = "PERMISSION_DENIED"
FAILED: Final = "FAILED_PRECONDITION"

SECONDS: Final = 120.0
"""How long whoever pushes waits for the answer about one branch."""

MOST_FAULTS: Final = 20
"""Faults of one branch that are told."""

_UNREADABLE: Final = "UNREADABLE"


def fault_lines(faults: "Sequence[Fault]", more: str) -> Iterator[str]:
    """Yield a line for each of the first faults as compilers write it, and ``more`` if there are others.

    What is said about a file that cannot be read begins with its path already.
    """
    for fault in islice(faults, MOST_FAULTS):
        place = f"{fault.path}:{fault.line}" if fault.line else fault.path
        told = f"{fault.description} {fault.way_out}"
        yield f"  {fault.description}" if fault.kind == _UNREADABLE else f"  {place}: {told}"
    if len(faults) > MOST_FAULTS:
        yield more


def note_refusal(status: str, reason: str) -> None:
    """Note why a push is refused, for the audit log of the server that runs git, if one does.

    Args:
        status: The gRPC status, such as `DENIED`.
        reason: The error code.
    """
    path = os.environ.get(PUSH_REFUSALS, "")
    if path:
        with suppress(OSError), Path(path).open("a", encoding="ascii") as file:  # the push is refused anyway
            file.write(f"{status} {reason}\n")


def folder_of(data_folder: Path, repository: Path) -> Path:
    """The folder of the server to ask: in a copy of a data folder its own one, not that of the original.

    Args:
        data_folder: The folder of the server that wrote the hook.
        repository: Where the hook runs.
    """
    try:
        is_original = (data_folder / "workspaces" / repository.name).samefile(repository)
    except OSError:
        is_original = False
    return data_folder if is_original else repository.parent.parent


def write_lines(lines: Iterable[str]) -> int:
    """Write lines to standard output as they come, without control characters; return how many there were."""
    output = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace")
    count = 0
    for line in lines:
        output.write("".join(each if each.isprintable() else "\ufffd" for each in line) + "\n")
        output.flush()
        count += 1
    return count
