"""The hook that git runs in a repository after a push to it, so that the service can take in what was pushed."""

import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

_FILE: Final = "hooks/post-receive"
_MARK: Final = "# Written by MemoTree."

_log = structlog.get_logger(__name__)

_SCRIPT: Final = """\
#!/bin/sh
{mark} It never refuses a push. MemoTree replaces this file unless you take out this line.
unset PYTHONHOME
export PYTHONPATH={path}
[ -x {program} ] || {{ echo "MemoTree is not installed where it was. A server takes this in."; exit 0; }}
exec {command}
"""


def install_hook(repository: Path, command: Sequence[str]) -> None:
    """Let git run a command after each push, in the repository's folder, with a line for each ref on its input.

    A hook that somebody else wrote stays, and so does a folder of hooks that is a link. If the disk refuses, pushes are
    taken in with the next write, as without a hook.

    Args:
        repository: The folder of a bare repository.
        command: A program by its absolute path, and its arguments.
    """
    path = repository / _FILE
    script = _SCRIPT.format(
        mark=_MARK,
        path=shlex.quote(os.environ.get("PYTHONPATH", "")),  # not that of whoever pushes
        program=shlex.quote(command[0]),
        command=shlex.join(command),
    )
    try:
        _write(path, os.fsencode(script))
    except OSError as error:
        _log.warning("a repository has no hook", repository=repository.name, why=str(error))


def _write(path: Path, script: bytes) -> None:
    if path.is_symlink() or path.parent.is_symlink():  # a folder of somebody else, perhaps of all repositories
        return
    found = path.read_bytes() if path.is_file() else b""
    if found == script or (found and _MARK.encode() not in found):
        return
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        draft.write_bytes(script)
        draft.chmod(0o700)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
