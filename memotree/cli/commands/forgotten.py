"""Finds forgotten notes by title, in the lists of deleted entries that commit messages have."""

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from memotree.cli.arguments.node_names import ID_LENGTH, NoSuchNodeError, full_id
from memotree.cli.errors import CliError, ExitCode
from memotree.cli.terminal.listed_entries import paragraphs
from memotree.cli.terminal.output import when

if TYPE_CHECKING:
    from datetime import datetime

    from memotree.client import Workspace

MOST_COMMITS: Final = 1000
"""How many commits are searched, from the newest: one call."""
_MOST_LISTED: Final = 10


class SeveralForgottenError(CliError):
    """Several forgotten notes had this title."""

    exit_code = ExitCode.FAILED
    reason = "SEVERAL_FORGOTTEN"

    def __init__(self, title: str, found: "dict[str, datetime | None]") -> None:
        listed = "".join(
            f"\n  memotree node restore {each}  # forgotten {when(time)}"
            for each, time in islice(found.items(), _MOST_LISTED)
        )
        more = f"\n  and {len(found) - _MOST_LISTED} older ones" if len(found) > _MOST_LISTED else ""
        super().__init__(f"{len(found)} forgotten notes had the title {title!r}; restore one by its id:{listed}{more}")


def id_alive_or_forgotten(workspace: "Workspace", branch: str, name: str) -> str:
    """The id of the node that ``name`` means on the branch, else of the forgotten one that had this title.

    Raises:
        NoSuchNodeError: Neither a node nor a note that was forgotten in the last 1000 commits has this title.
        AmbiguousNameError: Several nodes have it.
        SeveralForgottenError: Several forgotten notes had it.
    """
    here = workspace.at(branch)
    with suppress(NoSuchNodeError):
        found = full_id(here, name)
        if found != name or len(name) == ID_LENGTH:
            return found
    deleted = _deleted(workspace, branch, {name, name.rpartition("/")[2]})
    gone = {each: time for each, time in deleted.items() if not here.named(each)}
    if len(gone) > 1:
        raise SeveralForgottenError(name, gone)
    return next(iter(gone), "") or full_id(here, name)  # without a title it may be the beginning of an id


def _deleted(workspace: "Workspace", branch: str, titles: set[str]) -> "dict[str, datetime | None]":
    """The entries with one of these titles that recent commits deleted, the last deleted first, each with the time."""
    wanted = {title.casefold() for title in titles}
    found: dict[str, datetime | None] = {}
    for commit in islice(workspace.at(branch).log(page_size=MOST_COMMITS), MOST_COMMITS):
        for paragraph in paragraphs(commit.message):
            for each in paragraph.entries if paragraph.sign == "-" else ():
                if each.title.casefold() in wanted:
                    found.setdefault(each.id, commit.commit_time)
    return found
