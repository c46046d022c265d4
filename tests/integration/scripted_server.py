"""A server with gRPC and HTTP over a real store, and scripted answers for the memory forest."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from integration.worlds import World
from memotree_storage.errors import FieldViolation, InvalidInputError

from memotree.canvas import NodeOperations, ViewOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.composition.tools import with_planner
from memotree.gateways.http_server import HttpServer
from memotree.gateways.tool_operations import with_tools
from memotree.history import HistoryOperations
from memotree.memory import MemoryOperations
from memotree.planner import Planner
from memotree.request.lookup import NodeNotFoundError
from memotree.request.observed_calls import CallObserver, CallObservers
from memotree.server.app import Server
from memotree.sessions import SessionOperations
from memotree.settings import Settings
from memotree.tools.builtin.services import ToolOptions
from memotree.tools.executor import Executor
from memotree.tools.policy import ToolAdmission
from memotree.v1 import forest_service_pb2 as forest
from memotree.v1 import job_service_pb2 as jobs
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import types_pb2
from memotree.workspaces import WorkspaceOperations

LEAF = types_pb2.Node(id="0123456789abcdef", type="leaf_chunk", title="Leaf", summary="Short.", content="All of it.")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MISSING = "zzzzzzzzzzzzzzzz"
INNER = types_pb2.Node(id="fedcba9876543210", type="summary_node", title="Inner", summary="About two leaves.")


class ScriptedForest:
    """Answers in the form of the contract; ``ask`` and ``recall`` wait for ``hold`` if the test sets it."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.job_state = jobs.JOB_STATE_SUCCEEDED

    async def recall(self, request: forest.RecallRequest) -> forest.RecallResponse:
        self.requests.append(request)
        await self._wait()
        return forest.RecallResponse(
            text=f"# Notes\n\nAbout {request.query}.",
            tokens_used=5,
            warnings=["It is old."],
            confidence=types_pb2.CONFIDENCE_STRONG,
            likelihood=0.97,
            commit_id=COMMIT,
        )

    async def drill_down(self, request: forest.DrillDownRequest) -> forest.DrillDownResponse:
        self.requests.append(request)
        if request.node_id == MISSING:
            raise NodeNotFoundError(request.node_id)
        if not 0 <= request.threshold <= 1:
            raise InvalidInputError("It is out of range.", [FieldViolation("threshold", "must be from 0 to 1.")])
        found = [forest.DrilledNode(node=LEAF, score=0.95), forest.DrilledNode(node=INNER, score=0.87)]
        return forest.DrillDownResponse(nodes=found, below_threshold=3)

    async def ask(self, request: forest.AskRequest) -> AsyncIterator[forest.AskResponse]:
        self.requests.append(request)
        for number, action in enumerate(("recall", "explore"), 1):
            yield forest.AskResponse(step=forest.AskStep(number=number, action=action, reasoning="It looks near."))
        await self._wait()
        source = types_pb2.Source(document_id="guide.md", start=3, end=9, page=2)
        citation = forest.Citation(node_id=LEAF.id, title="Leaf", source=source)
        answer = forest.Answer(
            text="Forty-two.", citations=[citation], confidence=types_pb2.CONFIDENCE_WEAK, commit_id=COMMIT
        )
        yield forest.AskResponse(answer=answer)

    async def ingest_document(
        self, request: forest.IngestDocumentRequest
    ) -> AsyncIterator[forest.IngestDocumentResponse]:
        self.requests.append(request)
        job = jobs.Job(id="j0b0000000000000", kind="ingest", state=jobs.JOB_STATE_RUNNING)
        yield forest.IngestDocumentResponse(job=job)
        for step in ("summaries", "vectors"):
            for done in (0, 1, 2):
                progress = maintenance.Progress(step=step, done=done, total=2)
                yield forest.IngestDocumentResponse(progress=progress)
        job.state = self.job_state
        if self.job_state == jobs.JOB_STATE_SUCCEEDED:
            job.ingestion.archive_id = "a" * 16
            job.ingestion.warnings.append("A page had no text.")
        else:
            job.reason, job.message = "BUDGET_EXHAUSTED", "The budget is spent; resume it with ResumeJob."
        yield forest.IngestDocumentResponse(job=job)

    async def suggest_archive_merges(self, _request: Any) -> Any:
        raise NotImplementedError

    async def _wait(self) -> None:
        self.begun.set()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise


def operations(world: World, scripted: ScriptedForest) -> dict[str, object]:
    """The real operations over the store of the world, and the scripted ones."""
    store, pages, limits = world.store, world.pages, world.limits
    return {
        "WorkspaceService": WorkspaceOperations(store, pages, limits),
        "SessionService": SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits)),
        "NodeService": NodeOperations(store, pages, limits),
        "ViewService": ViewOperations(store, pages),
        "HistoryService": HistoryOperations(store, pages, limits),
        "MemoryService": MemoryOperations(store, limits),
        "ForestService": scripted,
    }


@asynccontextmanager
async def served(
    world: World,
    scripted: ScriptedForest,
    folder: Path,
    observers: Sequence[CallObserver] = (),
    admission: ToolAdmission | None = None,
    **given: Any,
) -> AsyncIterator[Server]:
    """A server with gRPC and HTTP, on ports of its own."""
    settings = Settings(data_folder=folder, port=0, **given)
    executor = Executor()
    offered = with_tools(
        operations(world, scripted),
        settings.default_workspace,
        settings.max_message_bytes,
        CallObservers(observers),
        with_planner(ToolOptions((str(folder.parent),), (), ("*",)), Planner(world.store, world.limits)),
        executor,
        admission=admission,
    )
    server = Server(settings, offered, partial=True, side_server=HttpServer)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(5)
        await executor.close()
