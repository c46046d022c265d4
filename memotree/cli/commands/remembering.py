"""``memotree remember``, ``revise``, ``forget`` and ``node restore``: one command for one fact, committed at once."""

from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import (
    NODE_HELP,
    AttributesOption,
    EtagOption,
    FileOption,
    NodeArgument,
    TagsOption,
    pairs,
)
from memotree.cli.arguments.revision_names import ALSO, REVISION_NAME
from memotree.cli.arguments.text_input import read_content
from memotree.cli.arguments.times import SENT, sent_time
from memotree.cli.commands.conflicts import ResolveOption
from memotree.cli.commands.forgotten import id_alive_or_forgotten
from memotree.cli.commands.undoing import DeleteOthersOption, PreviewOption, restore_nodes
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal.display import node_line
from memotree.cli.terminal.output import short

if TYPE_CHECKING:
    from memotree.client import MemoryResult, SimilarNode

AgentOption = Annotated[
    str,
    typer.Option("--agent", envvar="MEMOTREE_AGENT", help="Who does it, the author of the commit; you when not given."),
]
BranchOption = Annotated[
    str,
    typer.Option("--branch", help="The branch; the default branch when not given.", autocompletion=completion.branches),
]
CommitMessageOption = Annotated[
    str, typer.Option("--message", "-m", help="The commit message; made from the title when not given.")
]
TextArgument = Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The text; `-` reads stdin.")]
ValidFromOption = Annotated[str | None, typer.Option("--valid-from", metavar="TIME", help=f"From when it holds{SENT}")]
ValidToOption = Annotated[
    str | None, typer.Option("--valid-to", metavar="TIME", help=f"From when it no longer holds{SENT}")
]


_TOLD_CHARS: Final = 200


class NothingGivenError(CliError):
    """No text was given."""

    reason = "NOTHING_GIVEN"


@command("remember", WORKSPACE)
def remember(
    cli: CliContext,
    text: TextArgument = None,
    file: FileOption = None,
    title: Annotated[str, typer.Option("--title", help="One line; made from the text when not given.")] = "",
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    archive: Annotated[
        str,
        typer.Option(
            "--archive",
            "-a",
            help="The archive, made if there is none of that name; notes when not given.",
            autocompletion=completion.archives,
        ),
    ] = "",
    about: Annotated[
        list[str], typer.Option("--about", metavar="NODE", help="A node that it is about."), NODE_NAME
    ] = [],  # noqa: B006 - likewise
    supersedes: Annotated[
        list[str], typer.Option("--supersedes", metavar="NODE", help="A node that it replaces."), NODE_NAME
    ] = [],  # noqa: B006 - likewise
    attributes: AttributesOption = [],  # noqa: B006 - likewise
    valid_from: ValidFromOption = None,
    valid_to: ValidToOption = None,
    branch: BranchOption = "",
    agent: AgentOption = "",
    message: CommitMessageOption = "",
) -> None:
    """Keep a text as a note, and commit it."""
    result = cli.workspace_or_first().remember(
        _given(text, file),
        title=title,
        tags=tags,
        archive=archive,
        about=about,
        supersedes=supersedes,
        attributes=pairs(attributes),
        valid_from=sent_time(valid_from or ""),
        valid_to=sent_time(valid_to or ""),
        branch=branch,
        agent=agent,
        message=message,
    )
    _show(cli, result, "Remembered")


@command("revise", WORKSPACE)
def revise(
    cli: CliContext,
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="The note: id, or words that mean it alone.", autocompletion=completion.nodes
        ),
    ],
    text: TextArgument = None,
    file: FileOption = None,
    title: Annotated[str | None, typer.Option("--title", help="The new title.")] = None,
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    attributes: AttributesOption = [],  # noqa: B006 - likewise
    valid_from: ValidFromOption = None,
    valid_to: ValidToOption = None,
    etag: EtagOption = "",
    branch: BranchOption = "",
    agent: AgentOption = "",
    message: CommitMessageOption = "",
) -> None:
    """Correct a note, and commit it; the text before stays in its history."""
    content = read_content(text, file)
    result = cli.workspace.revise(
        node if _may_be_id(node) else None,
        content,
        query="" if _may_be_id(node) else node,
        title=title,
        tags=tags,
        attributes=pairs(attributes),
        valid_from=None if valid_from is None else sent_time(valid_from),
        valid_to=None if valid_to is None else sent_time(valid_to),
        etag=etag,
        branch=branch,
        agent=agent,
        message=message,
    )
    _show(cli, result, "Revised")


@command("forget", WORKSPACE)
def forget(
    cli: CliContext,
    node: NodeArgument,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="The nodes below it, too.")] = False,
    etag: EtagOption = "",
    branch: BranchOption = "",
    agent: AgentOption = "",
    message: CommitMessageOption = "",
) -> None:
    """Forget a note, and commit that; `memotree node restore` brings it back."""
    result = cli.workspace.forget(node, recursive=recursive, etag=etag, branch=branch, agent=agent, message=message)
    _show(cli, result, "Forgot")
    cli.output.note(f"`memotree node restore {short(result.id)}` brings it back.")


@command("node restore", WORKSPACE)
def restore(
    cli: CliContext,
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help=f"{NODE_HELP} A forgotten note: its id or title.", autocompletion=completion.nodes
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="REVISION",
            help="A branch, tag or commit at which it is as wanted; a forgotten note comes back as it was last. "
            f"{ALSO}.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ] = "",
    branch: BranchOption = "",
    agent: AgentOption = "",
    message: CommitMessageOption = "",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Also what stood below it at the revision of --to.")
    ] = False,
    delete_others: DeleteOthersOption = False,
    preview: PreviewOption = False,
    resolve: ResolveOption = False,
) -> None:
    """Bring back a forgotten note, or set a note back to a revision, and commit that."""
    workspace = cli.workspace
    found = id_alive_or_forgotten(workspace, branch, node)
    if recursive or delete_others or preview or resolve:
        restore_nodes(
            cli,
            [found],
            to,
            branch,
            message,
            agent=agent,
            recursive=recursive,
            delete_others=delete_others,
            preview=preview,
            resolve=resolve,
        )
        return
    result = workspace.restore(found, revision=to, branch=branch, agent=agent, message=message)
    _show(cli, result, "Restored")


def _given(text: str | None, file: str | None) -> str:
    found = read_content(text, file)
    if found is None:
        raise NothingGivenError('Give the text: memotree remember "…", or --file PATH.')
    return found


def _may_be_id(text: str) -> bool:
    from memotree_storage.model.node import is_id_prefix  # noqa: PLC0415 - `--help` needs no store

    return is_id_prefix(text)


def _show(cli: CliContext, result: "MemoryResult", what: str) -> None:
    cli.output.show(result, lambda: node_line(result.node))
    more = f", and {len(result.node_ids) - 1} below it" if len(result.node_ids) > 1 else ""
    cli.output.done(f"{what}{more}: commit {short(result.commit_id)} on {result.branch}.")
    if result.previous is not None and (said := result.previous.summary or result.previous.brief):
        cli.output.note(Text(f"It said before: {shorten(said, _TOLD_CHARS, placeholder='…')}", "dim"))
    for each in result.similar:
        cli.output.note(_similar(each))


def _similar(found: "SimilarNode") -> Text:
    node = found.node
    text = Text.assemble("Like it: ", node.title, " ", (short(node.id), "yellow"), "  ")
    if found.similarity == "DUPLICATE":
        return text.append(f"probably says the same; `memotree forget {short(node.id)}` drops one of the two.")
    return text.append(f"is out of date? `memotree forget {short(node.id)}`, or revise it.")
