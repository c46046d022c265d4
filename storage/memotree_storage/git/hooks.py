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
_EACH: Final = "hooks/update"
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
{mark} It refuses pushes of other refs than branches and tags, to protected branches, and those that rewind
# a branch without permission. MemoTree replaces this file unless you take out the line above.
export GIT_NO_REPLACE_OBJECTS=1
updates=$(cat)
if printf '%s\\n' "$updates" | LC_ALL=C grep -q -v '^[0-9a-f]* [0-9a-f]* refs/\\(heads\\|tags\\)/'; then
  echo "MemoTree keeps what is below refs/memotree/ itself, and takes no other refs. Push branches and tags alone."
  [ -z "$MEMOTREE_PUSH_REFUSALS" ] || echo "FAILED_PRECONDITION REF_NOT_TAKEN" >>"$MEMOTREE_PUSH_REFUSALS"
  exit 1
fi
rewound=$(printf '%s\\n' "$updates" | while read -r old new name; do
  case "$name" in refs/heads/*) ;; *) continue ;; esac
  case "$old" in *[!0]*) ;; *) continue ;; esac
  case "$new" in *[!0]*) ;; *) continue ;; esac
  git merge-base --is-ancestor "$old" "$new" || printf '%s\\n' "$name"
done)
[ -n "$rewound$MEMOTREE_PUSH_BRANCHES$MEMOTREE_PUSH_COMMITTER" ] ||
  git rev-parse --quiet --verify refs/memotree/protections >/dev/null || exit 0
unset PYTHONHOME
export PYTHONPATH={path}
[ -x {program} ] || {{ echo "MemoTree, which knows what may be pushed, is not installed where it was."; exit 1; }}
printf '%s\\n\\n%s\\n' "$updates" "$rewound" | {command}
"""
"""Without a protection, a rewind or a limit of whoever pushes it starts no Python. It needs no server: the rules are in
the repository, and the server that runs git says on which branches its caller may write."""

_SCRIPT_EACH: Final = """\
#!/bin/sh
{mark} It refuses faults in the pushes to a strict workspace. MemoTree replaces this file unless you
# take out the line above.
export GIT_NO_REPLACE_OBJECTS=1
case "$1" in refs/heads/*) ;; *) exit 0 ;; esac
case "$3" in *[!0]*) ;; *) exit 0 ;; esac
git cat-file blob refs/memotree/pushes:policy.json 2>/dev/null | grep -q '"strict": true' || exit 0
unset PYTHONHOME
export PYTHONPATH={path}
[ -x {program} ] || {{ echo "MemoTree, which checks pushes, is not installed where it was."; exit 1; }}
exec {command} "$1" "$2" "$3"
"""
"""git runs this for each ref when the repository has the objects and the ref has not moved, so a server sees them."""


def install_guard(repository: Path, command: Sequence[str]) -> None:
    """Let git ask a command before each push, in the repository's folder.

    On its input is a line for each ref, an empty line, and a line for each branch that would be rewound. A hook that
    somebody else wrote stays, and then protected branches take pushes: that is logged.

    Args:
        repository: The folder of a bare repository.
        command: A program by its absolute path, and its arguments; it refuses the push by its exit status.
    """
    if not _install(repository, _BEFORE, _SCRIPT_BEFORE, command):
        name = repository.name
        _log.warning("pushes to protected branches are not refused; another hook is in the way", repository=name)


def has_guard(repository: Path) -> bool:
    """Whether git asks our command before each push to a repository, and not a hook that somebody else wrote."""
    try:
        return _MARK.encode() in (repository / _BEFORE).read_bytes()
    except OSError:
        return False


def install_check(repository: Path, command: Sequence[str]) -> None:
    """Let git ask a command before a branch of a strict workspace moves: it gets the ref, the old and the new id.

    Args:
        repository: The folder of a bare repository.
        command: A program by its absolute path, and its arguments; it refuses the update by its exit status.
    """
    if not _install(repository, _EACH, _SCRIPT_EACH, command):
        name = repository.name
        _log.warning("pushes with faults are not refused; another hook is in the way", repository=name)


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
