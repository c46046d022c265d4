"""``memotree branch pushes``: what pushes with git may do."""

from typing import Annotated

import typer

from memotree.cli.commands.conflicts import WhoOption, author_of
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.terminal.output import facts, when


@command("branch pushes", WORKSPACE)
def pushes(
    cli: CliContext,
    *,
    strict: Annotated[
        bool | None,
        typer.Option("--strict/--lenient", help="Refuse pushes that bring faults into a branch, or take them in."),
    ] = None,
    rewindable: Annotated[
        list[str] | None,
        typer.Option(
            "--rewindable",
            metavar="PATTERN",
            help="Let pushes rewind these branches alone: a name, or its beginning with * at its end. Repeat it.",
        ),
    ] = None,
    no_rewinds: Annotated[bool, typer.Option("--no-rewinds", help="Let no branch be rewound.")] = False,
    agent: WhoOption = "",
) -> None:
    """Show or set what pushes with git may do: bring faults into a branch, and rewind branches."""
    policy = cli.workspace.push_policy()
    if strict is not None or rewindable or no_rewinds:
        policy = cli.workspace.set_push_policy(
            strict=policy.strict if strict is None else strict,
            rewindable=() if no_rewinds else (rewindable or policy.rewindable),
            author=author_of(agent),
        )
    faults = "refused (strict)" if policy.strict else "taken in, and told (lenient)"
    cli.output.show(
        policy,
        lambda: facts(
            [
                ("pushes with faults", faults),
                ("may be rewound", ", ".join(policy.rewindable) or "no branch"),
                *([("set", f"{when(policy.set_time)} by {policy.set_by}")] if policy.set_by else []),
            ]
        ),
    )
