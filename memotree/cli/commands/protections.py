"""``memotree branch protect | unprotect | protections``: branches that change only by approved proposals."""

from typing import Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.commands.conflicts import WhoOption, author_of
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.terminal.output import counted, table, when

PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="A branch, or the beginning of names with * at its end.",
        autocompletion=completion.branches,
    ),
]


@command("branch protect", WORKSPACE)
def protect(
    cli: CliContext,
    pattern: PatternArgument,
    approvals: Annotated[int, typer.Option(help="How many others must approve a proposal.", min=1, max=10)] = 1,
    checks: Annotated[
        bool, typer.Option("--checks", help="Let no proposal be merged whose checks fail, memory tests among them.")
    ] = False,
    agent: WhoOption = "",
) -> None:
    """Protect branches: they change only by the merge of a proposal that others have approved."""
    made = cli.workspace.protect(pattern, required_approvals=approvals, checks_required=checks, author=author_of(agent))
    cli.output.show(made, lambda: None)
    also = ", and its checks must pass" if made.checks_required else ""
    cli.output.done(
        f"{made.pattern} is protected: a proposal needs {counted(made.required_approvals, 'approval')}{also}."
    )


@command("branch unprotect", WORKSPACE)
def unprotect(cli: CliContext, pattern: PatternArgument, agent: WhoOption = "") -> None:
    """End a protection; the record of who did so stays in Git."""
    cli.workspace.unprotect(pattern, author=author_of(agent))
    cli.output.show({"unprotected": pattern}, lambda: None)
    cli.output.done(f"{pattern} is not protected any more.")


@command("branch protections", WORKSPACE)
def protections(cli: CliContext) -> None:
    """List what is protected, by whom, and what a proposal needs there."""
    found = cli.workspace.protections()
    cli.output.show(
        {"protections": found},
        lambda: table(
            [("Branches", "bold cyan"), "Approvals", "Checks", "By", ("Since", "dim")],
            [
                (
                    each.pattern,
                    str(each.required_approvals),
                    "must pass" if each.checks_required else "",
                    each.protected_by,
                    when(each.protect_time),
                )
                for each in found
            ],
            empty="No branch is protected; protect one with `memotree branch protect BRANCH`.",
        ),
    )
