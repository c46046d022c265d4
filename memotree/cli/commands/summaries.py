"""``memotree summaries``: list stale summaries and renew them."""

from typing import Annotated

import typer

from memotree.cli.arguments.options import ArchiveOption
from memotree.cli.commands import jobs
from memotree.cli.context import REVISION, WORKSPACE, CliContext, command
from memotree.cli.terminal.display import summary_of
from memotree.cli.terminal.output import ID, table


@command("summaries list", REVISION)
def list_(
    cli: CliContext,
    archive: ArchiveOption = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")] = 100,
) -> None:
    """List nodes whose summaries need renewal, deepest first."""
    found = cli.here.stale_summaries(archive=archive or None, max_results=limit)
    cli.output.show(
        found,
        lambda: table(
            [("Id", ID), ("Title", "bold cyan"), "Why", "Summary"],
            [(each.node.id, each.node.title, each.reason.lower(), summary_of(each.node)) for each in found.summaries],
            empty="Every summary is up to date.",
        ),
    )
    if found.total > len(found.summaries):
        cli.output.note(f"{found.total:,} in all; --limit shows more.")


@command("summaries renew", WORKSPACE)
def renew(
    cli: CliContext,
    archive: ArchiveOption = "",
    branch: Annotated[str, typer.Option("--branch", help="The branch that gets the commit.")] = "",
    max_model_tokens: Annotated[
        int, typer.Option("--max-model-tokens", min=0, help="The most model tokens; no limit when 0.")
    ] = 0,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the job.")] = False,
) -> None:
    """Renew stale summaries, as a job with one commit at its end."""
    job = cli.workspace.renew_summaries(branch=branch, archive=archive or None, max_model_tokens=max_model_tokens)
    if background:
        cli.output.show(job, lambda: jobs.look(job))
        return
    jobs.show_end(cli, jobs.follow(cli, job.id))
