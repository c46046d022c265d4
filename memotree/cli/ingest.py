"""``memotree ingest``: builds memory trees from files and folders, and updates them from new versions."""

import hashlib
import os
import posixpath
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode, FileError
from memotree.cli.options import TagsOption
from memotree.cli.output import Cell, counted, short, table
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import Archive, Job, MemoTreeClientError, Workspace

_STDIN: Final = "-"
_LONGEST_ID: Final = 200
_HASH_DIGITS: Final = 12
_LOOKED_AT: Final = 8192
"""How many bytes at the beginning of a file are checked to decide whether it is text."""

_PACKED: Final = (".docx", ".docm", ".epub", ".gz")
"""How the names of documents end that are packed, so that their first bytes do not look like text."""


class NoDocumentError(CliError):
    """There is nothing to ingest."""

    reason = "NO_DOCUMENT"


class OneDocumentError(CliError):
    """An option for one document was given with several."""

    reason = "ONE_DOCUMENT_ONLY"


@dataclass(frozen=True)
class _Found:
    """A file to ingest.

    Attributes:
        path: Its path; ``None`` is stdin.
        shown: The path to show: as it was given, or below the folder that was given.
    """

    path: Path | None
    shown: str

    @property
    def document_id(self) -> str:
        """The id of its document: the path as given, so that repeating the command updates the same tree.

        Stdin has none, so that two texts do not become versions of one document.
        """
        if self.path is None:
            return ""
        if len(self.shown) <= _LONGEST_ID:
            return self.shown
        digest = hashlib.sha256(self.shown.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]
        return f"{digest} {self.shown[-(_LONGEST_ID - _HASH_DIGITS - 1) :]}"

    def read(self) -> bytes:
        """The content of the file."""
        if self.path is None:
            return sys.stdin.buffer.read()
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise FileError(f"{self.shown} cannot be read: {error.strerror}.") from None


@dataclass(frozen=True)
class _Outcome:
    """The outcome for a file: its job, or the error."""

    path: str
    document_id: str
    job: "Job | None" = None
    error: dict[str, Any] | None = None

    @property
    def is_good(self) -> bool:
        return self.job is not None and self.job.state == "SUCCEEDED"

    @property
    def is_under_way(self) -> bool:
        """Whether its job still runs in the background."""
        return self.error is None and self.job is not None and self.job.state in {"QUEUED", "RUNNING"}

    @property
    def message(self) -> str:
        """Why it did not succeed."""
        if self.error is not None:
            return str(self.error["message"])
        return self.job.message or f"The job was {self.job.state.lower()}." if self.job is not None else ""


@dataclass(frozen=True)
class _How:
    """The options that apply to every file of one command."""

    model: str
    branch: str
    media_type: str
    chunk_size: int
    similarity: float | None
    merge_limit: int
    tags: list[str]
    message: str
    max_model_tokens: int
    background: bool


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
            help="The id of the document, for one file; when not given, its path as written, for stdin the --name.",
        ),
    ] = "",
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
        int, typer.Option("--max-model-tokens", min=0, help="The most model tokens for one file; no limit when 0.")
    ] = 0,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the jobs.")] = False,
) -> None:
    """Build memory trees from files, or update the trees of files that were ingested before.

    A document is identified by its path as written here, so repeating the command updates it. In folders, hidden files
    and files that are not text are skipped. The exit code is 1 if a file could not be ingested.
    """
    workspace = cli.workspace
    found, passed_over = _files(paths)
    if not found:
        raise NoDocumentError(
            f"There is nothing to ingest in {', '.join(paths)}. Name a file, or a folder that has some."
        )
    if len(found) > 1 and (name or document_id):
        given = "--archive" if name else "--document-id"
        raise OneDocumentError(f"{given} is for one document, but there are {len(found)}. Give it with a single file.")
    if _STDIN in paths and not (name or document_id):
        raise OneDocumentError("A document from stdin has no name. Give --archive NAME, or --document-id ID.")
    for each in passed_over:
        cli.output.note(Text(f"{each} is skipped: it is empty or not text.", "dim"))
    how = _How(
        model, branch, media_type, chunk_size, similarity, merge_limit, tags, message, max_model_tokens, background
    )
    known, total = _known(workspace, branch), len(found)
    outcomes = [
        _take(cli, workspace, each, name, document_id or each.document_id or name, known, how, f"{number}/{total} ")
        for number, each in enumerate(found, start=1)
    ]
    _tell(cli, outcomes)
    _tell_readers(cli, outcomes)
    if not all(each.is_good or each.is_under_way for each in outcomes):
        raise typer.Exit(ExitCode.FAILED)


def _known(workspace: "Workspace", branch: str) -> "dict[str, Archive]":
    """The archives of ingested documents by document id."""
    archives = workspace.at(branch).archives()
    return {each.attributes["document_id"]: each for each in archives if "document_id" in each.attributes}


def _take(
    cli: CliContext,
    workspace: "Workspace",
    found: _Found,
    name: str,
    document_id: str,
    known: "dict[str, Archive]",
    how: _How,
    count: str,
) -> _Outcome:
    """Ingests one file; a refusal is returned as an outcome, but an unreachable server raises."""
    from memotree.client import Job, MemoTreeClientError  # noqa: PLC0415 - `--help` needs no gRPC

    before = known.get(document_id)
    job: Job | None = None
    try:
        with cli.output.progress() as bar:
            for event in workspace.ingest(
                found.read(),
                # A known document keeps the present name of its archive.
                name=name or ("" if before else _name(found, document_id)),
                model_id=how.model,
                document_id=document_id,
                branch=how.branch,
                media_type=how.media_type or (before.attributes.get("media_type", "") if before else ""),
                chunk_size=how.chunk_size,
                similarity_threshold=how.similarity,
                merge_limit=how.merge_limit,
                tags=how.tags,
                message=how.message,
                max_model_tokens=how.max_model_tokens,
            ):
                if isinstance(event, Job):
                    job = event
                    if how.background:
                        break
                else:
                    bar.at(f"{count}{found.shown}: {event.step}", event.done, event.total)
    except FileError as error:
        return _Outcome(found.shown, document_id, error={"code": "CLI", "reason": error.reason, "message": str(error)})
    except MemoTreeClientError as error:
        if error.code == "UNAVAILABLE" and not error.reason:
            raise
        return _Outcome(found.shown, document_id, job, _refusal(error))
    except KeyboardInterrupt:
        if job is not None:
            cli.output.note(
                f"The job continues; `memotree jobs watch {job.id}` shows it, `memotree jobs cancel {job.id}` ends it."
            )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return _Outcome(found.shown, document_id, job)


def _refusal(error: "MemoTreeClientError") -> dict[str, Any]:
    return {"code": error.code, "reason": error.reason, "message": in_commands(error.message)}


def _name(found: _Found, document_id: str) -> str:
    """The name of a new archive: the path as written, or only the file name if the path is absolute."""
    shown = found.shown if found.path is not None else document_id
    return (posixpath.basename(shown) if shown.startswith("/") else shown)[-_LONGEST_ID:]


def _tell(cli: CliContext, outcomes: list[_Outcome]) -> None:
    good = sum(each.is_good for each in outcomes)
    cli.output.show({"files": outcomes}, lambda: _table(outcomes))
    for one in outcomes:
        made = one.job.ingestion if one.job is not None else None
        for warning in made.warnings if made is not None else ():
            cli.output.warn(f"{one.path}: {in_commands(warning)}")
        if one.is_under_way and one.job is not None:
            cli.output.done(f"The job {one.job.id} has started; `memotree jobs watch {one.job.id}` shows it.")
        elif not one.is_good:
            cli.output.error(f"{one.path}: {one.message}")
            if one.job is not None and one.job.state in {"STOPPED", "FAILED"}:
                cli.output.note(f"`memotree jobs resume {one.job.id}` resumes it.")
    if good:
        cli.output.done(f"Ingested {counted(good, 'document')} of {len(outcomes)}.")


def _tell_readers(cli: CliContext, outcomes: list[_Outcome]) -> None:
    """Prints a note if the chosen session does not see the ingested documents, since it reads its own base."""
    session = cli.choice.session
    made = (each.job.ingestion for each in outcomes if each.job is not None)
    if session and any(each is not None and each.commit_id for each in made):
        cli.output.note(
            f"Commands read in the session {session}, which does not see this yet; `memotree session rebase` updates "
            "it, `memotree session use --none` stops using it."
        )


def _table(outcomes: list[_Outcome]) -> "RenderableType":
    return table(
        [("File", "bold cyan"), "State", "New", "Kept", "Removed", "Summaries", "Commit"],
        [_row(each) for each in outcomes],
        empty="",
    )


def _row(outcome: _Outcome) -> list[Cell]:
    made = outcome.job.ingestion if outcome.job is not None else None
    if made is None or not outcome.is_good:
        how = outcome.job.state.lower() if outcome.job is not None else "refused"
        return [outcome.path, Text(how, "cyan" if outcome.is_under_way else "bold red"), "", "", "", "", ""]
    state = Text("unchanged", "dim") if not made.commit_id else Text("done", "green")
    counts = (made.created_leaves, made.kept_leaves, made.removed_leaves, made.summary_nodes)
    return [outcome.path, state, *(f"{count:,}" for count in counts), short(made.commit_id)]


def _files(paths: list[str]) -> tuple[list[_Found], list[str]]:
    """The files to ingest, each once, and the files below folders that are skipped."""
    found: dict[str, _Found] = {}
    passed_over: list[str] = []
    for given in paths:
        if given == _STDIN:
            found.setdefault(given, _Found(None, given))
            continue
        path, shown = Path(given), posixpath.normpath(Path(given).as_posix())
        if not path.exists():
            raise FileError(f"{given} does not exist; name a file or a folder.")
        if not path.is_dir():
            found.setdefault(shown, _Found(path, shown))
            continue
        for each in _below(path):
            inner = posixpath.normpath(posixpath.join(shown, each.relative_to(path).as_posix()))
            if _is_readable(each):
                found.setdefault(inner, _Found(each, inner))
            else:
                passed_over.append(inner)
    return list(found.values()), passed_over


def _below(folder: Path) -> Iterator[Path]:
    """The files below a folder, ordered by path, without hidden ones; links to folders are not followed."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here) / name for name in sorted(files) if not name.startswith("."))


def _is_readable(path: Path) -> bool:
    """Whether the beginning of a file looks like a document: not empty, and text, or of a kind that holds text."""
    if not path.is_file():
        return False
    name = path.name.lower()
    try:
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT)
    except OSError:
        return True  # reading it later reports the error
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16 has NUL bytes
    holds_text = head.startswith(b"%PDF-") or (name.endswith(_PACKED) and not name.endswith(".tar.gz"))
    return bool(head) and (wide or b"\0" not in head or holds_text)


def register(app: typer.Typer) -> None:
    """Adds the command to the command line."""
    command(app, "ingest", WORKSPACE)(ingest)
