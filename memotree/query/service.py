"""The operations of QueryService."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.errors import FailedPreconditionError, MemoTreeError
from memotree_storage.postgres.conversations import ConversationRow
from memotree_storage.store import Store

from memotree.forest.recall.recall import NOT_SUPPORTED, NOTHING_RELEVANT
from memotree.forest.usage import usage_rows
from memotree.gateways.catalogue import Catalogue
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.query.calling import Calls
from memotree.query.conversation import Conversation, KeptConversations
from memotree.query.limits import limits_of
from memotree.query.loop import Emit, QueryLoop
from memotree.query.offered_tools import offered_tools
from memotree.query.plan import plan_question, planned
from memotree.query.prompt import first_messages, nodes_of
from memotree.request.lookup import needed
from memotree.request.questions import check_question
from memotree.v1 import forest_service_pb2 as forest
from memotree.v1 import query_service_pb2 as pb

_WITHIN: ContextVar[bool] = ContextVar("within a query", default=False)

_KEPT: Final = frozenset(
    {pb.QUERY_END_ANSWERED, pb.QUERY_END_CALL_LIMIT, pb.QUERY_END_FAULTY_CALLS, pb.QUERY_END_ANSWER_CUT}
)
"""How queries end that have an answer, which a conversation keeps."""

_NOT_KEPT: Final = (
    "The conversation does not keep this turn: while it was answered, something was erased from the workspace, or the "
    "conversation, the workspace or whoever asks was deleted."
)


class QueryWithinQueryError(FailedPreconditionError):
    """A tool that a query has called asks a query itself."""

    reason = "QUERY_WITHIN_QUERY"

    def __init__(self) -> None:
        super().__init__("A tool that a query has called cannot ask a query; let it search, or answer without.")


class RecallOperation(Protocol):
    """Finds passages; implemented by ForestService."""

    async def recall(self, request: forest.RecallRequest) -> forest.RecallResponse:
        """Finds the text in the trees that is relevant to a question."""
        ...


class QueryOperations:
    """Answers questions with tools, plans how, and has the conversations.

    Args:
        catalogue: The tools; its calls are checked as those of whoever asks.
        recalling: Finds the first passages.
        models: The chat model.
        store: Has the conversations.
    """

    def __init__(self, catalogue: Catalogue, recalling: RecallOperation, models: Models, store: Store) -> None:
        self._catalogue = catalogue
        self._recalling = recalling
        self._models = models
        self._store = store

    async def query(self, request: pb.QueryRequest) -> pb.QueryResponse:
        """Answers a question with tools."""
        return await self._answer(request, None)

    async def stream_query(self, request: pb.StreamQueryRequest) -> AsyncIterator[pb.StreamQueryResponse]:
        """Answers a question with tools, and yields each event when it happens; closing the iterator ends the work."""
        events: asyncio.Queue[pb.StreamQueryResponse | None] = asyncio.Queue()
        answering = asyncio.create_task(self._answer(request, events.put_nowait))
        answering.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield pb.StreamQueryResponse(answer=await answering)
        finally:
            if not answering.done():
                await cancel_and_wait([answering])
            elif not answering.cancelled():
                answering.exception()  # it was told already, unless nobody is left to read it

    async def plan_query(self, request: pb.PlanQueryRequest) -> pb.PlanQueryResponse:
        """Plans how a question is answered."""
        check_question("query", request.query)
        limits = limits_of(request.options)
        self._models.check_chat()
        with _one_query():
            offered = await offered_tools(
                self._catalogue, limits, needed("workspace", request.workspace), request.revision
            )
            meter = Meter(max_tokens=limits.model_tokens)
            async with asyncio.timeout(limits.seconds):
                recalled = await self._recall(request, limits.budget)
                question = plan_question(request.query, recalled, offered, limits.calls)
                answer = planned(await self._models.answer(question, meter))
        answer.usage.extend(usage_rows(meter))
        answer.warnings.extend([*_warnings(recalled, has_tools=bool(answer.steps)), *meter.warnings])
        return answer

    async def list_conversations(self, request: pb.ListConversationsRequest) -> pb.ListConversationsResponse:
        """Lists the conversations of whoever calls."""
        kept = KeptConversations(self._store, needed("workspace", request.workspace))
        return pb.ListConversationsResponse(conversations=map(_conversation, await kept.all()))

    async def get_conversation(self, request: pb.GetConversationRequest) -> pb.GetConversationResponse:
        """Reads a conversation of whoever calls."""
        kept = KeptConversations(self._store, needed("workspace", request.workspace))
        row, turns = await kept.one(needed("conversation_id", request.conversation_id))
        return pb.GetConversationResponse(
            conversation=_conversation(row), turns=[pb.QueryTurn(question=t.question, answer=t.answer) for t in turns]
        )

    async def delete_conversation(self, request: pb.DeleteConversationRequest) -> pb.DeleteConversationResponse:
        """Deletes a conversation of whoever calls."""
        kept = KeptConversations(self._store, needed("workspace", request.workspace))
        await kept.delete(needed("conversation_id", request.conversation_id))
        return pb.DeleteConversationResponse()

    async def _answer(self, request: pb.QueryRequest | pb.StreamQueryRequest, emit: Emit | None) -> pb.QueryResponse:
        begin = time.perf_counter()
        check_question("query", request.query)
        limits = limits_of(request.options)
        model = self._models.functions
        conversation = Conversation(self._store, needed("workspace", request.workspace), request.conversation_id)
        with _one_query():
            offered = await offered_tools(self._catalogue, limits, request.workspace, request.revision)
            earlier = await conversation.turns()
            meter = Meter(max_tokens=limits.model_tokens)
            calls = Calls(self._catalogue, offered, limits.calls, request.agent)
            loop = QueryLoop(model, calls, limits, meter, emit)
            recalled = forest.RecallResponse()
            try:
                async with asyncio.timeout(limits.seconds) as limit:
                    recalled = await self._recall(request, limits.budget)
                    await loop.run(first_messages(request.query, recalled, earlier))
            except TimeoutError:
                if not limit.expired():
                    raise
                loop.end_late()
            if loop.end in _KEPT:
                try:
                    if not await conversation.keep(request.query, loop.text):
                        loop.warnings.append(_NOT_KEPT)
                except MemoTreeError as error:
                    loop.warnings.append(f"The conversation does not keep this turn. {error.message}")
        answer = _response(loop, recalled)
        answer.elapsed_ms = round(1000 * (time.perf_counter() - begin), 2)
        return answer

    async def _recall(
        self, request: pb.QueryRequest | pb.StreamQueryRequest | pb.PlanQueryRequest, budget: int
    ) -> forest.RecallResponse:
        return await self._recalling.recall(
            forest.RecallRequest(
                workspace=request.workspace,
                revision=request.revision,
                query=request.query,
                token_budget=budget,
                filter=request.filter,
            )
        )


def _response(loop: QueryLoop, recalled: forest.RecallResponse) -> pb.QueryResponse:
    answer = loop.text.encode("utf-8", "replace").decode()
    return pb.QueryResponse(
        answer=answer,
        sources=[
            pb.QuerySource(citation=node.citation, score=node.score, cited=node.node.id in answer)
            for node in nodes_of(recalled)
        ],
        tool_calls=[call.to_wire() for call in loop.calls.made],
        tools_used=loop.calls.tools_used,
        end=loop.end,
        usage=usage_rows(loop.meter),
        warnings=[*_warnings(recalled, has_tools=bool(loop.calls.tools_used)), *loop.warnings, *loop.meter.warnings],
        commit_id=recalled.commit_id,
    )


def _conversation(row: ConversationRow) -> pb.QueryConversation:
    message = pb.QueryConversation(conversation_id=row.name, turns=row.turns)
    message.use_time.FromDatetime(row.used_at)
    return message


def _warnings(recalled: forest.RecallResponse, *, has_tools: bool) -> list[str]:
    """The warnings about what was recalled; what it does not support, a tool may have told."""
    return [
        warning
        for warning in recalled.warnings
        if warning != NOTHING_RELEVANT and not (has_tools and warning.startswith(NOT_SUPPORTED))
    ]


@contextmanager
def _one_query() -> Iterator[None]:
    """Context manager for the work of a query; the tools that it calls run in the same context.

    Raises:
        QueryWithinQueryError: There is one already.
    """
    if _WITHIN.get():
        raise QueryWithinQueryError
    token = _WITHIN.set(True)
    try:
        yield
    finally:
        _WITHIN.reset(token)
