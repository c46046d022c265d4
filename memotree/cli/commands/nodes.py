"""``memotree node``: read and change single nodes."""

from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import (
    ArchiveOption,
    AttributesOption,
    ContentOption,
    EditOption,
    EtagOption,
    FileOption,
    LevelChoice,
    LevelOption,
    MessageOption,
    ModeChoice,
    NodeArgument,
    TagsOption,
    pairs,
    word,
)
from memotree.cli.arguments.text_input import read_content
from memotree.cli.context import REVISION, SESSION, CliContext, command
from memotree.cli.terminal import display
from memotree.cli.terminal.output import counted

if TYPE_CHECKING:
    from memotree.client import Node


def staged(cli: CliContext, node: "Node", what: str) -> None:
    """Prints a node that was just changed."""
    cli.output.show(node, lambda: display.node_line(node))
    cli.output.done(f"{what}; `memotree commit -m MESSAGE` makes it permanent.")


@command("node create", SESSION)
def create(
    cli: CliContext,
    title: Annotated[str, typer.Option("--title", help="One line.")],
    content: ContentOption = None,
    file: FileOption = None,
    edit: EditOption = False,
    parent: Annotated[
        str,
        typer.Option(
            "--parent",
            "-p",
            help="The parent node; without one it becomes a root.",
            autocompletion=completion.nodes,
        ),
        NODE_NAME,
    ] = "",
    archive: ArchiveOption = "",
    node_type: Annotated[str, typer.Option("--type", help="A registered type; note when not given.")] = "",
    brief: Annotated[str | None, typer.Option(help="One line; generated from the content when not given.")] = None,
    summary: Annotated[str | None, typer.Option(help="A paragraph; generated from the content when not given.")] = None,
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    attributes: AttributesOption = [],  # noqa: B006 - likewise
    position: Annotated[int | None, typer.Option(help="Index among its siblings, from 0; last when not given.")] = None,
    node_id: Annotated[str, typer.Option("--id", help="An id of your choice.")] = "",
    view: Annotated[str | None, typer.Option(help="The view to add it to.")] = None,
    message: MessageOption = "",
) -> None:
    """Stage a new node."""
    session = cli.session
    node = session.create(
        title,
        read_content(content, file, edit=edit) or "",
        parent=parent or None,
        archive=archive or None,
        node_type=node_type,
        brief=brief,
        summary=summary,
        tags=tags,
        attributes=pairs(attributes),
        position=position,
        node_id=node_id,
        view=view,
        message=message,
    )
    staged(cli, node, "Staged")


@command("node get", REVISION)
def get(
    cli: CliContext,
    node: NodeArgument,
    level: LevelOption = LevelChoice.DETAIL,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the content, exactly as it is.")] = False,
) -> None:
    """Show a node."""
    found = cli.here.node(node, word(level))
    cli.output.show(found, lambda: found.content if raw else display.node(found))


@command("node update", SESSION)
def update(
    cli: CliContext,
    node: NodeArgument,
    title: Annotated[str | None, typer.Option("--title", help="One line.")] = None,
    content: ContentOption = None,
    file: FileOption = None,
    edit: EditOption = False,
    mode: Annotated[
        ModeChoice, typer.Option(case_sensitive=False, help="How the values are combined with the present ones.")
    ] = ModeChoice.MERGE,
    node_type: Annotated[str | None, typer.Option("--type", help="A registered type.")] = None,
    brief: Annotated[str | None, typer.Option(help="One line.")] = None,
    summary: Annotated[str | None, typer.Option(help="A paragraph.")] = None,
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    attributes: AttributesOption = [],  # noqa: B006 - likewise
    regenerate_summary: Annotated[bool, typer.Option(help="Generate brief and summary again.")] = False,
    etag: EtagOption = "",
    message: MessageOption = "",
) -> None:
    """Stage new values of a node; options that are not given leave their fields unchanged."""
    session = cli.session
    if edit and content is None and file is None:
        present = session.node(node)
        content = read_content(None, None, edit=True, present=present.content)
        etag = etag or present.etag  # replace only the version that the editor showed
    else:
        content = read_content(content, file, edit=edit)
    changed = session.update(
        node,
        title=title,
        content=content,
        brief=brief,
        summary=summary,
        tags=tags or None,
        attributes=pairs(attributes) or None,
        node_type=node_type,
        mode=word(mode),
        regenerate_summary=regenerate_summary,
        etag=etag,
        message=message,
    )
    staged(cli, changed, "Staged")


@command("node append", SESSION)
def append(
    cli: CliContext,
    node: NodeArgument,
    content: ContentOption = None,
    file: FileOption = None,
    edit: EditOption = False,
    message: MessageOption = "",
) -> None:
    """Stage text to add after the present content and a blank line; reads stdin when no option gives a text."""
    session = cli.session
    text = read_content(content, file, edit=edit)
    if text is None:
        text = read_content("-", None)
    staged(cli, session.update(node, content=text, mode=word(ModeChoice.APPEND), message=message), "Staged")


@command("node delete", SESSION)
def delete(
    cli: CliContext,
    node: NodeArgument,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also delete all nodes below it.")] = False,
    etag: EtagOption = "",
    message: MessageOption = "",
) -> None:
    """Stage the deletion of a node."""
    gone = cli.session.delete(node, recursive=recursive, etag=etag, message=message)
    cli.output.show({"deleted_ids": gone}, lambda: None)
    cli.output.done(f"Staged: {counted(len(gone), 'node')} deleted.")
