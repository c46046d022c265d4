"""Ingests files and folders: finds the files, names their documents, and sends them in batches with one commit each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from memotree.client.errors import DeadlineExceededError, ResourceExhaustedError
from memotree.client.jobs import IngestedDocument, Job
from memotree.client.lists import several
from memotree.client.revision import AsyncRevision
from memotree.v1 import forest_service_pb2 as wire
from memotree.v1.job_service_pb2 import WatchJobRequest, WatchJobResponse

if TYPE_CHECKING:
    from memotree.client.document_files import DocumentFile, FoundFiles, LeftOut
    from memotree.client.history_values import Author
    from memotree.client.node_values import Archive
    from memotree.client.transport import Transport
    from memotree.client.workspace_values import Progress
    from memotree.v1 import maintenance_service_pb2 as wire_progress

MOST_DOCUMENTS: Final = 100
MOST_BYTES: Final = 4 << 20
"""A batch has at most this many bytes, unless a single file has more, so that the message is not too large."""

NOT_READABLE: Final = "FILE_NOT_READABLE"
NAME_GIVEN_TWICE: Final = "NAME_GIVEN_TWICE"


@dataclass(frozen=True, slots=True)
class FilesFound:
    """The files that will be ingested, and what was left out of the folders."""

    files: Sequence[DocumentFile]
    left_out: Sequence[LeftOut] = ()


@dataclass(frozen=True, slots=True)
class IngestionProgress:
    """How far the ingestion of files is.

    Attributes:
        done: How many files are done, failed ones included.
        total: How many files there are.
        sent: How many files are in the batch that is being ingested.
        step: What happens now, as text for people.
        job: The job of the batch, as soon as it has begun; from then on the batch goes on without the client.
    """

    done: int
    total: int
    sent: int = 0
    step: str = ""
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What became of a file.

    Attributes:
        path: The path as it was given, or below the folder as it was given.
        document_id: The id of its document.
        job: The job of its batch, with the ingestion of this document alone; ``None`` if it was not sent.
        is_committed: Whether its document is committed, or had not changed. A job that stopped may have committed it.
        reason: The error code, if it failed.
        message: Why it failed.
    """

    path: str
    document_id: str
    job: Job | None = None
    is_committed: bool = False
    reason: str = ""
    message: str = ""


IngestionEvent: TypeAlias = FilesFound | IngestionProgress | IngestedFile


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files to send together, and their contents."""

    files: Sequence[DocumentFile]
    contents: Sequence[bytes]

    @property
    def halves(self) -> list[_Batch]:
        middle = len(self.files) // 2
        return [
            _Batch(self.files[part], self.contents[part]) for part in (slice(0, middle), slice(middle, len(self.files)))
        ]


@dataclass(slots=True)
class _Run:
    """The state of one ingestion of files."""

    options: wire.IngestDocumentsRequest
    total: int
    known: dict[str, Archive]
    media_type: str = ""
    done: int = 0
    ended_early: bool = field(default=False)

    def progress(self, batch: _Batch, now: Progress | wire_progress.Progress, job: Job | None) -> IngestionProgress:
        """The progress of all files, from that of a batch; the server tells the steps of a single document."""
        sent = len(batch.files)
        done = min(now.done, sent) if sent > 1 else 0
        step = now.step if sent > 1 else f"{now.step} {batch.files[0].name}"
        return IngestionProgress(self.done + done, self.total, sent, step, job)

    def state(self, batch: _Batch, job: Job) -> IngestionProgress:
        """The progress of all files when the job of a batch begins, ends, or is seen again."""
        sent = len(batch.files)
        if job.over:
            return IngestionProgress(self.done + sent, self.total, sent, job.state.lower(), job)
        if job.progress is not None:
            return self.progress(batch, job.progress, job)
        return IngestionProgress(self.done, self.total, sent, "wait", job)

    def request(self, batch: _Batch) -> wire.IngestDocumentsRequest:
        """The request for a batch. A known document keeps the name of its archive, and its type."""
        request = wire.IngestDocumentsRequest()
        request.CopyFrom(self.options)
        for file, content in zip(batch.files, batch.contents, strict=True):
            before = self.known.get(file.name)
            request.documents.add(
                name=file.archive_name or ("" if before else file.name),
                document_id=file.name,
                file=content,
                media_type=self.media_type or (before.attributes.get("media_type", "") if before else ""),
            )
        return request


class AsyncFileIngestion:
    """Ingests files and folders into a workspace."""

    _transport: Transport
    _workspace: str

    async def ingest_files(
        self,
        paths: str | Path | Iterable[str | Path] | FoundFiles,
        *,
        hidden: bool = False,
        ignored: bool = False,
        prefix: str = "",
        model_id: str = "",
        branch: str = "",
        media_type: str = "",
        chunk_size: int = 0,
        similarity_threshold: float | None = None,
        merge_limit: int = 0,
        tags: Iterable[str] = (),
        message: str = "",
        agent: str = "",
        author: Author | None = None,
        max_model_tokens: int = 0,
        wait: bool = True,
    ) -> AsyncIterator[IngestionEvent]:
        """Ingests files and folders, in batches of at most 100 documents with one commit each.

        Documents are named by their paths: a folder's own name and the path below it, whether the folder is given by an
        absolute or a relative path. So the same call again updates the same documents; those that have not changed make
        no commit, and what an interrupted call did not send is sent then. A file that cannot be ingested does not stop
        the others. After a job that stopped (an outage, its limit) nothing more is sent.

        Yields the files that were found, then progress, and what became of each file when its batch has ended.

        Args:
            paths: A file, a folder, or several; or what ``find_files`` found, under the names that it has. In folders,
                what is hidden, ignored by ``.gitignore``, empty or not text is left out.
            hidden: Whether to take hidden files and folders, too.
            ignored: Whether to take what ``.gitignore`` files exclude, too.
            prefix: Put before the names, such as ``"handbook/"``.
            model_id: The agent or model that the archives belong to.
            branch: The branch that gets the commits; the default branch if empty.
            media_type: The media type of all files; detected if empty.
            chunk_size: The largest leaf, in characters, of which one of an unspaced script counts as four; if 0, 400
                for a text, 1000 for turns and code.
            similarity_threshold: Neighbours merge only if their similarity exceeds this; 0.5 if ``None``.
            merge_limit: The most characters of a merged node's leaves; eight times ``chunk_size`` if 0.
            tags: Tags for every node.
            message: The message of the commits; if empty, one that counts the documents.
            agent: The name of the agent or person who ingests; ``MEMOTREE_AGENT``, else your login name, if empty.
            author: The author of the commits; the agent if ``None``.
            max_model_tokens: The most tokens that models may read and write for one batch; no limit if 0.
            wait: Whether to wait for each batch; otherwise its job goes on in the background.

        Raises:
            FileNotFoundError: If a path does not exist.
        """
        from memotree.client.document_files import FoundFiles, find_files  # noqa: PLC0415 - other calls need no pathspec

        archives = AsyncRevision(self._transport, self._workspace, branch).archives()
        known = {each.attributes["document_id"]: each async for each in archives if "document_id" in each.attributes}
        if not isinstance(paths, FoundFiles):
            given = [paths] if isinstance(paths, (str, Path)) else paths
            paths = find_files(given, hidden=hidden, ignored=ignored).named(known, prefix)
        yield FilesFound(paths.files, paths.left_out)
        options = wire.IngestDocumentsRequest(
            workspace=self._workspace,
            branch=branch,
            model_id=model_id,
            chunk_size=chunk_size,
            similarity_threshold=similarity_threshold,
            merge_limit=merge_limit,
            tags=several("tags", tags),
            message=message,
            agent=agent,
            author=author.to_wire() if author else None,
            max_model_tokens=max_model_tokens,
        )
        run = _Run(options, len(paths.files), known, media_type)
        for batch in _batches(paths.files):
            if isinstance(batch, IngestedFile):
                run.done += 1
                yield batch
                continue
            async with aclosing(self._ingest_batch(run, batch, wait=wait)) as events:
                async for event in events:
                    yield event
            if run.ended_early:
                return

    async def _ingest_batch(self, run: _Run, batch: _Batch, *, wait: bool) -> Any:
        """Yields the progress of a batch, then what became of its files; sends it in halves if it is too large."""
        job: Job | None = None
        sent = len(batch.files)
        yield IngestionProgress(run.done, run.total, sent, "send")
        try:
            async with aclosing(self._send(run, batch, wait=wait)) as events:
                async for progress in events:
                    job = progress.job
                    yield progress
        except ResourceExhaustedError as error:
            if error.retry_after is not None:  # the server is busy; a smaller batch would not help
                raise
            if sent == 1:
                run.done += 1
                yield _failed(batch.files[0], error.reason or error.code, error.message)
                return
            for half in batch.halves:
                async with aclosing(self._ingest_batch(run, half, wait=wait)) as events:
                    async for event in events:
                        yield event
            return
        if job is None:
            return
        run.done += sent
        run.ended_early = job.state in {"STOPPED", "CANCELLED"}
        for outcome in await self._outcomes(run, batch, job):
            yield outcome
        yield IngestionProgress(run.done, run.total)

    async def _send(self, run: _Run, batch: _Batch, *, wait: bool) -> Any:
        """Yields the progress of all files, with the job of the batch as it was last seen."""
        job: Job | None = None
        stream: Any = self._transport.stream(run.request(batch), wire.IngestDocumentsResponse)
        while True:
            try:
                async with aclosing(stream) as events:
                    async for event in events:
                        if not event.HasField("job"):
                            yield run.progress(batch, event.progress, job)
                            continue
                        job = Job.from_wire(event.job)
                        yield run.state(batch, job)
                        if not wait:
                            return
            except DeadlineExceededError:  # the job goes on: with a slow model a batch may take hours
                if job is None:
                    raise
                stream = self._transport.stream(WatchJobRequest(job_id=job.id), WatchJobResponse)
            else:
                return

    async def _outcomes(self, run: _Run, batch: _Batch, job: Job) -> list[IngestedFile]:
        """What became of the files of a batch. A job that did not succeed may have committed some of them."""
        if job.documents:
            return [_outcome(file, job, document) for file, document in zip(batch.files, job.documents, strict=True)]
        committed: set[str] = set()
        if job.over and job.state != "SUCCEEDED":
            archives = AsyncRevision(self._transport, self._workspace, run.options.branch).archives()
            committed = {
                each.attributes.get("document_id", "")
                async for each in archives
                if each.attributes.get("ingestion") == job.id
            }
        return [
            IngestedFile(
                file.shown,
                file.name,
                job,
                file.name in committed,
                job.reason if job.over and file.name not in committed else "",
                job.message if job.over and file.name not in committed else "",
            )
            for file in batch.files
        ]


def _outcome(file: DocumentFile, job: Job, document: IngestedDocument) -> IngestedFile:
    usage = job.usage if len(job.documents) == 1 else ()  # that of the batch is nobody's own
    own = replace(job, documents=(), ingestion=document.ingestion, usage=usage)
    return IngestedFile(file.shown, file.name, own, not document.reason, document.reason, document.message)


def _failed(file: DocumentFile, reason: str, message: str) -> IngestedFile:
    return IngestedFile(file.shown, file.name, reason=reason, message=message)


def _batches(files: Iterable[DocumentFile]) -> Iterator[_Batch | IngestedFile]:
    """Yields the files in batches, and those that cannot be sent as failed; reads one batch ahead at most."""
    chosen: list[DocumentFile] = []
    contents: list[bytes] = []
    names: dict[str, str] = {}
    size = 0
    for file in files:
        if file.name in names:
            told = f"It would have the name {file.name}, like {names[file.name]}. Ingest it alone, with a prefix."
            yield _failed(file, NAME_GIVEN_TWICE, told)
            continue
        names[file.name] = file.shown
        try:
            content = file.read()
        except OSError as error:
            yield _failed(file, NOT_READABLE, f"It cannot be read: {error.strerror or error}.")
            continue
        if chosen and (len(chosen) == MOST_DOCUMENTS or size + len(content) > MOST_BYTES):
            yield _Batch(chosen, contents)
            chosen, contents, size = [], [], 0
        chosen.append(file)
        contents.append(content)
        size += len(content)
    if chosen:
        yield _Batch(chosen, contents)
