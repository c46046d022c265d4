"""Runs a program apart from the rest of the machine, by bubblewrap: it writes no files, and has no network.

It has a file system that can only be read, in which secrets are missing, a little room for temporary files, processes
of its own, and no capabilities. The folders of temporary files and of running services are empty, since a Unix socket
there could be connected to although nothing can be written: the database's, Docker's, that of the user's session.
bubblewrap is a program of its own, which many systems have as a package.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROGRAM: Final = "bwrap"
_PROBE_SECONDS: Final = 10.0
_MEMORY: Final = "/dev/shm"  # noqa: S108 - of the sandbox alone, and gone with it
_MOST_BYTES: Final = 64 << 20
"""Bytes of temporary files."""

_APART: Final = (
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    *("--size", str(_MOST_BYTES), "--tmpfs", _MEMORY, "--remount-ro", "/dev"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"),
    *("--die-with-parent", "--new-session", "--setenv", "TMPDIR", _MEMORY),
)

_WITH_SOCKETS: Final = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 - not to write there, but to empty them
"""The folders in which programs make their sockets."""

_OF_TEMPORARY_FILES: Final = ("TMPDIR", "TEMP", "TMP")
"""The variables that name such a folder, as `tempfile` reads them."""

_OF_PATHS: Final = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that name what a Python program reads."""

_RESOLVER: Final = "/etc/resolv.conf"
"""Often a link to a file in a folder that is emptied."""

_MOST_LINKS: Final = 40
"""Links that one path may go through, as in Linux."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How programs are run apart.

    Attributes:
        program: The path of bubblewrap.
        hidden: Files and folders that are empty for the programs; absolute paths without links.
        shown: Folders that the programs read wherever they are; absolute paths.
    """

    program: str
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def command(
        self, command: Sequence[str], *, network: bool = False, environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command that runs another one apart from the rest.

        Args:
            command: A program by its absolute path, and its arguments.
            network: Whether it may use the network of this machine.
            environment: Its environment variables; those of this process if ``None``.
        """
        emptied = self._emptied()
        needed = _needed(os.environ if environment is None else environment)
        options = [*_APART, *_emptying(emptied, (*needed, *self.shown))]
        for each in self.hidden:
            path = Path(each)
            if path.is_dir():
                options += ("--tmpfs", each, "--remount-ro", each)
            elif path.exists():
                options += ("--ro-bind", "/dev/null", each)
        for each in emptied:
            if not any(_is_below(each, hidden) for hidden in self.hidden):  # else it is not there any more
                options += ("--remount-ro", each)
        return [self.program, *options, *(() if network else ("--unshare-net",)), "--", *command]

    def _emptied(self) -> list[str]:
        """The folders that are empty but for what is put back, without links; those above others come first."""
        named = filter(None, map(os.environ.get, _OF_TEMPORARY_FILES))
        found = {os.path.realpath(each) for each in (*_WITH_SOCKETS, *named) if Path(each).is_dir()}
        shown = [os.path.realpath(each) for each in self.shown]
        return sorted(
            each
            for each in found
            if each != "/" and not _is_below(each, "/dev") and not any(_is_below(each, folder) for folder in shown)
        )


def find_sandbox(hidden: Sequence[str] = (), shown: Sequence[str] = ()) -> Sandbox | None:
    """bubblewrap, if this machine has it and lets it work; some containers do not. It blocks.

    Args:
        hidden: Files and folders that are empty for the programs.
        shown: Folders that the programs read wherever they are.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        return None
    found = Sandbox(program, tuple(map(os.path.realpath, hidden)), tuple(map(os.path.abspath, shown)))
    probe = found.command([sys.executable, "-I", "-S", "-c", ""])
    try:
        done = subprocess.run(probe, capture_output=True, timeout=_PROBE_SECONDS, check=False)  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found if done.returncode == 0 else None


def _needed(environment: Mapping[str, str]) -> list[str]:
    """What a Python program of these variables reads: the interpreter, packages, libraries, and how names are found."""
    named = [path for name in _OF_PATHS for path in environment.get(name, "").split(os.pathsep)]
    python = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    return [os.path.abspath(each) for each in (*python, *filter(None, (*sys.path, *named)), _RESOLVER)]  # noqa: PTH100 - links stay


def _emptying(emptied: Sequence[str], shown: Sequence[str]) -> Iterator[str]:
    """Yield the options that empty folders, but for the files and folders that are shown and the links that lead there.

    A folder that is itself emptied stays so: where a server is started in ``/tmp``, Python has that among its paths.
    """
    links: dict[str, str] = {}
    ends = {_follow(path, links) for path in shown}
    is_empty = dict.fromkeys((*emptied, _MEMORY), True)
    for place in sorted({*emptied, *ends}):  # a folder comes before what is in it
        if place in emptied:
            yield from ("--tmpfs", place)
        elif _is_empty_at(place, is_empty) and Path(place).exists():
            is_empty[place] = False
            yield from ("--ro-bind", place, place)
    for link, target in links.items():
        if _is_empty_at(link, is_empty):
            yield from ("--symlink", target, link)


def _is_empty_at(place: str, is_empty: Mapping[str, bool]) -> bool:
    """Whether the nearest of these folders that a place is in is empty."""
    around = [folder for folder in is_empty if _is_below(place, folder)]
    return bool(around) and is_empty[max(around, key=len)]


def _follow(path: str, links: dict[str, str]) -> str:
    """The path without links; each link on the way is added to ``links`` with its target."""
    done, left = "/", [*reversed(Path(path).parts[1:])]
    passed = 0
    while left:
        part = left.pop()
        place = os.path.normpath(os.path.join(done, part))  # noqa: PTH118 - a Path keeps ".."
        if passed == _MOST_LINKS or not os.path.islink(place):  # noqa: PTH114 - a text
            done = place
            continue
        passed += 1
        links[place] = target = os.readlink(place)  # noqa: PTH115 - a text
        left += reversed([each for each in target.split("/") if each])
        done = "/" if target.startswith("/") else done
    return done


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
