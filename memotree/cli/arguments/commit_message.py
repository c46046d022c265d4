"""Asks for the message of a commit in the user's editor, as Git does."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from memotree.cli.arguments.text_input import edit
from memotree.cli.errors import CliError

if TYPE_CHECKING:
    from memotree.client import StagedChange

_MARK: Final = "# ------------------------ >8 ------------------------"
"""The line below which the template only informs, as in Git; so a line of the message may begin with "#"."""
_SIGNS: Final = {"CREATED": "+", "UPDATED": "~", "DELETED": "-"}
_MOST_LISTED: Final = 100


class NoMessageError(CliError):
    """No message was given, so nothing is committed."""

    reason = "NO_MESSAGE"


def ask_message(branch: str, changes: "Iterable[StagedChange]") -> str:
    """The message that the user writes below a list of the staged changes.

    Raises:
        NoMessageError: There is no terminal for an editor, or the message is empty.
        EditorError: The editor failed.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoMessageError("Give the message with --message (-m), since there is no terminal for an editor.")
    written = edit(template(branch, changes), "COMMIT_EDITMSG").replace("\r\n", "\n")
    message = written.partition(_MARK)[0].strip()
    if not message:
        raise NoMessageError("The message is empty, so nothing was committed; the changes are still staged.")
    return message


def template(branch: str, changes: "Iterable[StagedChange]") -> str:
    """What the editor shows: room for the message, and the changes as comments."""
    listed = [f"# {_SIGNS[change.kind]} {change.title} ({change.node_id})" for change in changes]
    more = [f"# and {len(listed) - _MOST_LISTED} more"] if len(listed) > _MOST_LISTED else []
    lines = [
        *("", _MARK),
        "# Write the message above the line with >8; everything from that line on is left out.",
        "# An empty message stops the commit.",
        f"# Changes to be committed on {branch}:",
        *listed[:_MOST_LISTED],
        *more,
    ]
    return "\n".join(lines) + "\n"
