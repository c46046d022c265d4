"""One attempt at a job that ingests several documents: plans one after the other and commits them together.

The commit is made when all documents are planned. It is made earlier if the job stops (an outage of a model, its
limit), so that finished documents do not wait for those that cannot be made now; and if a document changes the same
entries as one before it, as in a joined archive. Each document is in exactly one commit: a document that an earlier
attempt committed is recognised by the id of the job, which its archive has.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from memotree_storage import faults
from memotree_storage.commit.direct_import import ImportRacedError
from memotree_storage.errors import NotFoundError
from memotree_storage.postgres.jobs import STOPPED
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.forest.documents.serialization import from_json
from memotree.forest.ingestion.known_document import DocumentIndex
from memotree.forest.ingestion.planning import DocumentPlanner, Plan, Planning
from memotree.forest.ingestion.request_parsing import read_ingester
from memotree.forest.service_commit import Change, Changeset, branch_head, commit
from memotree.forest.usage import note
from memotree.jobs import JobContext
from memotree.jobs.outcomes import outcome_of
from memotree.jobs.runner import STORE_OUTAGES
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request.limits import ServiceLimits
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2

KIND: Final = "ingest_documents"
_TOOL: Final = "IngestDocuments"
_PLANNED: Final = "planned"
_ATTEMPTS: Final = 5


def input_name(number: int) -> str:
    """The name of the job's input with a document."""
    return f"document {number}"


def refusal_name(number: int) -> str:
    """The name of the job's input that says why a document is refused; it has no other input then."""
    return f"refusal {number}"


def request_for(request: pb.IngestDocumentsRequest, number: int) -> pb.IngestDocumentRequest:
    """Returns the request that would ingest one of the documents alone."""
    found = pb.IngestDocumentRequest()
    for field, value in request.ListFields():
        if field.name not in {"documents", "request_id", "message"}:
            _copy(found, field.name, value)
    for field, value in request.documents[number].ListFields():
        _copy(found, field.name, value)
    return found


class BatchRun:
    """One attempt at the ingestion of several documents by one job.

    Args:
        store: The store.
        models: The gateway to the models.
        limits: The limits of the service.
        context: The context of the job.
        request: What the job was submitted with, without the documents' contents.
        meter: Counts the calls to models.
    """

    def __init__(
        self,
        store: Store,
        models: Models,
        limits: ServiceLimits,
        context: JobContext,
        request: pb.IngestDocumentsRequest,
        meter: Meter,
    ) -> None:
        self._store = store
        self._limits = limits
        self._context = context
        self._request = request
        self._meter = meter
        self._planning = Planning(store, models, context.job.id, meter, self._report, limits.max_depth)
        self._results = [
            job_service_pb2.IngestedDocument(name=asked.name, document_id=asked.document_id)
            for asked in request.documents
        ]
        self._ready: dict[int, Plan] = {}
        self._current = 0

    async def run(self) -> job_service_pb2.BatchIngestionResult:
        """Ingests all documents and returns what became of each.

        Raises:
            MemoTreeError: If the job cannot continue now; the documents that were ready are committed.
        """
        try:
            for number in range(len(self._results)):
                self._current = number
                await self._take(number)
        except Exception as error:
            if self._ends_job(error):
                await self._commit(self._ready)
            raise
        await self._commit(self._ready)
        return job_service_pb2.BatchIngestionResult(documents=self._results)

    # --- Planning ----------------------------------------------------------------------------------------------------

    async def _take(self, number: int) -> None:
        """Plans one document; commits those before it first if it changes what they change."""
        plan = await self._try_to_plan(number, self._ready)
        if plan is not None and any(plan.changes.keys() & other.changes.keys() for other in self._ready.values()):
            await self._commit(self._ready)
            plan = await self._try_to_plan(number, self._ready)
        if plan is not None and plan.changes:
            self._ready[number] = plan

    async def _try_to_plan(self, number: int, together: Mapping[int, Plan]) -> Plan | None:
        """Plans a document and notes its result; returns ``None`` if it fails alone.

        Args:
            number: The number of the document.
            together: The plans that it is to be committed with.
        """
        refusal = await self._context.optional_input(refusal_name(number))
        if refusal is not None:
            self._results[number].MergeFromString(refusal)
            return None
        try:
            plan = await self._plan(number, together)
        except Exception as error:
            if self._ends_job(error):
                raise
            self._fail(number, error)
            return None
        self._results[number].ingestion.CopyFrom(plan.result)
        return plan

    async def _plan(self, number: int, together: Mapping[int, Plan]) -> Plan:
        document = await asyncio.to_thread(from_json, await self._context.input(input_name(number)))
        asked = request_for(self._request, number)
        planner = DocumentPlanner(self._planning, asked, f"{self._context.job.id} {number}")
        told = len(self._meter.warnings)
        state = await self._head()
        taken = {name for other in together.values() for name in other.archive_names}
        plan = await planner.plan(document, state, DocumentIndex(self._store, state), taken)
        if plan.committed:
            plan.result.CopyFrom(await self._planned_before(number))
            plan.result.commit_id = plan.committed
        else:
            plan.result.warnings.extend([*document.warnings, *self._meter.warnings[told:]])
        return plan

    async def _planned_before(self, number: int) -> job_service_pb2.IngestionResult:
        """Returns the result that an earlier attempt noted before it committed a document."""
        noted = job_service_pb2.BatchIngestionResult.FromString(await self._context.kept(_PLANNED) or b"")
        return noted.documents[number].ingestion if noted.documents else job_service_pb2.IngestionResult()

    async def _head(self) -> State:
        """Returns the head of the branch."""
        async with self._store.database.connection() as conn:
            return await branch_head(conn, self._context.job.workspace_id, self._request.branch)

    def _ends_job(self, error: Exception) -> bool:
        """Whether an error concerns all documents: an outage, the limit of tokens, a branch that is gone."""
        if isinstance(error, (*STORE_OUTAGES, NotFoundError)):
            return True
        return outcome_of(error, self._context.job).state == STOPPED

    def _fail(self, number: int, error: Exception) -> None:
        """Notes that a document cannot be ingested, and why."""
        outcome, result = outcome_of(error, self._context.job), self._results[number]
        result.ClearField("ingestion")
        result.reason, result.message = outcome.reason, outcome.message

    # --- The commit --------------------------------------------------------------------------------------------------

    async def _commit(self, plans: dict[int, Plan]) -> None:
        """Commits plans together; one by one if that is refused, so that only the culprits fail."""
        if not plans:
            return
        self._ready = {}
        try:
            await self._commit_with_retries(plans)
        except Exception as error:
            if self._ends_job(error):
                raise
            if len(plans) == 1:
                self._fail(next(iter(plans)), error)
                return
            for number, plan in plans.items():
                await self._commit({number: plan})

    async def _commit_with_retries(self, plans: dict[int, Plan]) -> None:
        """Commits plans; if other commits changed what some of them read, these are planned again.

        Raises:
            ImportRacedError: If every attempt lost the race.
        """
        for last in (False,) * (_ATTEMPTS - 1) + (True,):
            try:
                await self._commit_once(plans)
            except ImportRacedError as error:
                if last:
                    raise
                raced = {conflict.node_id for conflict in error.conflicts}
                for number in [number for number, plan in plans.items() if not raced or plan.changes.keys() & raced]:
                    del plans[number]
                    plan = await self._try_to_plan(number, plans)
                    if plan is not None and plan.changes:
                        plans[number] = plan
            else:
                return
            if not plans:
                return

    async def _commit_once(self, plans: Mapping[int, Plan]) -> None:
        changes: dict[str, Change] = {}
        for plan in plans.values():
            changes |= plan.changes
        faults.point("ingest.planned")
        await self._context.keep(
            _PLANNED, job_service_pb2.BatchIngestionResult(documents=self._results).SerializeToString()
        )
        await self._context.progress("commit", len(self._results), len(self._results))
        ingester = read_ingester(self._request, self._limits)
        message = _message(self._request.message, plans)
        changeset = Changeset(changes, message, _TOOL, self._context.job.id, ingester.author, ingester.agent)
        commit_id = await commit(
            self._store, self._context.job.workspace_id, self._request.branch, changeset, self._limits
        )
        faults.point("ingest.committed")
        for number in plans:
            self._results[number].ingestion.commit_id = commit_id

    # --- Progress ----------------------------------------------------------------------------------------------------

    async def _report(self, step: str, done: int, total: int) -> None:
        """Reports the steps of a single document; of several, how many are done and what happens to the current one."""
        note(self._context, self._meter)
        if len(self._results) == 1:
            await self._context.progress(step, done, total)
            return
        current = self._results[self._current]
        self._context.report(f"{step} {current.name or current.document_id}", self._current, len(self._results))
        await asyncio.sleep(0)


def _message(given: str, plans: Mapping[int, Plan]) -> str:
    """Returns the message of a commit: the given one or a count, then the names of the documents."""
    new = [plan.name for plan in plans.values() if plan.is_new]
    updated = [plan.name for plan in plans.values() if not plan.is_new]
    if len(plans) == 1:
        return given or (f"Ingest {new[0]}" if new else f"Update {updated[0]}")
    counts = [f"{verb} {len(names)}" for verb, names in (("ingest", new), ("update", updated)) if names]
    subject = given or f"{' and '.join(counts).capitalize()} documents"
    lists = [
        "\n".join([f"{heading}:", *(f"- {name}" for name in sorted(names))])
        for heading, names in (("New documents", new), ("Updated documents", updated))
        if names
    ]
    return "\n\n".join([subject, *lists])


def _copy(message: pb.IngestDocumentRequest, name: str, value: object) -> None:
    """Sets a field to the value of the field with the same name in another message."""
    if isinstance(value, (str, bytes, bool, int, float)):
        setattr(message, name, value)
    elif hasattr(value, "DESCRIPTOR"):
        getattr(message, name).CopyFrom(value)
    else:
        getattr(message, name).extend(value)
