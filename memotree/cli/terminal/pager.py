"""Shows long output in the user's pager, as Git does: only on a terminal, and only if it does not fit on the screen."""

import io
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

NO_PAGER: Final = frozenset({"", "cat"})
"""The names of pagers that mean to use none."""
_VARIABLES: Final = ("MEMOTREE_PAGER", "PAGER")
_LESS: Final = "FRX"
"""Options for ``less`` unless LESS is set: end if it fits on the screen, keep colours, leave the text on the screen."""


def pager() -> str:
    """The command of the pager: from MEMOTREE_PAGER, else from PAGER, else ``less``; empty for none."""
    given = next((os.environ[name] for name in _VARIABLES if name in os.environ), "less").strip()
    return "" if given in NO_PAGER else given


def use_no_pager() -> None:
    """Turns the pager off for this process."""
    os.environ[_VARIABLES[0]] = ""


def page(pieces: Iterable[str], screen: IO[str], height: int) -> None:
    """Writes text to the screen, through the pager if it has more lines than ``height``.

    The pager starts as soon as the first screen is full, so a long text shows its beginning at once.
    """
    waiting = iter(pieces)
    begin = io.StringIO()
    lines = 0
    for piece in waiting:
        begin.write(piece)
        lines += piece.count("\n")
        if lines >= height and pager():
            break
    else:
        screen.write(begin.getvalue())
        return
    with _started(screen) as target, suppress(BrokenPipeError):  # a person may quit the pager before the end
        target.write(begin.getvalue())
        target.flush()
        for piece in waiting:
            target.write(piece)


@contextmanager
def _started(screen: IO[str]) -> Iterator[IO[str]]:
    """The stream to the pager, or the screen if the pager cannot be started."""
    environment = {"LESS": _LESS, "LV": "-c", **os.environ}
    screen.flush()
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own pager
            shlex.split(pager()), stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8", errors="replace"
        )
    except (OSError, ValueError):
        yield screen
        return
    assert process.stdin is not None  # noqa: S101 - for the type checker
    # Ctrl-C is for the pager now; this process ends when the pager does.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        signal.signal(signal.SIGINT, before)
