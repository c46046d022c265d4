"""``memotree jobs``: long work on the server, which continues in the background."""

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.context import SERVER, WORKSPACE, CliContext, command
from memotree.cli.errors import ExitCode
from memotree.cli.terminal.output import ID, counted, facts, table, when
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memotree.client import Ingestion, Job
    from memotree.client.enums import JobStateName


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of the job, or its first characters (4+).", autocompletion=completion.jobs),
]

_STYLES: Final = {
    "QUEUED": "dim",
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "bold red",
    "STOPPED": "yellow",
    "CANCELLED": "dim",
}


def _state(job: "Job") -> Text:
    return Text(job.state.lower(), _STYLES[job.state])


def _progress(job: "Job") -> str:
    """The progress of a job; empty for one that succeeded, whose last step may not have been counted."""
    if job.progress is None or job.state == "SUCCEEDED":
        return ""
    done, total = job.progress.done, job.progress.total
    if total:
        return f"{job.progress.step} {done:,}/{total:,}"
    return f"{job.progress.step} {done:,}" if done else job.progress.step


def _result(job: "Job") -> list[tuple[str, str]]:
    """The result of a job, as names and values."""
    made, renewed = job.ingestion, job.renewal
    if len(job.documents) == 1:
        made = job.documents[0].ingestion
    if made is not None:
        return _ingested(made)
    if job.documents:
        return _ingested_batch(job)
    if renewed is not None:
        return [
            ("commit", renewed.commit_id or "none: no summary was stale"),
            ("renewed", f"{renewed.renewed:,}"),
            ("pending summaries", f"{renewed.pending:,}" if renewed.pending else ""),
        ]
    return []


def _ingested(made: "Ingestion") -> list[tuple[str, str]]:
    return [
        ("archive", made.archive_id),
        ("document", made.document_id),
        ("commit", made.commit_id or "none: the document had not changed"),
        ("leaves", f"{made.created_leaves:,} new, {made.kept_leaves:,} kept, {made.removed_leaves:,} removed"),
        ("summary nodes", f"{made.summary_nodes:,}"),
        ("roots", f"{made.roots:,}"),
        ("pending summaries", f"{made.pending_summaries:,}" if made.pending_summaries else ""),
        ("warnings", "\n".join(made.warnings)),
    ]


def _ingested_batch(job: "Job") -> list[tuple[str, str]]:
    """The sums of a batch, and why documents failed."""
    made = [each.ingestion for each in job.documents if each.ingestion is not None]
    commits = dict.fromkeys(each.commit_id for each in made if each.commit_id)
    changed = sum(bool(each.commit_id) for each in made)
    failed = [each for each in job.documents if each.ingestion is None]
    leaves = [sum(getattr(each, f"{how}_leaves") for each in made) for how in ("created", "kept", "removed")]
    return [
        ("documents", f"{changed:,} ingested, {len(made) - changed:,} unchanged, {len(failed):,} failed"),
        ("commit", "\n".join(commits) or "none: no document had changed"),
        ("leaves", "{:,} new, {:,} kept, {:,} removed".format(*leaves)),
        ("failed", "\n".join(f"{each.name or each.document_id}: {in_commands(each.message)}" for each in failed)),
        ("warnings", "\n".join(warning for each in made for warning in each.warnings)),
    ]


def look(job: "Job") -> "RenderableType":
    """A job with its result, formatted for a person."""
    head = facts(
        [
            ("job", Text(job.id, ID)),
            ("kind", job.kind),
            ("subject", job.subject),
            ("state", _state(job)),
            ("progress", _progress(job)),
            ("reason", job.reason),
            ("", job.message),
            ("started", f"{job.attempts} times" if job.attempts > 1 else ""),
            ("created", when(job.create_time)),
            ("changed", when(job.update_time)),
            *_result(job),
        ]
    )
    if not job.usage:
        return head
    usage = table(
        ["Model", "For", "Calls", "Tokens read", "Tokens written", "From the cache"],
        [
            (
                each.model,
                each.kind,
                f"{each.calls:,}",
                f"{each.prompt_tokens:,}",
                f"{each.completion_tokens:,}",
                f"{each.cached:,}",
            )
            for each in job.usage
        ],
        empty="",
    )
    return Group(head, usage)


def follow(cli: CliContext, job: str) -> "Job":
    """Watches a job with a progress bar until it has ended, and returns it.

    Ctrl-C stops watching; the job continues.
    """
    seen: Job | None = None
    try:
        with cli.output.progress() as bar:
            for each in cli.client.watch_job(job):
                seen = each
                if each.progress is not None:
                    bar.at(each.progress.step, each.progress.done, each.progress.total)
                else:
                    bar.at("waiting", 0, 0)
    except KeyboardInterrupt:
        named = seen.id if seen else job
        cli.output.note(
            f"The job continues; `memotree jobs watch {named}` shows it, `memotree jobs cancel {named}` ends it."
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return seen if seen is not None and seen.over else cli.client.job(job)


def show_end(cli: CliContext, job: "Job") -> None:
    """Prints a job that has ended; the exit code is 1 unless it succeeded with all of its documents."""
    cli.output.show(job, lambda: look(job))
    failed = sum(each.ingestion is None for each in job.documents)
    if failed:
        cli.output.error(f"{counted(failed, 'document')} could not be ingested; the others are.")
        raise typer.Exit(ExitCode.FAILED)
    if job.state == "SUCCEEDED":
        return
    if job.over:
        cli.output.error(job.message or f"The job was {job.state.lower()}.")
        cli.output.note(f"`memotree jobs resume {job.id}` resumes it.")
    raise typer.Exit(ExitCode.FAILED)


@command("jobs list", WORKSPACE)
def list_(
    cli: CliContext,
    everywhere: Annotated[bool, typer.Option("--all", help="The jobs of all workspaces.")] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only jobs that are queued or running, or that stopped or failed.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option("--kind", help="Only this kind, such as ingest, rebuild, reindex, erase or change_embedding."),
    ] = "",
) -> None:
    """List the jobs of the workspace, newest first."""
    states: Iterable[JobStateName] = ("QUEUED", "RUNNING", "STOPPED", "FAILED") if unfinished else ()
    owner = cli.client if everywhere else cli.workspace
    found = list(owner.jobs(states=states, kind=kind))
    cli.output.show(
        {"jobs": found},
        lambda: table(
            [("Id", ID), "Kind", ("Subject", "bold cyan"), "State", "Progress", ("Changed", "dim")],
            [
                (each.id, each.kind, each.subject, _state(each), _progress(each), when(each.update_time))
                for each in found
            ],
            empty="No jobs.",
        ),
    )


@command("jobs show", SERVER)
def show(cli: CliContext, job: JobArgument) -> None:
    """Show a job: its progress, its result, or why it stopped."""
    found = cli.client.job(job)
    cli.output.show(found, lambda: look(found))


@command("jobs watch", SERVER)
def watch(cli: CliContext, job: JobArgument) -> None:
    """Watch a job until it has ended; the exit code is 1 unless it succeeded. The job continues after Ctrl-C."""
    show_end(cli, follow(cli, job))


@command("jobs cancel", SERVER)
def cancel(cli: CliContext, job: JobArgument) -> None:
    """Cancel a job, and wait until it has ended; its commits stay."""
    ended = cli.client.cancel_job(job)
    if ended.state == "RUNNING":  # it still finishes a step that must not be interrupted
        ended = follow(cli, ended.id)
    cli.output.show(ended, lambda: None)
    if ended.state in {"SUCCEEDED", "FAILED"}:
        cli.output.note(f"The job {ended.id} had ended already: it has {ended.state.lower()}.")
    else:
        cli.output.done(f"The job {ended.id} is {ended.state.lower()}.")


@command("jobs resume", SERVER)
def resume(
    cli: CliContext,
    job: JobArgument,
    max_model_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-model-tokens", min=0, help="A new limit of model tokens, counted from the start of the job."
        ),
    ] = None,
    background: Annotated[bool, typer.Option("--background", help="Do not watch it.")] = False,
) -> None:
    """Resume a job that stopped, failed or was cancelled, and watch it."""
    resumed = cli.client.resume_job(job, max_model_tokens=max_model_tokens)
    end(cli, resumed, background=background)


def end(cli: CliContext, job: "Job", *, background: bool) -> None:
    """Watches a job that was just created or resumed, or prints how to watch it."""
    if not background:
        show_end(cli, follow(cli, job.id))
        return
    cli.output.show(job, lambda: None)
    cli.output.done(f"The job {job.id} has started; `memotree jobs watch {job.id}` shows it.")
