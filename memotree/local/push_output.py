"""What the hooks of a repository write, which git shows as lines of the remote, and which server they ask.

It imports no gRPC, so that a hook that asks no server starts at once.
"""

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memotree.client.workspace_values import Fault

BRANCHES: Final = "refs/heads/"
"""What the full names of branches begin with."""

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
