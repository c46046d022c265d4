"""``memotree revert | cherry-pick | undo``: new commits that take back, or bring in, what other commits changed."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.options import YesOption
from memotree.cli.arguments.revision_names import ALSO, REVISION_NAME
from memotree.cli.commands.conflicts import ResolveOption, UnclearChoiceError, WhoOption, author_of, stage_in_session
from memotree.cli.commands.selecting import BelowOption, ByOption, OnlyOption, TagOption, selection
from memotree.cli.commands.workspaces import confirm
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal import display
from memotree.cli.terminal.output import counted, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memotree.client import Commit, PickedCommit, Session, StagedMerge

_LOOKED_AT: Final = 1000
"""The commits among which the last one of an agent or session is looked for."""

_PREFIX: Final = 4
"""The fewest characters of a session's id that may stand for it."""

CommitArgument = Annotated[
    str,
    typer.Argument(
        metavar="COMMIT",
        help=f"A commit (or its first digits), tag or branch. {ALSO}.",
        autocompletion=completion.revisions,
    ),
    REVISION_NAME,
]
BranchOption = Annotated[
    str,
    typer.Option(
        "--branch", help="The branch that gets the new commit; the default branch.", autocompletion=completion.branches
    ),
]
ParentOption = Annotated[
    int, typer.Option("--parent", min=0, help="For a merge: the parent that its changes are counted from.")
]
MessageOption = Annotated[str, typer.Option("--message", "-m", help="The commit message; as git gives it otherwise.")]
PreviewOption = Annotated[bool, typer.Option("--preview", help="Show what would change; write nothing.")]
DeleteOthersOption = Annotated[
    bool, typer.Option("--delete-others", help="Delete what stands below it now, but did not then.")
]


class NothingToUndoError(CliError):
    """The branch has no commit of that agent or session."""

    reason = "NOTHING_TO_UNDO"


class AgentAndSessionError(CliError):
    """One command names an agent and a session where one can be meant."""

    reason = "AGENT_AND_SESSION"


def _show(cli: CliContext, made: "PickedCommit", done: str, *, preview: bool) -> None:
    """What was made or would be made; ``done`` says what was done."""

    def look() -> RenderableType | None:
        return display.entries(made.changes) if preview else None

    cli.output.show(made, look)
    changed = counted(made.change_count, "entry", "entries")
    if preview:
        cli.output.note(Text(f"{changed} would change.", "dim"))
    else:
        cli.output.done(f"{done} on {made.branch}, now at {short(made.commit_id)}; {changed} changed.")


@command("revert", WORKSPACE)
def revert(
    cli: CliContext,
    commit: CommitArgument,
    branch: BranchOption = "",
    parent: ParentOption = 0,
    message: MessageOption = "",
    preview: PreviewOption = False,
    resolve: ResolveOption = False,
    agent: WhoOption = "",
    only: OnlyOption = None,
    below: BelowOption = None,
    tag: TagOption = None,
    by: ByOption = None,
) -> None:
    """Take back what a commit changed, by a new commit; what was changed since stays."""
    wanted = selection(only, below, tag, by)
    if resolve:
        what = f"The revert of {short(commit)}"
        stage_in_session(
            cli,
            branch,
            lambda session: session.revert(commit, parent_number=parent, only=wanted),
            what,
            agent=agent,
            message=message,
        )
        return
    made = cli.workspace.revert(
        *(commit, branch),
        parent_number=parent,
        message=message,
        author=author_of(agent),
        only=wanted,
        preview=preview,
    )
    _show(cli, made, f"{short(commit)} is reverted", preview=preview)


@command("cherry-pick", WORKSPACE)
def cherry_pick(
    cli: CliContext,
    commit: CommitArgument,
    branch: BranchOption = "",
    parent: ParentOption = 0,
    message: MessageOption = "",
    preview: PreviewOption = False,
    resolve: ResolveOption = False,
    agent: WhoOption = "",
    only: OnlyOption = None,
    below: BelowOption = None,
    tag: TagOption = None,
    by: ByOption = None,
) -> None:
    """Bring into a branch what a commit changed elsewhere, by a new commit."""
    wanted = selection(only, below, tag, by)
    if resolve:
        what = f"The pick of {short(commit)}"
        stage_in_session(
            cli,
            branch,
            lambda session: session.cherry_pick(commit, parent_number=parent, only=wanted),
            what,
            agent=agent,
            message=message,
        )
        return
    made = cli.workspace.cherry_pick(
        *(commit, branch),
        parent_number=parent,
        message=message,
        author=author_of(agent),
        only=wanted,
        preview=preview,
    )
    _show(cli, made, f"{short(commit)} is picked", preview=preview)


def restore_nodes(
    cli: CliContext,
    nodes: "list[str]",
    to: str,
    branch: str,
    message: str,
    *,
    agent: str,
    recursive: bool,
    delete_others: bool,
    preview: bool,
    resolve: bool,
) -> None:
    """Restore nodes or archives from a revision, or show or stage that."""
    if not to:
        raise UnclearChoiceError("Give the revision at which it is as wanted: --to REVISION.")
    if resolve:

        def stage(session: "Session") -> "StagedMerge":
            return session.restore_nodes(nodes, to, recursive=recursive, delete_others=delete_others)

        stage_in_session(cli, branch, stage, f"What it was at {short(to)}", agent=agent, message=message)
        return
    made = cli.workspace.restore_nodes(
        *(nodes, to, branch),
        recursive=recursive,
        delete_others=delete_others,
        message=message,
        author=author_of(agent),
        preview=preview,
    )
    _show(cli, made, f"Restored as of {short(to)}", preview=preview)


@command("archive restore", WORKSPACE)
def restore_archive(
    cli: CliContext,
    archive: Annotated[str, typer.Argument(metavar="ARCHIVE", help="Its name at that revision, or its id.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="REVISION",
            help=f"A branch, tag or commit at which it is as wanted. {ALSO}.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ],
    delete_others: DeleteOthersOption = False,
    branch: BranchOption = "",
    message: MessageOption = "",
    preview: PreviewOption = False,
    resolve: ResolveOption = False,
    agent: WhoOption = "",
) -> None:
    """Set an archive and its nodes to what they were at a revision, and commit that."""
    found = cli.workspace.at(to).archive(archive)
    restore_nodes(
        cli,
        [found.id],
        to,
        branch,
        message,
        agent=agent,
        recursive=True,
        delete_others=delete_others,
        preview=preview,
        resolve=resolve,
    )


@command("undo", WORKSPACE)
def undo(
    cli: CliContext,
    branch: BranchOption = "",
    agent: Annotated[
        str, typer.Option("--agent", help="Whose last commit; MEMOTREE_AGENT, else your login name, when not given.")
    ] = "",
    session: Annotated[
        str, typer.Option("--session", help="Not of an agent, but of this session: its id or a prefix.")
    ] = "",
    yes: YesOption = False,
) -> None:
    """Take back the last commit of an agent or a session, after showing it; undoing again brings it back."""
    from memotree.client.default_agent import default_agent  # noqa: PLC0415 - gRPC is loaded when the call is made

    if session and agent:
        raise AgentAndSessionError("--agent and --session cannot be given together; a session has one agent.")
    workspace = cli.workspace
    last = _last_of_session(workspace.at(branch).log(), session) if session else None
    who = "" if session else agent or default_agent()
    if who:
        last = _last_of(workspace.at(branch).log(author=who), who)
    where = branch or "the default branch"
    if last is None:
        raise NothingToUndoError(
            f"{who or f'The session {session}'} has no commit among the last {_LOOKED_AT:,} of {where}. Name another "
            "one with --agent or --session, or a commit with `memotree revert`."
        )
    parent = 1 if len(last.parent_ids) > 1 else 0
    told = workspace.revert(last.id, branch, parent_number=parent, preview=True)
    if not yes:
        shown = Group(display.commit_line(last), display.entries(told.changes))
        cli.output.note(shown)
        confirm(cli, f"Take back {short(last.id)}, {last.subject!r}?", yes=yes)
    made = workspace.revert(last.id, branch, parent_number=parent)
    _show(cli, made, f"{last.subject!r} is undone", preview=False)


def _last_of(commits: "Iterator[Commit]", agent: str) -> "Commit | None":
    """The newest commit whose author is exactly this agent."""
    return next((each for each in islice(commits, _LOOKED_AT) if each.author.name == agent), None)


def _last_of_session(commits: "Iterator[Commit]", session: str) -> "Commit | None":
    """The newest commit of a session, which is given by its id or by four of its first characters or more."""
    for each in islice(commits, _LOOKED_AT):
        if each.session_id == session or (len(session) >= _PREFIX and each.session_id.startswith(session)):
            return each
    return None
