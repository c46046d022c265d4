"""The hooks that git runs in a repository: before a push moves refs, to refuse it, and after it, to take it in."""

import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

_AFTER: Final = "hooks/post-receive"
_BEFORE: Final = "hooks/pre-receive"
_MARK: Final = "# Written by MemoTree."

_log = structlog.get_logger(__name__)

_SCRIPT_AFTER: Final = """\
#!/bin/sh
{mark} It never refuses a push. MemoTree replaces this file unless you take out this line.
unset PYTHONHOME
export PYTHONPATH={path}
[ -x {program} ] || {{ echo "MemoTree is not installed where it was. A server takes this in."; exit 0; }}
exec {command}
"""

_SCRIPT_BEFORE: Final = """\
#!/bin/sh
{mark} It refuses pushes to protected branches and below refs/memotree/. MemoTree replaces this file
# unless you take out the line above.
updates=$(cat)
if printf '%s\\n' "$updates" | LC_ALL=C grep -q '^[0-9a-f]* [0-9a-f]* refs/memotree/'; then
  echo "MemoTree keeps what is below refs/memotree/ itself. Push branches and tags alone."
  exit 1
fi
git rev-parse --quiet --verify refs/memotree/protections >/dev/null || exit 0
unset PYTHONHOME
export PYTHONPATH={path}
[ -x {program} ] || {{ echo "MemoTree, which knows the protected branches, is not installed where it was."; exit 1; }}
printf '%s\\n' "$updates" | {command}
"""
"""Without a protection it starts no Python. It needs no server: the protections are in the repository."""


def install_guard(repository: Path, command: Sequence[str]) -> None:
    """Let git ask a command before each push, in the repository's folder, with a line for each ref on its input.

    A hook that somebody else wrote stays, and then protected branches take pushes: that is logged.

    Args:
        repository: The folder of a bare repository.
        command: A program by its absolute path, and its arguments; it refuses the push by its exit status.
    """
    if not _install(repository, _BEFORE, _SCRIPT_BEFORE, command):
        name = repository.name
        _log.warning("pushes to protected branches are not refused; another hook is in the way", repository=name)


def install_hook(repository: Path, command: Sequence[str]) -> None:
    """Let git run a command after each push, in the repository's folder, with a line for each ref on its input.

    A hook that somebody else wrote stays, and so does a folder of hooks that is a link. If the disk refuses, pushes are
    taken in with the next write, as without a hook.

    Args:
        repository: The folder of a bare repository.
        command: A program by its absolute path, and its arguments.
    """
    _install(repository, _AFTER, _SCRIPT_AFTER, command)


def _install(repository: Path, name: str, template: str, command: Sequence[str]) -> bool:
    """Write a hook; return whether it is ours then."""
    path = repository / name
    script = template.format(
        mark=_MARK,
        path=shlex.quote(os.environ.get("PYTHONPATH", "")),  # not that of whoever pushes
        program=shlex.quote(command[0]),
        command=shlex.join(command),
    )
    try:
        return _write(path, os.fsencode(script))
    except OSError as error:
        _log.warning("a repository has no hook", repository=repository.name, why=str(error))
        return False


def _write(path: Path, script: bytes) -> bool:
    if path.is_symlink() or path.parent.is_symlink():  # a folder of somebody else, perhaps of all repositories
        return False
    found = path.read_bytes() if path.is_file() else b""
    if found == script:
        return True
    if found and _MARK.encode() not in found:
        return False
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        draft.write_bytes(script)
        draft.chmod(0o700)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return True
