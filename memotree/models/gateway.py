"""The only way to a model: what the service wants of one, whichever is configured, and what stands in when it fails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

import structlog
from memotree_storage.errors import FailedPreconditionError, MemoTreeError
from memotree_storage.ports import Embedder, Vectors
from memotree_storage.postgres.database import Database

from memotree.models import extractive, relevance
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.cache import AnswerCache, key_of, one_batch
from memotree.models.chat_answers import Answer, ContextNode, Decision, Explore, Summary
from memotree.models.chat_requests import (
    ExplorePayload,
    LoopAnswer,
    Question,
    SummaryAnswer,
    leaf_question,
    loop_question,
    parent_question,
)
from memotree.models.failures import ModelRefusedError, ModelUnavailableError, RetryPolicy
from memotree.models.meter import Meter
from memotree.settings import Settings

if TYPE_CHECKING:  # the SDK takes a second to import, and most servers start without it
    from memotree.models.chat import Chat
    from memotree.models.remote import RemoteModels

__all__ = ["Answer", "ChatMissingError", "ContextNode", "Decision", "Explore", "Models", "Summary"]

_SHOWN_ID: Final = 40
_SHOWN_IDS: Final = 5
"""Ids, and characters of each, that are told of those that a model makes up: they may be any text."""

_log: Final = structlog.get_logger(__name__)


class ChatMissingError(FailedPreconditionError):
    """A call that only a chat model can answer, and none is configured."""

    reason = "CHAT_MODEL_MISSING"


class Models:
    """Summaries, decisions, vectors and rankings; one a server, for one event loop.

    Args:
        cache: What models answered before.
        remote: The models behind URLs; without them everything is built in.
    """

    def __init__(self, cache: AnswerCache, remote: "RemoteModels | None" = None) -> None:
        self._cache = cache
        self._remote = remote
        self._chat = remote.chat if remote else None
        self._ranking = remote.ranking if remote else None
        self._remote_embedder = remote.embedder if remote else None
        self._builtin = WordllamaEmbedder()
        self.embedder: Embedder = self._remote_embedder or self._builtin
        """Makes the vectors of the store."""

    @classmethod
    def from_settings(cls, settings: Settings, database: Database, retry_policy: RetryPolicy | None = None) -> Self:
        """The models that the settings name; nothing is asked before `open`."""
        cache = AnswerCache(database)
        if settings.chat_url is settings.embedding_url is settings.rerank_url is None:
            return cls(cache)
        from memotree.models.remote import connect  # noqa: PLC0415 - see above

        timeout, attempts = settings.model_timeout.total_seconds(), settings.model_attempts
        return cls(cache, connect(settings, cache, retry_policy or RetryPolicy(timeout=timeout, attempts=attempts)))

    async def open(self) -> None:
        """Learn what has to be known before the index opens: the length of the vectors. The database has to be open.

        Raises:
            ModelUnavailableError: The embedding model does not answer, and was never asked before.
            ModelRefusedError: Its endpoint refuses the call.
        """
        if self._remote_embedder is not None:
            await self._remote_embedder.learn()

    async def close(self) -> None:
        """Close the connections to every endpoint."""
        if self._remote is not None:
            await self._remote.close()

    @property
    def has_chat(self) -> bool:
        """Whether a chat model is configured."""
        return self._chat is not None

    @property
    def is_built_in(self) -> bool:
        """Whether summaries and vectors are all built in, so that those of ``…_now`` are the ones that stand."""
        return self._chat is None and self._remote_embedder is None

    @property
    def has_ranking(self) -> bool:
        """Whether a reranking model is configured."""
        return self._ranking is not None

    async def embed(self, texts: Sequence[str], meter: Meter) -> Vectors:
        """One unit row per text, in order.

        Raises:
            ModelUnavailableError: The model does not answer; what it answered before is kept.
            ModelRefusedError: The endpoint refuses the call.
            EmbeddingDimensionError: Its vectors have another length than the index.
            BudgetExhaustedError: The meter's limit is reached.
        """
        if self._remote_embedder is not None:
            return await self._remote_embedder.embed(texts, meter)
        return await self._builtin.embed(texts)

    # --- Summaries ---------------------------------------------------------------------------------------------------

    async def summarise_text(self, text: str, meter: Meter) -> Summary:
        """The summary of a text; a chat model that fails never fails the caller (`Summary.pending`).

        Raises:
            BudgetExhaustedError: The meter's limit is reached.
        """
        pending = False
        if self._chat is not None and text.strip():
            made = await self._summarise(self._chat, leaf_question(text), meter)
            if made is not None:
                return made
            pending = True
        return replace(self.summarise_text_now(text), pending=pending)

    async def summarise_children(self, summaries: Sequence[str], meter: Meter) -> Summary:
        """The summary of a node from those of its children, in order; otherwise as `summarise_text`.

        Raises:
            BudgetExhaustedError: The meter's limit is reached.
        """
        told = [summary for summary in summaries if summary.strip()]
        pending = False
        if self._chat is not None and told:
            made = await self._summarise(self._chat, parent_question(told), meter)
            if made is not None:
                return made
            pending = True
        return replace(self.summarise_children_now(told), pending=pending)

    @staticmethod
    def summarise_text_now(text: str) -> Summary:
        """The built-in summary of a text, in the calling thread; many of them belong into one beside the event loop."""
        return Summary(extractive.summary_of("", text), extractive.MADE_BY)

    @staticmethod
    def summarise_children_now(summaries: Sequence[str]) -> Summary:
        """The built-in summary from those of children; otherwise as `summarise_text_now`."""
        return Summary(extractive.digest_of([summary for summary in summaries if summary.strip()]), extractive.MADE_BY)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """The built-in vectors, in the calling thread."""
        return self._builtin.embed_now(texts)

    async def _summarise(self, chat: "Chat", question: Question[SummaryAnswer], meter: Meter) -> Summary | None:
        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            answer = await chat.ask(question, meter, spare=True)
            return {batch[0]: extractive.fitted(answer.summary).encode("utf-8", "replace")}

        label = question.prompt.label
        key = key_of(label, chat.model, question.user)
        try:
            values, found = await self._cache.answers(label, chat.model, [key], make, one_batch)
        except (ModelUnavailableError, ModelRefusedError) as error:
            _stand_in(error, meter)
            return None
        meter.cached("chat", chat.model, found)
        return Summary(values[key].decode(), f"{chat.model} {label}")

    # --- Ranking -----------------------------------------------------------------------------------------------------

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """How well each text answers a query, from 0 to 1, in order.

        When the reranking model fails, the built-in ranking answers and the meter has a warning.

        Raises:
            BudgetExhaustedError: The meter's limit is reached.
        """
        if not texts:
            return []
        if self._ranking is not None:
            try:
                return await self._ranking.scores(query, texts, meter)
            except (ModelUnavailableError, ModelRefusedError) as error:
                _stand_in(error, meter)
        return relevance.relevance(query, texts, await self._builtin.embed([query, *texts]))

    # --- The loop ----------------------------------------------------------------------------------------------------

    async def decide(
        self, query: str, nodes: Sequence[ContextNode], meter: Meter, *, must_answer: bool = False
    ) -> Decision:
        """The next step to answer a query: an answer, or the node to look into.

        Args:
            query: What the user asks.
            nodes: What is known so far.
            meter: Counts the calls.
            must_answer: Whether this is the last step, so that only an answer will do.

        Raises:
            ChatMissingError: No chat model is configured.
            ModelUnavailableError: It does not answer, or not with a decision.
            ModelRefusedError: The endpoint refuses the call.
            BudgetExhaustedError: The meter's limit is reached.
        """
        chat = self._chat
        if chat is None:
            raise ChatMissingError("No chat model is configured. Set MEMOTREE_CHAT_URL and MEMOTREE_CHAT_MODEL.")
        question = loop_question(query, nodes, must_answer=must_answer)

        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            answer = await chat.ask(question, meter)
            return {batch[0]: answer.model_dump_json().encode()}

        label = question.prompt.label
        key = key_of(label, chat.model, question.user)
        values, found = await self._cache.answers(label, chat.model, [key], make, one_batch)
        meter.cached("chat", chat.model, found)
        payload = LoopAnswer.model_validate_json(values[key]).payload
        if isinstance(payload, ExplorePayload):
            return Explore(payload.node_id_to_explore, payload.reasoning_for_exploration)
        shown = {node.node_id for node in nodes}
        named = list(dict.fromkeys(payload.cited_node_ids))
        if unknown := [node_id[:_SHOWN_ID] for node_id in named if node_id not in shown]:
            told = ", ".join(map(repr, unknown[:_SHOWN_IDS]))
            meter.warn(f"The model cited {told}, which it was not shown; that is left out.")
        return Answer(payload.final_answer, tuple(node_id for node_id in named if node_id in shown))


def _stand_in(error: MemoTreeError, meter: Meter) -> None:
    _log.warning("a model failed and a built-in one stands in", why=error.message)
    meter.warn(error.message)
