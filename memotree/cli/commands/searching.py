"""``memotree search``: find nodes."""

from typing import Annotated, Any

import typer
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.forest_options import UnderOption
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import ArchiveOption, RelationChoice, SearchChoice, TagsOption, word
from memotree.cli.context import REVISION, CliContext, command
from memotree.cli.terminal import display


@command("search", REVISION)
def search(
    cli: CliContext,
    query: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="Words or a question. Plain text; no query operators.")
    ],
    search_type: Annotated[
        SearchChoice, typer.Option("--by", "-b", case_sensitive=False, help="How to find nodes.")
    ] = SearchChoice.HYBRID,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")] = 10,
    node_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type; may be given several times.")
    ] = None,
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    archive: ArchiveOption = "",
    under: UnderOption = "",
    related_to: Annotated[
        str,
        typer.Option(help="Only nodes that relations reach from this node.", autocompletion=completion.nodes),
        NODE_NAME,
    ] = "",
    view: Annotated[str, typer.Option(help="Only nodes that this view shows.")] = "",
    relation: Annotated[
        list[RelationChoice] | None, typer.Option(case_sensitive=False, help="Which relations to follow.")
    ] = None,
    depth: Annotated[int, typer.Option(min=0, max=5, help="How many relations to follow in a row; 2 when 0.")] = 0,
    preview: Annotated[int, typer.Option(min=0, max=2000, help="Characters of a preview; 200 when 0.")] = 0,
) -> None:
    """Find nodes by words and by meaning."""
    scopes = {"SUBTREE": under, "RELATED": related_to, "CURRENT_VIEW": view, "ALL": "always"}
    scope: Any = next(name for name, wanted in scopes.items() if wanted)
    found = cli.here.search(
        " ".join(query),
        search_type=word(search_type),
        max_results=limit,
        node_types=node_type or (),
        tags=tags,
        archives=[archive] if archive else [],
        scope=scope,
        scope_node=under or related_to or None,
        view=view,
        relation_types=[word(each) for each in relation or ()],
        max_depth=depth,
        preview_length=preview,
    )
    cli.output.show(found, lambda: display.hits(found) if found else Text("Nothing was found.", "dim"))
    if found and found.confidence and not cli.output.as_json:
        cli.output.note(Text(f"confidence: {found.confidence} ({found.likelihood:.2f}).", "dim"))
