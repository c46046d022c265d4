"""``memotree commit | log | show | diff | revisions | blame``: history, with commands as in Git."""

from itertools import islice
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.commit_message import ask_message
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import LevelChoice, LevelOption, NodeArgument, word
from memotree.cli.arguments.revision_names import ALSO, REVISION_NAME
from memotree.cli.arguments.times import SAID, said_time
from memotree.cli.context import SESSION, WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal import display
from memotree.cli.terminal.output import short, table, when

AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        help=f"A branch, tag, commit or session; the default branch. {ALSO}.",
        autocompletion=completion.revisions,
    ),
    REVISION_NAME,
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")]


class BadAuthorError(CliError):
    """The author does not have the form ``Name <address>``."""

    reason = "BAD_AUTHOR"


class NodeGivenTwiceError(CliError):
    """One command names two nodes where one can be meant."""

    reason = "NODE_GIVEN_TWICE"


def author_of(text: str) -> tuple[str, str]:
    """The name and address from ``Name <address>`` or ``Name``."""
    name, opened, rest = text.partition("<")
    if opened and not rest.rstrip().endswith(">"):
        raise BadAuthorError(f"{text!r} is not an author: write 'Name' or 'Name <address>'.")
    return name.strip(), rest.strip().rstrip(">").strip()


@command("commit", SESSION)
def commit(
    cli: CliContext,
    message: Annotated[
        str | None,
        typer.Option(
            "--message", "-m", help="The commit message; its first line is the subject. An editor when not given."
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE]...", help="Only these nodes; all when not given.", autocompletion=completion.nodes
        ),
        NODE_NAME,
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="Create an annotated tag for the commit.")] = None,
    author: Annotated[str, typer.Option(help="'Name <address>'; the session's agent when not given.")] = "",
) -> None:
    """Commit the staged changes of the session as one Git commit."""
    session = cli.session
    named = None
    if author:
        from memotree.client import Author  # noqa: PLC0415 - an invalid author is reported without loading gRPC

        named = Author(*author_of(author))
    if message is None:
        message = ask_message(session.info().branch, session.changes())
    with cli.output.waiting("Committing"):
        made = session.commit(message, tag=tag, nodes=nodes or (), author=named)
    subject = message.partition("\n")[0]
    staged = f", {made.remaining_changes} still staged" if made.remaining_changes else ""
    cli.output.show(
        made,
        lambda: Text.assemble(
            "[",
            (f"{made.branch} {short(made.commit_id)}", "yellow"),
            f"] {subject}\n {made.change_count} changed{staged}",
            f", tag {made.tag_name}" if made.tag_name else "",
        ),
    )


def _branches(cli: CliContext) -> dict[str, list[str]]:
    """The names of the branches by the commit they point to."""
    names: dict[str, list[str]] = {}
    for branch in cli.workspace.branches():
        names.setdefault(branch.commit_id, []).append(branch.name)
    return names


@command("log", WORKSPACE)
def log(
    cli: CliContext,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NODE]", help="Only commits that change this node, as --node.", autocompletion=completion.nodes
        ),
        NODE_NAME,
    ] = "",
    at: AtOption = "",
    limit: LimitOption = 50,
    node: Annotated[
        str,
        typer.Option("--node", help="Only commits that change this node.", autocompletion=completion.nodes),
        NODE_NAME,
    ] = "",
    subtree: Annotated[
        str,
        typer.Option(help="Only commits that change this node or a node below it.", autocompletion=completion.nodes),
        NODE_NAME,
    ] = "",
    author: Annotated[str, typer.Option(help="Only commits whose author's name or address contains this.")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help=f"Only commits at or after this time{SAID}")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help=f"Only commits before this time{SAID}")] = "",
    oneline: Annotated[bool, typer.Option("--oneline", help="One line for each commit.")] = False,
) -> None:
    """List commits, newest first.

    With --oneline, each is told with the number of entries that it created (+), changed (~) and deleted (-).
    """
    if name and node:
        raise NodeGivenTwiceError("The node is given twice, as an argument and with --node. Give it once.")
    commits = cli.workspace.at(at).log(
        node=node or name or None,
        subtree=subtree or None,
        author=author,
        since=said_time("--since", since),
        until=said_time("--until", until),
        page_size=min(limit + 1, 1000),
    )
    found = list(islice(commits, limit + 1))
    shown, more = found[:limit], len(found) > limit

    def look() -> RenderableType:
        branches = _branches(cli)
        one = display.commit_line if oneline else display.commit_block
        return Group(*(one(each, branches.get(each.id, ())) for each in shown))

    cli.output.show({"commits": shown, "more": more}, look)
    if more:
        cli.output.note(Text(f"There are more; --limit {limit * 2} shows them.", "dim"))


@command("show", WORKSPACE)
def show(
    cli: CliContext,
    revision: Annotated[
        str,
        typer.Argument(
            metavar="[REVISION]",
            help=f"A commit (or its first digits), tag or branch; the default branch. {ALSO}.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ] = "",
    patch: Annotated[bool, typer.Option("--patch", "-p", help="Also show each field that differs.")] = False,
) -> None:
    """Show a commit with the nodes it changed."""
    workspace = cli.workspace
    details = workspace.show(revision)
    changes = workspace.diff(new=details.commit.id).changes if patch else details.changes
    rest = details.change_count - len(changes)

    def look() -> RenderableType:
        more = Text(f"… and {rest} more" if rest > 0 else "", "dim", end="")
        head = display.commit_with_entries(details.commit, changes, _branches(cli).get(details.commit.id, ()))
        return Group(head, more)

    cli.output.show({"commit": details.commit, "changes": changes, "change_count": details.change_count}, look)


@command("diff", SESSION)
def diff(
    cli: CliContext,
    old: Annotated[
        str,
        typer.Argument(
            metavar="[OLD]",
            help=f"The older state; the base of the session, or the parent of the commit, when not given. {ALSO}.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ] = "",
    new: Annotated[
        str,
        typer.Argument(
            metavar="[NEW]",
            help="The newer state; the chosen session, else the default branch, when not given.",
            autocompletion=completion.revisions,
        ),
        REVISION_NAME,
    ] = "",
    node: Annotated[
        str, typer.Option("--node", help="Only this node.", autocompletion=completion.nodes), NODE_NAME
    ] = "",
    subtree: Annotated[
        str,
        typer.Option(
            "--subtree", help="Only this node or archive, and what is below it.", autocompletion=completion.nodes
        ),
        NODE_NAME,
    ] = "",
    stat: Annotated[bool, typer.Option("--stat", help="Show only which nodes differ.")] = False,
    words: Annotated[
        bool, typer.Option("--words", help="Compare texts by words: [-removed-] and {+added+}, as git does.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Show every field: also positions among siblings, what MemoTree records itself, and missing ends of "
            "last lines.",
        ),
    ] = False,
) -> None:
    """Show what differs between two states, per node and field; without arguments, the session's staged changes."""
    found = cli.workspace.diff(
        old,
        new or cli.choice.session,
        node=node or None,
        subtree=subtree or None,
        include_fields=not stat,
        by_words=words,
    )
    cli.output.show(
        found,
        lambda: (
            Group(display.entries(found.changes, exact=full), Text(found.summary, "dim"))
            if found.changes
            else Text("No difference.", "dim")
        ),
    )


@command("blame", WORKSPACE)
def blame(
    cli: CliContext,
    node: NodeArgument,
    at: AtOption = "",
    sentences: Annotated[bool, typer.Option("--sentences", help="Show each sentence of prose on its own.")] = False,
) -> None:
    """Show which commit and agent wrote each line of a node's content, through merges too."""
    found = cli.workspace.at(at).blame(node, by_sentences=sentences)
    cli.output.show(
        {"lines": found},
        lambda: table(
            [("Commit", "yellow"), "Agent", ("When", "dim"), "Sentence" if sentences else "Line"],
            [(short(line.commit.id), line.agent, when(line.commit.commit_time), line.text) for line in found],
            empty="The node has no content.",
        ),
    )


@command("revisions", WORKSPACE)
def revisions(
    cli: CliContext,
    node: NodeArgument,
    at: AtOption = "",
    level: LevelOption = LevelChoice.TITLE,
    limit: LimitOption = 50,
) -> None:
    """List the versions of one node, newest first."""
    found = list(islice(cli.workspace.at(at).revisions(node, level=word(level)), limit))
    cli.output.show(
        {"revisions": found},
        lambda: table(
            [("Commit", "yellow"), "", "Title", "Author", ("When", "dim"), "Subject"],
            [
                (
                    short(each.commit.id),
                    display.change_kind(each.kind),
                    each.node.title if each.node else "",
                    each.commit.author.name,
                    when(each.commit.commit_time),
                    each.commit.subject,
                )
                for each in found
            ],
            empty="No commit has this node yet.",
        ),
    )
