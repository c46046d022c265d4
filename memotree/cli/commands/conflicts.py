"""``memotree session conflicts | resolve``: the conflicts that a session keeps, and what is chosen for them."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.commands.sessions import SessionArgument, named_session
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode, conflict_table
from memotree.cli.target import Choice
from memotree.cli.terminal.output import counted, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memotree.client import Author, Conflict, ConflictSide, Resolution, Session, SessionInfo, StagedMerge

ResolveOption = Annotated[
    bool, typer.Option("--resolve", help="Stage it in a new session instead, and resolve what conflicts there.")
]


WhoOption = Annotated[
    str, typer.Option("--agent", help="Who does it; MEMOTREE_AGENT, else your login name, when not given.")
]


def author_of(agent: str) -> "Author | None":
    """The author of a commit; ``None`` for the default one."""
    from memotree.client import Author  # noqa: PLC0415 - gRPC is loaded when the call is made

    return Author(agent) if agent else None


class UnclearChoiceError(CliError):
    """The options do not say what to choose."""

    exit_code = ExitCode.USAGE
    reason = "UNCLEAR_CHOICE"


class Side(StrEnum):
    """A side of a conflict."""

    OURS = "ours"
    THEIRS = "theirs"
    BASE = "base"


def stage_in_session(
    cli: CliContext, branch: str, stage: "Callable[[Session], StagedMerge]", what: str, *, agent: str, message: str
) -> None:
    """Stage a merge in a new session, which is chosen, and tell what to do next."""
    if message:
        raise UnclearChoiceError("With --resolve nothing is committed yet; give --message to `memotree commit` then.")
    session = cli.workspace.session(agent=agent, branch=branch)
    try:
        made = stage(session)
    except BaseException:
        session.discard()
        raise
    cli.choose(Choice(cli.choice.workspace, session.id))
    conflicts = list(session.conflicts()) if made.conflict_count else []
    cli.output.show(
        {"session": session.id, "staged": made, "conflicts": conflicts}, lambda: _look(conflicts) if conflicts else None
    )
    changed = counted(made.change_count, "entry", "entries")
    cli.output.done(f"{what} is staged in the new session {session.id} on {made.branch}; {changed} changed.")
    _tell_next(cli, made.conflict_count)


def _tell_next(cli: CliContext, conflicts: int) -> None:
    if conflicts:
        cli.output.note(
            f"{counted(conflicts, 'conflict')} to resolve: `memotree session resolve NODE FIELD --take ours|theirs`, "
            "or edit the nodes. Then `memotree commit -m MESSAGE`."
        )
    else:
        cli.output.note("No conflict is left. `memotree commit -m MESSAGE` commits it.")


def _look(conflicts: "Sequence[Conflict]") -> RenderableType:
    return conflict_table(conflicts, ("Ours", "Theirs"), with_kind=True)


@command("session conflicts", WORKSPACE)
def conflicts(cli: CliContext, session: SessionArgument = "") -> None:
    """List the conflicts of the session that are not resolved."""
    found = list(named_session(cli, session).session.conflicts())
    cli.output.show({"conflicts": found}, lambda: _look(found) if found else Text("No conflict is left.", "dim"))


@command("session resolve", WORKSPACE)
def resolve(
    cli: CliContext,
    node: Annotated[str, typer.Argument(metavar="[NODE]", help="The node or archive; not with --all."), NODE_NAME] = "",
    field: Annotated[
        str, typer.Argument(metavar="[FIELD]", help="The field of the conflict; all of the node when not given.")
    ] = "",
    take: Annotated[Side | None, typer.Option(help="The side whose value is taken.")] = None,
    text: Annotated[str | None, typer.Option(help="A text of your own.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the attribute, relation or source.")] = False,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="For each part of a content, in order: ours, theirs, base, or = and a text of your own.",
            metavar="SIDE|=TEXT",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Resolve every conflict of the session with --take.")] = False,
    message: Annotated[str, typer.Option("--message", "-m", help="The reason, for the body of the commit.")] = "",
) -> None:
    """Resolve conflicts of the session: by a side, a text of your own, or part by part."""
    if every != (not node):
        raise UnclearChoiceError("Name a node, or give --all for every conflict of the session.")
    if every:
        if take is None or text is not None or remove or part:
            raise UnclearChoiceError("--all goes with --take ours, theirs or base, and with no other choice.")
        info = cli.session.resolve(others=_side(take), message=message)
    else:
        info = cli.session.resolve([_resolution(node, field, take, text, part or [], remove=remove)], message=message)
    _tell(cli, info)


def _resolution(
    node: str, field: str, take: Side | None, text: str | None, parts: list[str], *, remove: bool
) -> "Resolution":
    from memotree.client import Resolution  # noqa: PLC0415 - gRPC is loaded when the call is made

    if sum((take is not None, text is not None, remove, bool(parts))) != 1:
        raise UnclearChoiceError("Give one of --take, --text, --remove and --part.")
    if take is not None:
        return Resolution(node, field, side=_side(take))
    if parts:
        return Resolution(node, field, hunks=[_part(each) for each in parts])
    return Resolution(node, field, text=text, remove=remove)


def _side(side: Side) -> "ConflictSide":
    from memotree.client import ConflictSide  # noqa: PLC0415 - the same

    return ConflictSide[side.name]


def _part(given: str) -> "ConflictSide | str":
    if given.startswith("="):
        return given[1:]
    try:
        return _side(Side(given))
    except ValueError:
        raise UnclearChoiceError(f"{given!r} is no part: give ours, theirs, base, or = and a text.") from None


def _tell(cli: CliContext, info: "SessionInfo") -> None:
    cli.output.show(info, lambda: None)
    cli.output.done(f"Resolved in the session {info.id}, whose base is {short(info.base_commit_id)}.")
    _tell_next(cli, info.conflict_count)
