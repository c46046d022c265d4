"""``memotree bisect``: since when a node says something, or a question is answered so; who did it, and why."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import NODE_HELP
from memotree.cli.commands.commits import AtOption, LimitOption
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode
from memotree.cli.terminal import display
from memotree.cli.terminal.output import short, table, when

if TYPE_CHECKING:
    from memotree.client import Node


class NothingToBisectError(CliError):
    """Neither a node nor a question was given, or both."""

    exit_code = ExitCode.USAGE
    reason = "NOTHING_TO_BISECT"


@command("bisect", WORKSPACE)
def bisect(
    cli: CliContext,
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help=NODE_HELP, autocompletion=completion.nodes), NODE_NAME
    ] = "",
    field: Annotated[
        str, typer.Argument(metavar="[FIELD]", help="Such as content, title or parent; any change when not given.")
    ] = "",
    question: Annotated[
        str, typer.Option("--question", "-q", help="In place of a node: since when it is answered so.")
    ] = "",
    at: AtOption = "",
    limit: LimitOption = 50,
) -> None:
    """List every commit at which a node, one field of it, or the answer to a question changed: who, when and why."""
    if bool(node) == bool(question):
        raise NothingToBisectError("Name a node, or give a --question.")
    if question:
        _bisect_answer(cli, question, at, limit)
        return
    found = list(islice(cli.workspace.at(at).bisect(node, field), limit))
    rows = [
        (each.commit, "merged" if each.merged else display.change_kind(each.kind), change, each.agent, each.reason)
        for each in found
        for change in each.fields
    ]
    cli.output.show(
        {"changes": found},
        lambda: table(
            [("Commit", "yellow"), "", "Field", "Before", "After", "Agent", ("When", "dim"), "Why"],
            [
                (
                    *(short(commit.id), kind, change.field, change.old_value or change.diff, change.new_value),
                    *(agent, when(commit.commit_time), reason or commit.subject),
                )
                for commit, kind, change, agent, reason in rows
            ],
            empty="No commit has changed that.",
        ),
    )


def _bisect_answer(cli: CliContext, question: str, at: str, limit: int) -> None:
    found = cli.workspace.at(at).bisect_answer(question, max_changes=min(limit, 100))
    cli.output.show(
        found,
        lambda: table(
            [("Commit", "yellow"), "", "Before", "After", "Agent", ("When", "dim"), "Why"],
            [
                (
                    *(short(each.commit.id), "merged" if each.merged else ""),
                    *(_said(each.before), _said(each.after), each.agent),
                    *(when(each.commit.commit_time), each.reason or each.commit.subject),
                )
                for each in found.changes
            ],
            empty="No note has ever answered that.",
        ),
    )
    if not found.complete:
        cli.output.note("There are more changes; a larger --limit shows some of them.")


def _said(node: "Node | None") -> str:
    return "" if node is None else f"{node.title}: {node.summary}" if node.summary else node.title
