"""``memotree erase`` and ``memotree erasure``: take a secret out of the whole history, and what stays of that."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.commands.conflicts import WhoOption
from memotree.cli.commands.jobs import follow, show_end
from memotree.cli.commands.workspaces import NotConfirmedError
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.terminal.output import ID, counted, facts, table, when

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import Erasure, ErasurePreview


def _looked_at(preview: "ErasurePreview") -> "RenderableType":
    return facts(
        [
            ("commits", f"{preview.commits:,} get another id, {preview.messages:,} another message"),
            ("branches, tags", f"{preview.branches:,}, {preview.tags:,} move"),
            ("nodes", f"{preview.nodes:,} in {counted(preview.versions, 'version')}"),
            ("other files", f"{preview.files:,}" if preview.files else ""),
            ("signatures", f"{preview.signatures:,} go" if preview.signatures else ""),
            ("sessions", f"{preview.sessions:,}, with {counted(preview.staged_changes, 'staged change')}"),
            ("results, jobs", f"{preview.requests:,}, {preview.jobs:,} go"),
            ("unfinished jobs", ", ".join(preview.unfinished_job_ids)),
            ("files that go", "\n".join(preview.discarded_files)),
        ]
    )


@command("erase", WORKSPACE)
def erase(
    cli: CliContext,
    node: Annotated[str, typer.Option("--node", help="The whole id of a node; it stays in the tree, empty.")] = "",
    field: Annotated[
        list[str] | None, typer.Option("--field", help="Only this field of the node; may be given several times.")
    ] = None,
    archive: Annotated[str, typer.Option("--archive", help="The whole id of an archive, with all its nodes.")] = "",
    text: Annotated[str, typer.Option("--text", help="A text, wherever it stands; `-` reads it from stdin.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept, so leave the text out.")] = "",
    phrase: Annotated[str, typer.Option("--phrase", help="The phrase of the preview, to be asked nothing.")] = "",
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would go.")] = False,
    agent: WhoOption = "",
) -> None:
    """Erase a node, an archive or a text from the whole history, for good; shows what goes and asks for a phrase."""
    wanted = sys.stdin.read().rstrip("\n") if text == "-" else text
    fields = field or []
    if not phrase:
        found = cli.workspace.preview_erasure(node=node, fields=fields, archive=archive, text=wanted)
        if preview or cli.as_json:
            cli.output.show(found, lambda: _looked_at(found))
            cli.output.note(f"The phrase that confirms this: {found.phrase}")
            return
        cli.output.show(found, lambda: _looked_at(found))
        if text == "-" or not sys.stdin.isatty():
            raise NotConfirmedError(f"Nothing was changed. To erase this, add --phrase '{found.phrase}'.")
        phrase = typer.prompt(
            f"This cannot be undone. To erase it, type: {found.phrase}\n", prompt_suffix="> ", err=True
        )
        if phrase != found.phrase:
            raise NotConfirmedError("That is another phrase. Nothing was changed.")
    why = reason or (typer.prompt("Why", err=True) if sys.stdin.isatty() else "")
    job = cli.workspace.erase(phrase, why, node=node, fields=fields, archive=archive, text=wanted, by=agent)
    show_end(cli, follow(cli, job.id))


@command("erasure list", WORKSPACE)
def listed(cli: CliContext) -> None:
    """List what stays of erasures, newest first."""
    found = list(cli.workspace.erasures())
    cli.output.show(
        {"erasures": found},
        lambda: table(
            [("Erasure", ID), "Kind", "By", ("When", "dim"), "Why"],
            [(each.id, each.kind, each.by, when(each.erase_time), each.reason) for each in found],
            empty="Nothing was erased.",
        ),
    )


@command("erasure show", WORKSPACE)
def show(cli: CliContext, erasure: Annotated[str, typer.Argument(metavar="ERASURE", help="Its id.")]) -> None:
    """Show what stays of one erasure."""
    found = cli.workspace.erasure(erasure)
    cli.output.show(found, lambda: _stub(found))


def _stub(found: "Erasure") -> "RenderableType":
    return facts(
        [
            ("erasure", found.id),
            ("kind", found.kind),
            ("by", found.by),
            ("when", when(found.erase_time)),
            ("why", found.reason),
            ("nodes", ", ".join(found.node_ids)),
            ("fields", ", ".join(found.fields)),
            ("commits", f"{found.commits:,} have another id"),
            ("files", f"{found.files:,} changed or went"),
            ("tags", f"{found.tags:,}" if found.tags else ""),
            ("signatures", f"{found.signatures:,} went" if found.signatures else ""),
            ("salt", found.salt),
            ("sha256", found.sha256),
        ]
    )
