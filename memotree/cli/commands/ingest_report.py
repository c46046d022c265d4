"""The report of ``memotree ingest``: a table of the files, what failed, and what was left out and why."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from rich.text import Text

from memotree.cli.commands.gone_documents import tell_gone
from memotree.cli.context import CliContext
from memotree.cli.terminal.output import Cell, counted, short, table
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from memotree.client import IngestedFile, Job
    from memotree.client.document_files import FoundFiles, LeftOut

_MOST_ROWS: Final = 30
"""With more files the table has only those that were not ingested; ``--json`` has all."""
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Ingested:
    """The outcome for a file: its job, or the error."""

    path: str
    document_id: str
    job: "Job | None" = None
    error: dict[str, Any] | None = None
    is_committed: bool = False

    @classmethod
    def of(cls, file: "IngestedFile") -> Self:
        """Reads what became of a file."""
        refused = file.reason and (file.job is None or file.job.state == "SUCCEEDED")
        code = "CLI" if file.job is None else ""
        error = {"code": code, "reason": file.reason, "message": in_commands(file.message)} if refused else None
        return cls(file.path, file.document_id, file.job, error, file.is_committed)

    @property
    def is_good(self) -> bool:
        """Whether it is committed, or had not changed."""
        return self.is_committed

    @property
    def is_under_way(self) -> bool:
        """Whether its job still runs in the background."""
        return self.error is None and self.job is not None and self.job.state in {"QUEUED", "RUNNING"}

    @property
    def is_changed(self) -> bool:
        """Whether it is in a commit of this ingestion."""
        made = self.job.ingestion if self.job is not None else None
        return self.is_good and (made is None or bool(made.commit_id))

    @property
    def message(self) -> str:
        """Why it did not succeed."""
        if self.error is not None:
            return str(self.error["message"])
        return self.job.message or f"The job was {self.job.state.lower()}." if self.job is not None else ""


def report(
    cli: CliContext, files: "FoundFiles", outcomes: "Sequence[Ingested]", *, not_sent: int, gone: list[str]
) -> None:
    """Prints what became of the files.

    Args:
        cli: The command.
        files: The files that were found.
        outcomes: What became of them.
        not_sent: How many have no outcome, since the ingestion ended before.
        gone: The archives of documents whose files are gone.
    """
    document = {"files": outcomes, "left_out": files.left_out, "not_sent": not_sent, "gone": gone}
    cli.output.show(document, lambda: _table(outcomes))
    _tell_left_out(cli, files.left_out)
    _tell_jobs(cli, outcomes)
    for one in outcomes:
        made = one.job.ingestion if one.job is not None else None
        for warning in made.warnings if made is not None else ():
            cli.output.warn(f"{one.path}: {in_commands(warning)}")
        if one.error is not None:
            cli.output.error(f"{one.path}: {one.message}")
    if not_sent:
        cli.output.note(f"{counted(not_sent, 'document')} not sent. The same command goes on where this one stopped.")
    _tell_sum(cli, outcomes, len(files.files), is_whole=not not_sent)
    tell_gone(cli, gone)
    _tell_readers(cli, outcomes)


def _tell_left_out(cli: CliContext, left_out: "Sequence[LeftOut]") -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        by_reason[each.why].append(each.path)
    for why, paths in by_reason.items():
        more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
        cli.output.note(Text(f"Left out, {why}: {', '.join(paths[:_MOST_NAMED])}{more}", "dim"))


def _tell_jobs(cli: CliContext, outcomes: "Sequence[Ingested]") -> None:
    """Says once for each job that runs or did not succeed what can be done with it."""
    jobs = {one.job.id: one.job for one in outcomes if one.job is not None}
    for job in jobs.values():
        if not job.over:
            cli.output.done(f"The job {job.id} has started; `memotree jobs watch {job.id}` shows it.")
        elif job.state != "SUCCEEDED":
            why = in_commands(job.message) or f"The job was {job.state.lower()}."
            paths = [one.path for one in outcomes if one.job is not None and one.job.id == job.id and not one.is_good]
            told = paths[0] if len(paths) == 1 else counted(len(paths), "document")
            cli.output.error(f"{told}: {why}")
            cli.output.note(f"`memotree jobs resume {job.id}` resumes it.")


def _tell_sum(cli: CliContext, outcomes: "Sequence[Ingested]", total: int, *, is_whole: bool) -> None:
    good = sum(one.is_good for one in outcomes)
    if not good:
        return
    changed = [one for one in outcomes if one.is_changed]
    same = f", {good - len(changed):,} unchanged" if len(outcomes) > _MOST_ROWS and good > len(changed) else ""
    commits = {one.job.ingestion.commit_id for one in changed if one.job is not None and one.job.ingestion is not None}
    told = f" in {counted(len(commits), 'commit')}" if len(outcomes) > _MOST_ROWS and commits else ""
    failed = sum(not one.is_good and not one.is_under_way for one in outcomes)
    summed = f"Ingested {counted(good, 'document')} of {total:,}{told}{same}"
    if failed or not is_whole:
        cli.output.note(f"{summed}; {failed:,} failed." if failed else f"{summed}.")
    else:
        cli.output.done(f"{summed}.")


def _tell_readers(cli: CliContext, outcomes: "Sequence[Ingested]") -> None:
    """Prints a note if the chosen session does not see the ingested documents, since it reads its own base."""
    session = cli.choice.session
    if session and any(one.is_changed for one in outcomes):
        cli.output.note(
            f"Commands read in the session {session}, which does not see this yet; `memotree session rebase` updates "
            "it, `memotree session use --none` stops using it."
        )


def _table(outcomes: "Sequence[Ingested]") -> "RenderableType | None":
    shown = outcomes if len(outcomes) <= _MOST_ROWS else [one for one in outcomes if not one.is_good]
    if not shown:
        return None
    return table(
        [("File", "bold cyan"), "State", "New", "Kept", "Removed", "Summaries", "Commit"],
        [_row(one) for one in shown],
        empty="",
    )


def _row(outcome: Ingested) -> list[Cell]:
    if not outcome.is_good:
        how = outcome.job.state.lower() if outcome.job is not None and outcome.error is None else "refused"
        return [outcome.path, Text(how, "cyan" if outcome.is_under_way else "bold red"), "", "", "", "", ""]
    made = outcome.job.ingestion if outcome.job is not None else None
    state = Text("done", "green") if outcome.is_changed else Text("unchanged", "dim")
    if made is None:
        return [outcome.path, state, "", "", "", "", ""]
    counts = (made.created_leaves, made.kept_leaves, made.removed_leaves, made.summary_nodes)
    return [outcome.path, state, *(f"{count:,}" for count in counts), short(made.commit_id)]
