"""``memotree session``: manage working sessions, and choose the one that commands use."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import YesOption
from memotree.cli.commands.workspaces import confirm
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode, NoSessionError
from memotree.cli.target import Choice, forget_session
from memotree.cli.terminal.display import change_kind
from memotree.cli.terminal.output import counted, facts, short, table, when

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import SessionInfo, StagedChange


class SessionNotOpenError(CliError):
    """The session to choose accepts no changes."""

    exit_code = ExitCode.FAILED
    reason = "SESSION_NOT_OPEN"

    def __init__(self, info: "SessionInfo") -> None:
        kept = (
            f"; `memotree session changes {info.id}` shows its staged changes"
            if info.state == "DETACHED" and info.change_count
            else ""
        )
        why = _WHY_NOT_OPEN.get(info.state, f"is {info.state.lower()}")
        super().__init__(
            f"The session {info.id} {why} and accepts no changes{kept}. Open another one with `memotree session open`, "
            "or choose one from `memotree session list`."
        )


_WHY_NOT_OPEN = {"DETACHED": "lost its branch or its base commit"}

SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="[SESSION]",
        envvar="MEMOTREE_SESSION",
        help="The session; the chosen one when not given.",
        autocompletion=completion.sessions,
    ),
]


def _look(info: "SessionInfo") -> "RenderableType":
    return facts(
        [
            ("session", Text(info.id, "yellow")),
            ("agent", info.agent),
            ("branch", info.branch),
            ("base", short(info.base_commit_id)),
            ("state", info.state.lower()),
            ("changes", str(info.change_count)),
            *([("conflicts", str(info.conflict_count))] if info.conflict_count else []),
            *([("merges", short(info.merge_commit_id))] if info.merge_commit_id else []),
            *([("rewound", "yes; its branch was moved by a push: memotree session rebase")] if info.rewound else []),
            ("opened", when(info.create_time)),
            ("used", when(info.update_time)),
            ("expires", when(info.expire_time)),
        ]
    )


@command("session open", WORKSPACE)
def open_(
    cli: CliContext,
    agent: Annotated[str, typer.Option("--agent", help="The name of the agent or person who works in it.")] = "",
    branch: Annotated[
        str, typer.Option("--branch", "-b", help="The branch it commits to.", autocompletion=completion.branches)
    ] = "",
    idle_hours: Annotated[
        float | None, typer.Option(help="Idle hours after which it expires; a week when not given.")
    ] = None,
    use: Annotated[bool, typer.Option(help="Choose it for later commands.")] = True,
) -> None:
    """Open a session, and choose it."""
    ttl = None if idle_hours is None else timedelta(hours=idle_hours)
    session = cli.workspace.session(agent=agent, branch=branch, ttl=ttl)
    info = session.info()
    if use:
        cli.choose(Choice(cli.choice.workspace, info.id))
    cli.output.show(info, lambda: _look(info))
    cli.output.done(f"The session {info.id} is open{' and chosen' if use else ''}.")


@command("session list", WORKSPACE)
def list_(
    cli: CliContext, include_closed: Annotated[bool, typer.Option("--all", help="Include closed sessions.")] = False
) -> None:
    """List the open sessions and the detached ones with staged changes, most recently used first."""
    found = [
        each
        for each in cli.workspace.sessions(include_closed=True)
        if include_closed or each.state == "OPEN" or (each.state == "DETACHED" and each.change_count)
    ]
    chosen = cli.choice.session
    cli.output.show(
        {"sessions": found, "chosen": chosen},
        lambda: table(
            ["", ("Id", "yellow"), "Agent", "Branch", "State", "Changes", ("Used", "dim")],
            [
                (
                    "*" if each.id == chosen else "",
                    each.id,
                    each.agent,
                    each.branch,
                    each.state.lower(),
                    str(each.change_count),
                    when(each.update_time),
                )
                for each in found
            ],
            empty="There is no session; open one with `memotree session open`.",
        ),
    )


def named_session(cli: CliContext, session: str) -> CliContext:
    """The context with the session of the argument, which overrides the option and the choice."""
    if session:
        cli.session_option = session
    return cli


@command("session show", WORKSPACE)
def show(cli: CliContext, session: SessionArgument = "") -> None:
    """Show one session."""
    info = named_session(cli, session).session.info()
    cli.output.show(info, lambda: _look(info))


@command("session use", WORKSPACE)
def use(
    cli: CliContext,
    session: SessionArgument = "",
    none: Annotated[bool, typer.Option("--none", help="Choose none: commands read the default branch.")] = False,
) -> None:
    """Choose the session for later commands."""
    workspace = cli.workspace
    if none:
        cli.choose(Choice(cli.choice.workspace))
        cli.output.show({"workspace": cli.choice.workspace, "session": ""}, lambda: None)
        cli.output.done("Commands now use no session; they read the default branch.")
        return
    if not session:
        raise NoSessionError
    info = workspace.resume(session).info()
    if info.state != "OPEN":
        raise SessionNotOpenError(info)
    cli.choose(Choice(cli.choice.workspace, info.id))
    cli.output.show({"workspace": cli.choice.workspace, "session": info.id}, lambda: None)
    cli.output.done(f"Commands now use the session {info.id} of {info.agent} on {info.branch}.")


def _row(change: "StagedChange") -> tuple[Text | str, ...]:
    fields = ", ".join(change.fields)
    why = [*change.commit_messages, *(f"does not fit: {each.description}" for each in change.conflicts)]
    return change_kind(change.kind), change.node_id, change.title, fields, "\n".join(why)


@command("session changes", WORKSPACE)
def changes(cli: CliContext, session: SessionArgument = "") -> None:
    """List the staged changes of the session."""
    found = list(named_session(cli, session).session.changes())
    cli.output.show(
        {"changes": found},
        lambda: table(
            ["", ("Id", "yellow"), "Title", ("Fields", "dim"), ("Why", "dim")],
            [_row(each) for each in found],
            empty="Nothing is staged.",
        ),
    )


@command("session discard", WORKSPACE)
def discard(
    cli: CliContext,
    session: SessionArgument = "",
    node: Annotated[
        list[str] | None,
        typer.Option("--node", "-n", help="Discard only the changes of this node; may be given several times."),
        NODE_NAME,
    ] = None,
    yes: YesOption = False,
) -> None:
    """Discard the staged changes and close the session, or discard only some and keep it open."""
    handle = named_session(cli, session).session
    if node:
        info = handle.discard_changes(node)
        cli.output.show(info, lambda: None)
        cli.output.done(f"Discarded; still staged: {counted(info.change_count, 'change')}.")
        return
    staged = handle.info().change_count
    if staged:
        confirm(cli, f"Discard {counted(staged, 'staged change')}?", yes=yes)
    info = handle.discard()
    forget_session(cli.address, info.id)
    cli.output.show(info, lambda: None)
    cli.output.done(f"The session {info.id} is discarded.")


@command("session rebase", WORKSPACE)
def rebase(
    cli: CliContext,
    session: SessionArgument = "",
    keep: Annotated[
        bool,
        typer.Option(
            "--keep-conflicts", help="Do so also if there are conflicts, which then wait in the session to be resolved."
        ),
    ] = False,
) -> None:
    """Move the session to the head of its branch; staged changes are merged per field."""
    info = named_session(cli, session).session.rebase(keep_conflicts=keep)
    cli.output.show(info, lambda: _look(info))
    cli.output.done(f"The base of the session is now {short(info.base_commit_id)}.")
    if info.conflict_count:
        cli.output.note(
            f"{counted(info.conflict_count, 'conflict')} to resolve: `memotree session conflicts`, `memotree session "
            "resolve`."
        )
