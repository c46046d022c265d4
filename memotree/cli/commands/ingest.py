"""``memotree ingest``: builds memory trees from files and folders, and updates them from new versions."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from memotree.cli.arguments.options import TagsOption
from memotree.cli.commands.commits import author_of
from memotree.cli.commands.gone_documents import gone_documents
from memotree.cli.commands.ingest_report import Ingested, report
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode, FileError
from memotree.cli.terminal.counting import counting
from memotree.cli.terminal.output import counted
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from memotree.client import Author, IngestionProgress, MemoTreeClientError
    from memotree.client.document_files import FoundFiles

_STDIN: Final = "-"


class NoDocumentError(CliError):
    """There is nothing to ingest."""

    reason = "NO_DOCUMENT"


class OneDocumentError(CliError):
    """An option for one document was given with several."""

    reason = "ONE_DOCUMENT_ONLY"


@dataclass(slots=True)
class _Run:
    """What the command knows while it waits: the outcomes so far, and the batch that is being ingested."""

    files: "FoundFiles"
    gone: list[str]
    outcomes: list[Ingested] = field(default_factory=list)
    now: "IngestionProgress | None" = None

    @property
    def sent(self) -> int:
        """How many files are in a batch that has no outcome yet."""
        return self.now.sent if self.now is not None else 0

    @property
    def left(self) -> int:
        """How many files have neither an outcome nor a job that goes on."""
        job = self.now.job if self.now is not None else None
        return len(self.files.files) - len(self.outcomes) - (self.sent if job is not None else 0)


@command("ingest", WORKSPACE)
def ingest(
    cli: CliContext,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, and folders with all files below them; `-` is stdin.")
    ],
    name: Annotated[
        str,
        typer.Option(
            "--archive", "--name", "-a", help="The name of the archive, for one file; its path when not given."
        ),
    ] = "",
    document_id: Annotated[
        str,
        typer.Option(
            "--document-id",
            help="The id of the document, for one file; when not given, its path, for stdin the --name.",
        ),
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", help="Put this before the names, such as 'handbook/', to tell two folders apart.")
    ] = "",
    hidden: Annotated[bool, typer.Option("--hidden", help="Hidden files and folders, too.")] = False,
    no_ignore: Annotated[bool, typer.Option("--no-ignore", help="What .gitignore files exclude, too.")] = False,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            envvar="MEMOTREE_AGENT",
            help="Who ingests, the author of the commits; the agent of the chosen session, else your login name.",
        ),
    ] = "",
    author: Annotated[str, typer.Option("--author", help="'Name <address>'; the agent when not given.")] = "",
    model: Annotated[str, typer.Option("--model", help="The agent or model that the archive belongs to.")] = "",
    branch: Annotated[str, typer.Option("--branch", help="The branch that gets the commits.")] = "",
    media_type: Annotated[
        str, typer.Option("--media-type", help="The type of the files, such as text/markdown; detected when not given.")
    ] = "",
    chunk_size: Annotated[
        int,
        typer.Option(
            "--chunk-size",
            min=0,
            help="The largest leaf, in characters; when 0, 400 for a text, 1000 for turns and code.",
        ),
    ] = 0,
    similarity: Annotated[
        float | None,
        typer.Option(
            "--similarity", min=-1.0, max=1.0, help="Neighbours merge above this similarity; 0.5 when not given."
        ),
    ] = None,
    merge_limit: Annotated[
        int, typer.Option("--merge-limit", min=0, help="The most characters of merged leaves; 8 chunks when 0.")
    ] = 0,
    tags: TagsOption = [],  # noqa: B006 - typer only reads it
    message: Annotated[str, typer.Option("--message", "-m", help="The message of the commits.")] = "",
    max_model_tokens: Annotated[
        int,
        typer.Option(
            "--max-model-tokens", min=0, help="The most model tokens for one job, of up to 100 files; no limit when 0."
        ),
    ] = 0,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the jobs.")] = False,
) -> None:
    """Build memory trees from files, or update the trees of files that were ingested before.

    A document is named by its path: a folder's own name and the path below it, wherever the folder is named from. So
    the same command again updates the same documents; up to 100 make one commit, and unchanged ones make none. In
    folders, what is hidden, excluded by .gitignore, empty or not text is left out, and counted. A file that cannot be
    ingested is listed at the end, and the exit code is 1. After Ctrl-C the same command goes on.
    """
    named = _author(author)
    workspace = cli.workspace_or_first()
    run = _Run(*_found(cli, paths, _Choice(name, document_id, prefix, hidden, no_ignore), branch))
    events = workspace.ingest_files(
        run.files,
        agent=agent or _agent(cli),
        author=named,
        model_id=model,
        branch=branch,
        media_type=media_type,
        chunk_size=chunk_size,
        similarity_threshold=similarity,
        merge_limit=merge_limit,
        tags=tags,
        message=message,
        max_model_tokens=max_model_tokens,
        wait=not background,
    )
    failure: MemoTreeClientError | None = None
    try:
        failure = _follow(cli, run, events)
    except KeyboardInterrupt:
        _tell_interrupted(cli, run)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if failure is not None and not run.outcomes and run.left == len(run.files.files):
        raise failure
    report(cli, run.files, run.outcomes, not_sent=run.left, gone=run.gone)
    if failure is not None:
        _tell_going_on(cli, run)
        cli.output.error(in_commands(failure.message))
    unreachable = failure is not None and failure.code == "UNAVAILABLE" and not failure.reason
    if failure is not None or run.left or not all(each.is_good or each.is_under_way for each in run.outcomes):
        raise typer.Exit(ExitCode.UNREACHABLE if unreachable else ExitCode.FAILED)


def _follow(cli: CliContext, run: _Run, events: Any) -> "MemoTreeClientError | None":
    """Takes the events until the end, and returns the error that ended them, if one did."""
    from memotree.client import IngestedFile, IngestionProgress, MemoTreeClientError  # noqa: PLC0415 - see `_found`

    try:
        with counting(cli.output, "documents") as bar:
            for event in events:
                if isinstance(event, IngestedFile):
                    run.outcomes.append(Ingested.of(event))
                    run.now = None
                elif isinstance(event, IngestionProgress):
                    run.now = event if event.sent else None
                    bar.at(event.done, event.total, event.step)
    except MemoTreeClientError as error:
        return error
    return None


@dataclass(frozen=True)
class _Choice:
    """The options that say which files are ingested, and under which names."""

    name: str
    document_id: str
    prefix: str
    hidden: bool
    no_ignore: bool


def _found(cli: CliContext, paths: list[str], choice: _Choice, branch: str) -> "tuple[FoundFiles, list[str]]":
    """The files to ingest, under the names that they have already if they were ingested before, and what is gone."""
    from memotree.client.document_files import (  # noqa: PLC0415 - `--help` needs neither gRPC nor pathspec
        DocumentFile,
        FoundFiles,
        find_files,
    )

    if _STDIN in paths and not (choice.name or choice.document_id):
        raise OneDocumentError("A document from stdin has no name. Give --archive NAME, or --document-id ID.")
    try:
        found = find_files([path for path in paths if path != _STDIN], hidden=choice.hidden, ignored=choice.no_ignore)
    except FileNotFoundError as error:
        raise FileError(str(error)) from None
    count = len(found.files) + (_STDIN in paths)
    if not count:
        count = len(found.left_out)
        left_out = f"; {count:,} left out, which --hidden or --no-ignore may take" if count else ""
        raise NoDocumentError(
            f"There is nothing to ingest in {', '.join(paths)}{left_out}. Name a file, or a folder that has some."
        )
    if count > 1 and (choice.name or choice.document_id):
        given = "--archive" if choice.name else "--document-id"
        raise OneDocumentError(f"{given} is for one document, but there are {count}. Give it with a single file.")
    if _STDIN in paths:
        read = sys.stdin.buffer.read()
        return FoundFiles(
            [DocumentFile(Path(_STDIN), _STDIN, choice.document_id or choice.name, choice.name, read)]
        ), []
    archives = cli.workspace.at(branch).archives()
    known = {each.attributes["document_id"]: each.name for each in archives if "document_id" in each.attributes}
    found = found.named(known, choice.prefix)
    if choice.name or choice.document_id:
        (file,) = found.files
        file = replace(file, name=choice.document_id or file.name, archive_name=choice.name)
        return replace(found, files=[file]), []
    return found, gone_documents(paths, found.files, known)


def _author(text: str) -> "Author | None":
    if not text:
        return None
    named = author_of(text)
    from memotree.client import Author  # noqa: PLC0415 - an invalid author is reported without loading gRPC

    return Author(*named)


def _agent(cli: CliContext) -> str:
    """Who ingests if nobody is named: the agent of the chosen session; empty for the client's default."""
    from memotree.client import MemoTreeClientError  # noqa: PLC0415 - see `_found`

    if cli.choice.session:
        try:
            return cli.workspace.resume(cli.choice.session).info().agent
        except MemoTreeClientError:
            pass  # the session is gone; ingestion needs none
    return ""


def _tell_going_on(cli: CliContext, run: _Run) -> None:
    """Names the job that goes on without the command, if one does."""
    job = run.now.job if run.now is not None else None
    if job is not None and not job.over:
        cli.output.note(
            f"{run.sent:,} more: the job continues; `memotree jobs watch {job.id}` shows it, `memotree jobs cancel "
            f"{job.id}` ends it."
        )


def _tell_interrupted(cli: CliContext, run: _Run) -> None:
    """Says what is committed, what goes on, and what was not sent."""
    good = sum(each.is_good for each in run.outcomes)
    total = len(run.files.files)
    cli.output.note(f"Stopped waiting: {good:,} of {counted(total, 'document')} are ingested.")
    _tell_going_on(cli, run)
    if run.left:
        cli.output.note(f"{run.left:,} were not sent. The same command goes on where this one stopped.")
    for each in run.outcomes:
        if not (each.is_good or each.is_under_way):
            cli.output.error(f"{each.path}: {each.message}")
