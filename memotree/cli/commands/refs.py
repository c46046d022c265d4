"""``memotree branch`` and ``memotree tag``: manage branches and tags, and merge branches."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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
from memotree.cli.errors import OF_MERGE, conflict_table
from memotree.cli.terminal import display
from memotree.cli.terminal.output import counted, short, table, when

if TYPE_CHECKING:
    from memotree.client import ChangeSelection, Workspace


AtArgument = Annotated[
    str,
    typer.Argument(
        metavar="[REVISION]",
        help=f"A branch, tag or commit; the default branch when not given. {ALSO}.",
        autocompletion=completion.revisions,
    ),
    REVISION_NAME,
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The new name.")]
BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch.", autocompletion=completion.branches)]
TagName = Annotated[str, typer.Argument(metavar="TAG", help="The tag.", autocompletion=completion.tags)]


@command("branch create", WORKSPACE)
def create_branch(cli: CliContext, name: NewName, at: AtArgument = "") -> None:
    """Create a branch; nothing is copied."""
    branch = cli.workspace.branch(name, at)
    cli.output.show(branch, lambda: None)
    cli.output.done(f"The branch {branch.name} is at {short(branch.commit_id)}.")


@command("branch list", WORKSPACE)
def list_branches(cli: CliContext) -> None:
    """List the branches."""
    found = list(cli.workspace.branches())
    cli.output.show(
        {"branches": found},
        lambda: table(
            [("Name", "bold cyan"), ("Commit", "yellow"), ""],
            [(each.name, short(each.commit_id), "protected" if each.protected else "") for each in found],
            empty="There is no branch.",
        ),
    )


def _question(workspace: "Workspace", name: str) -> str:
    """The question before a branch is deleted, which says what is lost with it."""
    on_it = [each for each in workspace.sessions() if each.branch == name]
    staged = sum(each.change_count for each in on_it)
    lost = "Commits that no tag, other branch or session reaches can no longer be found"
    if on_it:
        work = f"{counted(len(on_it), 'session')} with {counted(staged, 'staged change')}"
        lost = f"{work} can no longer commit to it. {lost}"
    return f"{lost}. Delete the branch {name}?"


@command("branch delete", WORKSPACE)
def delete_branch(cli: CliContext, name: BranchName, yes: YesOption = False) -> None:
    """Delete a branch; commits that another branch, a tag or a session reaches stay."""
    workspace = cli.workspace
    if not yes and any(each.name == name and not each.protected for each in workspace.branches()):
        confirm(cli, _question(workspace, name), yes=yes)
    detached = workspace.delete_branch(name)
    cli.output.show({"deleted": name, "detached_sessions": detached}, lambda: None)
    cli.output.done(f"The branch {name} is deleted; detached: {counted(detached, 'session')}.")


class StyleChoice(StrEnum):
    """How a merge is recorded."""

    COMMIT = "commit"
    FAST_FORWARD = "fast-forward"
    SQUASH = "squash"


@command("branch merge", WORKSPACE)
def merge_branch(
    cli: CliContext,
    source: Annotated[
        str,
        typer.Argument(
            metavar="REVISION",
            help=f"What is merged: a branch, tag or commit. {ALSO}.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ],
    into: Annotated[
        str,
        typer.Option("--into", help="The branch that gets it; the default branch.", autocompletion=completion.branches),
    ] = "",
    message: Annotated[
        str, typer.Option("--message", "-m", help="The commit message; 'Merge REVISION into BRANCH' when not given.")
    ] = "",
    style: Annotated[
        StyleChoice,
        typer.Option(
            help="A commit with both sides as parents, the branch moved to the other side, or a commit without the "
            "history of the other side."
        ),
    ] = StyleChoice.COMMIT,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would change and what conflicts; write nothing.")
    ] = False,
    resolve: ResolveOption = False,
    agent: WhoOption = "",
    only: OnlyOption = None,
    below: BelowOption = None,
    tag: TagOption = None,
    by: ByOption = None,
) -> None:
    """Merge a branch, tag or commit into a branch, three ways, per node and field."""
    wanted = selection(only, below, tag, by)
    if preview:
        _show_preview(cli, source, into, wanted)
        return
    if resolve:
        if style is StyleChoice.FAST_FORWARD:
            raise UnclearChoiceError("A fast-forward has no conflicts; leave --resolve or --style out.")
        squash = style is StyleChoice.SQUASH
        stage_in_session(
            cli,
            into,
            lambda session: session.merge_branch(source, squash=squash, only=wanted),
            source,
            agent=agent,
            message=message,
        )
        return
    from memotree.client import MergeStyle  # noqa: PLC0415 - gRPC is loaded when the call is made

    recorded = None if wanted and style is StyleChoice.COMMIT else MergeStyle[style.name]
    made = cli.workspace.merge(source, into, style=recorded, message=message, author=author_of(agent), only=wanted)
    cli.output.show(made, lambda: None)
    if made.already_merged:
        cli.output.done(f"{made.branch} has all of {source} already; nothing was written.")
    else:
        changed = counted(made.change_count, "entry", "entries")
        cli.output.done(f"{source} is merged into {made.branch}, now at {short(made.commit_id)}; {changed} changed.")


def _show_preview(cli: CliContext, source: str, into: str, only: "ChangeSelection | None") -> None:
    found = cli.workspace.preview_merge(source, into, only=only)

    def look() -> RenderableType:
        if found.already_merged:
            return Text("The branch has all of it already.", "dim")
        parts: list[RenderableType] = [display.entries(found.changes)] if found.changes else []
        parts += [conflict_table(found.conflicts, OF_MERGE)] if found.conflicts else []
        changed = counted(len(found.changes), "entry", "entries")
        return Group(*parts, Text(f"{changed} would change; {counted(len(found.conflicts), 'conflict')}.", "dim"))

    cli.output.show(found, look)


@command("tag create", WORKSPACE)
def create_tag(
    cli: CliContext,
    name: NewName,
    at: AtArgument = "",
    message: Annotated[
        str, typer.Option("--message", "-m", help="The message of the tag; its name when not given.")
    ] = "",
) -> None:
    """Create an annotated tag."""
    tag = cli.workspace.tag(name, at, message=message)
    cli.output.show(tag, lambda: None)
    cli.output.done(f"The tag {tag.name} is at {short(tag.commit_id)}.")


@command("tag list", WORKSPACE)
def list_tags(cli: CliContext) -> None:
    """List the tags."""
    found = list(cli.workspace.tags())
    cli.output.show(
        {"tags": found},
        lambda: table(
            [("Name", "bold cyan"), ("Commit", "yellow"), "Message", ("Made", "dim")],
            [(each.name, short(each.commit_id), each.message.strip(), when(each.create_time)) for each in found],
            empty="There is no tag; create one with `memotree tag create NAME`.",
        ),
    )


@command("tag delete", WORKSPACE)
def delete_tag(cli: CliContext, name: TagName, yes: YesOption = False) -> None:
    """Delete a tag; its commit stays as long as a branch, another tag or a session reaches it."""
    workspace = cli.workspace
    if not yes and any(each.name == name for each in workspace.tags()):
        confirm(cli, f"Delete the tag {name}?", yes=yes)
    workspace.delete_tag(name)
    cli.output.show({"deleted": name}, lambda: None)
    cli.output.done(f"The tag {name} is deleted.")
