"""The errors of the command line itself, and how all errors are printed for a person or a program."""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from memotree.cli.terminal.output import ID, Cell, Column, plain, table
from memotree.cli.wording import in_commands, in_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from memotree.cli.terminal.output import Output
    from memotree.client import MemoTreeClientError
    from memotree.client.conflicts import Conflict, FieldValue


class ExitCode(IntEnum):
    """The exit codes of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class CliError(Exception):
    """The command cannot continue; the message is a sentence that says what to do next."""

    exit_code = ExitCode.USAGE
    reason = "USAGE"


class NoWorkspaceError(CliError):
    """No workspace was chosen."""

    reason = "NO_WORKSPACE_CHOSEN"

    def __init__(self) -> None:
        super().__init__(
            "No workspace is chosen. Give --workspace NAME, or choose one for later commands with "
            "`memotree ws use NAME` (`memotree ws create NAME` creates one, `memotree ws list` shows all)."
        )


class NoSessionError(CliError):
    """The command changes something, and no session was chosen."""

    reason = "NO_SESSION_CHOSEN"

    def __init__(self) -> None:
        super().__init__(
            "Changes are made in a session, and none is chosen. Open one with `memotree session open`, or choose one "
            "with `memotree session use ID` (or --session ID)."
        )


class FileError(CliError):
    """A given file cannot be read."""

    exit_code = ExitCode.FAILED
    reason = "FILE_NOT_READABLE"


class StartError(CliError):
    """The server cannot start, or ended early."""

    exit_code = ExitCode.FAILED
    reason = "SERVER_NOT_STARTED"


def tell_cli_error(output: Output, error: CliError) -> int:
    """Prints the error; returns the exit code."""
    if output.as_json:
        output.document({"error": {"code": "CLI", "reason": error.reason, "message": str(error)}})
    output.error(str(error))
    return error.exit_code


def tell_client_error(
    output: Output, error: MemoTreeClientError, hint: str = "", own: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Prints the error with all faults, conflicts and nodes that the server sent; returns the exit code.

    Args:
        output: Where to.
        error: What the server answered.
        hint: A sentence for its end.
        own: The options of the command by the field that they give.
    """
    unreachable = error.code == "UNAVAILABLE" and not error.reason
    sentence = in_options(in_commands(error.message), own)
    if unreachable:
        sentence = f"{sentence.partition(' (')[0]}. Start one with `memotree serve`, or name another with --address."
    if output.as_json:
        document: dict[str, Any] = {"code": error.code, "reason": error.reason, "message": sentence}
        for name in ("violations", "conflicts", "nodes", "metadata"):
            if getattr(error, name):
                document[name] = plain(getattr(error, name))
        output.document({"error": document})
    output.error(sentence)
    faults = [
        (in_options(each.field, own), in_options(in_commands(each.description), own)) for each in error.violations
    ]
    if any(not _told(description, sentence) for _, description in faults):
        for field, description in faults:
            output.note(f"  • {field}: {description}")
    if error.conflicts:
        output.note(conflict_table(error.conflicts, _SIDES.get(error.reason, _OF_SESSION)))
    for node in error.nodes:
        output.note(Text.assemble("  ", (node.id, "yellow"), "  ", node.title))
    if hint:
        output.note(hint)
    return ExitCode.UNREACHABLE if unreachable else ExitCode.FAILED


def _told(description: str, sentence: str) -> bool:
    """Whether the sentence says this already, perhaps in other case or with another end."""
    return description.casefold().rstrip(". ") in sentence.casefold()


_OF_SESSION: Final = ("In the session", "On the branch")
OF_MERGE: Final = ("On the branch", "On the other side")
"""What the two sides of a merge are called in a table of conflicts."""

_SIDES: Final = {"MERGE_CONFLICT": OF_MERGE}


def conflict_table(conflicts: Iterable[Conflict], sides: tuple[str, str], *, with_kind: bool = False) -> RenderableType:
    """A table of conflicts with both sides next to each other, a content part by part if its parts are known.

    Args:
        conflicts: The conflicts.
        sides: What the sides are called.
        with_kind: Whether to say why they exclude each other.
    """
    columns: list[Column] = [("Node", ID), "Field", "Before", *sides, *([("Why", "dim")] if with_kind else [])]
    rows = [row for each in conflicts for row in _rows(each, with_kind=with_kind)]
    return Group(Text("Conflicts", "bold"), table(columns, rows, empty=""))


def _rows(conflict: Conflict, *, with_kind: bool) -> Iterator[tuple[Cell, ...]]:
    why = (conflict.kind.lower().replace("_", " "),) if with_kind else ()
    for number, hunk in enumerate(conflict.hunks, 1):
        yield conflict.node_id, f"{conflict.field}, part {number}", hunk.base, hunk.ours, hunk.theirs, *why
    if not conflict.hunks:
        yield (
            conflict.node_id,
            conflict.field or "(all of it)",
            _side(conflict.base, conflict.base_value),
            _side(conflict.ours, conflict.our_value),
            _side(conflict.theirs, conflict.their_value),
            *why,
        )


def _side(text: str, value: FieldValue | None) -> Cell:
    """The value of one side; dim words say that it is empty, deleted or not there."""
    if isinstance(value, Enum):  # an absence
        return Text(text, "dim")
    return Text("empty", "dim") if value == "" else text
