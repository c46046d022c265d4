"""``memotree node``: the tree of nodes, and the relations between them."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import (
    NODE_HELP,
    ArchiveOption,
    ContentOption,
    EditOption,
    EtagOption,
    FileOption,
    LevelChoice,
    LevelOption,
    MessageOption,
    NodeArgument,
    RelationChoice,
    word,
)
from memotree.cli.arguments.text_input import read_content
from memotree.cli.commands.nodes import staged
from memotree.cli.context import REVISION, SESSION, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal import display
from memotree.cli.terminal.output import ID, Column, counted, table

if TYPE_CHECKING:
    from memotree.client import TreeNode

_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)

OptionalNodeArgument = Annotated[
    str,
    typer.Argument(metavar="[NODE]", help=f"{NODE_HELP} The roots when not given.", autocompletion=completion.nodes),
    NODE_NAME,
]
RelationArgument = Annotated[
    RelationChoice, typer.Argument(metavar="TYPE", case_sensitive=False, help="What the relation means.")
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="The node it points to.", autocompletion=completion.nodes), NODE_NAME
]


class NoPartsError(CliError):
    """The text has too few headings to split it."""

    reason = "NO_PARTS"


@command("node children", REVISION)
def children(
    cli: CliContext,
    node: OptionalNodeArgument = "",
    archive: ArchiveOption = "",
    level: LevelOption = LevelChoice.TITLE,
) -> None:
    """List the children of a node, or the roots."""
    here = cli.here
    tops = [(node, archive)] if node or archive else [("", each.name) for each in here.archives()]
    found = [
        child for top, name in tops for child in here.children(top or None, archive=name or None, level=word(level))
    ]
    with_brief = any(each.brief for each in found)  # at level TITLE no node has one
    columns: list[Column] = [("Id", ID), "Title", "Type", "Below", ("Tags", "dim")]
    cli.output.show(
        {"nodes": found},
        lambda: table(
            [*columns, ("Brief", "dim")] if with_brief else columns,
            [
                (
                    *(each.id, each.title, each.type, str(each.child_count or ""), " ".join(each.tags)),
                    *((each.brief,) if with_brief else ()),
                )
                for each in found
            ],
            empty="There is nothing below it.",
        ),
    )


@command("node tree", REVISION)
def tree(
    cli: CliContext,
    node: OptionalNodeArgument = "",
    archive: ArchiveOption = "",
    depth: Annotated[int, typer.Option("--depth", "-d", min=0, help="Levels below the top; all when 0.")] = 0,
    max_nodes: Annotated[int, typer.Option(min=0, help="At most this many nodes of each archive; all when 0.")] = 0,
    level: LevelOption = LevelChoice.TITLE,
) -> None:
    """Show the tree below a node, of an archive, or of all archives."""
    here = cli.here
    tops = [(node, archive)] if node or archive else [("", each.name) for each in here.archives()]

    def parts() -> Iterator[tuple[str, "Iterator[TreeNode]"]]:
        for top, name in tops:
            yield name, here.walk(top or None, archive=name or None, max_depth=depth, level=word(level))

    if cli.output.as_json:
        kept, left = _cut(parts(), max_nodes)
        cli.output.document({"nodes": kept, "truncated": left})
    elif not tops:
        cli.output.show(None, lambda: Text("There is no archive yet.", "dim"))
    else:
        cli.output.stream(_shown(cli, parts(), max_nodes))


def _cut(parts: Iterator[tuple[str, "Iterator[TreeNode]"]], most: int) -> tuple["list[TreeNode]", int]:
    """The first ``most`` nodes of each part (all if 0), and how many were left out."""
    kept: list[TreeNode] = []
    left = 0
    for _, found in parts:
        kept += islice(found, most or None)
        left += sum(1 for _ in found)
    return kept, left


def _shown(cli: CliContext, parts: Iterator[tuple[str, "Iterator[TreeNode]"]], most: int) -> Iterator[str]:
    """The lines of each part, as they arrive."""
    for name, found in parts:
        if name:
            yield cli.output.styled(Text(name, "bold cyan"))
        for line in display.tree_lines(islice(found, most or None)):
            yield cli.output.styled(line)
        if most and next(found, None) is not None:
            yield cli.output.styled(Text("… and more; --max-nodes or --depth shows others", "dim"))


@command("node move", SESSION)
def move(
    cli: CliContext,
    node: NodeArgument,
    parent: Annotated[
        str,
        typer.Option(
            "--parent", "-p", help="The new parent; the present one when not given.", autocompletion=completion.nodes
        ),
        NODE_NAME,
    ] = "",
    to_root: Annotated[bool, typer.Option("--root", help="Make it a root.")] = False,
    archive: ArchiveOption = "",
    position: Annotated[int | None, typer.Option(help="Index among its siblings, from 0; last when not given.")] = None,
    etag: EtagOption = "",
    message: MessageOption = "",
) -> None:
    """Stage a new parent or position of a node."""
    moved = cli.session.move(
        node,
        parent=parent or None,
        to_root=to_root,
        archive=archive or None,
        position=position,
        etag=etag,
        message=message,
    )
    staged(cli, moved, "Moved")


def cut_at_headings(title: str, text: str) -> list[tuple[str, str]]:
    """The parts of ``text``, cut before each line ``# Title``; text before the first such line keeps ``title``."""
    pieces = _HEADING.split(text)
    parts = [(pieces[index].strip(), pieces[index + 1].strip("\n")) for index in range(1, len(pieces), 2)]
    return [(title, pieces[0].strip("\n")), *parts] if pieces[0].strip() else parts


@command("node split", SESSION)
def split(
    cli: CliContext,
    node: NodeArgument,
    content: ContentOption = None,
    file: FileOption = None,
    edit: EditOption = False,
    as_children: Annotated[bool, typer.Option(help="The other parts become children, not siblings.")] = False,
    message: MessageOption = "",
) -> None:
    """Stage the split of a node at the lines `# Title` of its content (or of the given or edited text)."""
    session = cli.session
    present = session.node(node)
    given = read_content(content, file, edit=edit, present=present.content)
    parts = cut_at_headings(present.title, present.content if given is None else given)
    if len(parts) < 2:  # noqa: PLR2004 - one part is not a split
        raise NoPartsError(
            "There is nothing to split at: put a line `# Title` before each part (--edit opens the text)."
        )
    made = session.split(node, parts, as_children=as_children, etag=present.etag, message=message)
    cli.output.show({"nodes": made}, lambda: Group(*(display.node_line(each) for each in made)))
    cli.output.done(f"Split into {len(made)} nodes.")


@command("node merge", SESSION)
def merge(
    cli: CliContext,
    nodes: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE...",
            help="Two or more nodes; the others are merged into the first.",
            autocompletion=completion.nodes,
        ),
        NODE_NAME,
    ],
    title: Annotated[str | None, typer.Option(help="The new title; that of the first when not given.")] = None,
    message: MessageOption = "",
) -> None:
    """Stage the merge of several nodes into the first."""
    merged = cli.session.merge(nodes, title=title, message=message)
    cli.output.show(merged, lambda: display.node_line(merged.node))
    cli.output.done(f"Merged {counted(len(merged.deleted_ids), 'node')} into it.")


@command("node relate", SESSION)
def relate(
    cli: CliContext,
    node: NodeArgument,
    relation: RelationArgument,
    target: TargetArgument,
    description: Annotated[str, typer.Option("--description", "-d", help="Why the nodes are related.")] = "",
    message: MessageOption = "",
) -> None:
    """Stage a relation from one node to another."""
    changed = cli.session.relate(node, word(relation), target, description=description, message=message)
    staged(cli, changed, "Related")


@command("node unrelate", SESSION)
def unrelate(
    cli: CliContext, node: NodeArgument, relation: RelationArgument, target: TargetArgument, message: MessageOption = ""
) -> None:
    """Stage the removal of a relation."""
    staged(cli, cli.session.unrelate(node, word(relation), target, message=message), "Removed")
