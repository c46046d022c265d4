"""``memotree branch`` and ``memotree tag``: manage branches and tags."""

from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.options import YesOption
from memotree.cli.arguments.revision_names import ALSO, REVISION_NAME
from memotree.cli.commands.workspaces import confirm
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.terminal.output import counted, short, table, when

if TYPE_CHECKING:
    from memotree.client import Workspace


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
