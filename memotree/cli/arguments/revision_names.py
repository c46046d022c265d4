"""Revisions as people say them: a time for the newest commit then, and ``NAME~2`` for two commits before a name.

``REVISION_NAME`` marks the parameters of a command that name revisions; ``revision`` finds what each means before the
command runs. All other names are those of the server, and are sent as they are.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from memotree.cli.arguments.times import BadTimeError, said_time
from memotree.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from datetime import datetime

    from memotree.client import Workspace

ALSO: Final = "NAME~2 is two commits earlier, a time (yesterday, 2026-11-03) the newest commit then"
"""What a revision on the command line may be beside a name, for help."""


HEAD: Final = "HEAD"
"""A name that Git refuses for branches and tags."""


class _RevisionName:
    """Marks a parameter whose value names a revision."""


REVISION_NAME: Final = _RevisionName()

# Git allows none of these in the names of branches and tags: `~`, `^`, `:`, `@{`, white space.
_BEFORE: Final = re.compile(r"(?P<name>.*?)(?:~(?P<count>\d{0,6})|(?P<parent>\^))")
_OF_BRANCH: Final = re.compile(r"(?P<name>[^@]*)@\{(?P<time>.+)\}")
_MAY_BE_TIME: Final = re.compile(r"[a-z ]+|.*[-: ].*", re.IGNORECASE)
"""Digits alone are the beginning of a commit id, although ISO 8601 reads eight of them as a date."""


class NoCommitThenError(CliError):
    """The branch had no commit at that time."""

    exit_code = ExitCode.FAILED
    reason = "NO_COMMIT_THEN"

    def __init__(self, name: str, said: str, time: "datetime") -> None:
        of = f"{name!r}" if name else "The default branch"
        when = f"{time.astimezone():%Y-%m-%d %H:%M}"
        super().__init__(
            f"{of} had no commit yet at {when} ({said!r}). `memotree log` shows its commits, with their times."
        )


class TooFewCommitsError(CliError):
    """There are not so many commits before this one."""

    exit_code = ExitCode.FAILED
    reason = "TOO_FEW_COMMITS"

    def __init__(self, text: str, found: int) -> None:
        super().__init__(f"{text!r} is before the first commit; ~{found - 1} is the first one.")


def revision_parameters(hints: Mapping[str, Any]) -> frozenset[str]:
    """The parameters, given by name and type, that are marked with ``REVISION_NAME``."""
    return frozenset(name for name, hint in hints.items() if REVISION_NAME in getattr(hint, "__metadata__", ()))


def revision(workspace: "Workspace", text: str) -> str:
    """The revision that ``text`` means, in a form that the server knows.

    ``HEAD`` is the default branch, as in the workspace's Git repository. A text that is both a time and the name of a
    branch or tag is the name. ``BRANCH@{TIME}`` is a time of another branch than the default one.

    Raises:
        NoCommitThenError: The branch had no commit at this time.
        TooFewCommitsError: The first commit of the name is nearer than ``~`` says.
        BadTimeError: The braces contain no time.
    """
    if before := _BEFORE.fullmatch(text):
        count = 1 if before["parent"] else int(before["count"] or 1)
        return _before(workspace, text, revision(workspace, before["name"]), count)
    if of_branch := _OF_BRANCH.fullmatch(text):
        return _then(workspace, of_branch["name"], of_branch["time"], said_time(text, of_branch["time"]))
    if text == HEAD:
        return _before(workspace, text, "", 0)
    time = _time(text)
    if time is None or _is_name(workspace, text):
        return text
    return _then(workspace, "", text, time)


def _time(text: str) -> "datetime | None":
    if not _MAY_BE_TIME.fullmatch(text):
        return None
    try:
        return said_time("", text)
    except BadTimeError:
        return None


def _is_name(workspace: "Workspace", text: str) -> bool:
    return any(each.name == text for each in workspace.branches()) or any(
        each.name == text for each in workspace.tags()
    )


def _then(workspace: "Workspace", name: str, said: str, time: "datetime | None") -> str:
    """The newest commit of ``name`` that was made at this time or before."""
    if time is None:
        return name
    until = time + timedelta(microseconds=1)  # the filter leaves its end out
    for found in workspace.at(name).log(until=until, page_size=1):
        return found.id
    raise NoCommitThenError(name, said, time)


def _before(workspace: "Workspace", text: str, name: str, count: int) -> str:
    """The commit that is ``count`` first parents before ``name``."""
    found = list(islice(workspace.at(name).log(page_size=min(count + 1, 1000)), count + 1))
    if len(found) <= count:
        raise TooFewCommitsError(text, len(found))
    return found[count].id
