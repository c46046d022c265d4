"""The gateway to all models: calls the configured models, or built-in ones if those fail or none are configured."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeVar

import structlog
from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FailedPreconditionError, MemoTreeError
from memotree_storage.ports import Embedder, Vectors
from memotree_storage.postgres.database import Database
from pydantic import BaseModel

from memotree.extras import install, is_installed
from memotree.models import extractive, relevance
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
from memotree.models.embeddings import EmbeddingModels
from memotree.models.meter import Meter
from memotree.models.model_errors import ModelRefusedError, ModelUnavailableError, RetryPolicy
from memotree.settings import Settings

if TYPE_CHECKING:  # the SDK takes a second to import, and most servers start without it
    from memotree.models.chat import Chat
    from memotree.models.endpoint import Endpoint
    from memotree.models.function_chat import FunctionChat
    from memotree.models.remote import RemoteModels

__all__ = ["Answer", "ChatMissingError", "ContextNode", "Decision", "Explore", "Models", "Summary"]

_SHOWN_ID: Final = 40
_SHOWN_IDS: Final = 5
"""An id made up by a model may be any text; warnings quote at most this many ids and characters of each."""

_NO_CHAT: Final = "No chat model is configured. Set MEMOTREE_CHAT_URL and MEMOTREE_CHAT_MODEL."

_M = TypeVar("_M", bound=BaseModel)

_log: Final = structlog.get_logger(__name__)


class ChatMissingError(FailedPreconditionError):
    """The call needs a chat model, and none is configured."""

    reason = "CHAT_MODEL_MISSING"


class ModelLibraryMissingError(FailedPreconditionError):
    """The settings name a model behind a URL, and the library that calls it is not installed."""

    reason = "MODEL_LIBRARY_MISSING"

    def __init__(self) -> None:
        super().__init__(
            f"The settings name a model behind a URL, and the library that calls it is not installed: "
            f"{install('models')}, or remove the URL."
        )


class Models:
    """Makes summaries, decisions, vectors and rankings; one per server, for one event loop.

    Args:
        cache: The cache of answers.
        remote: The models behind URLs; without them all models are built in.
        local_embedder: The name of the local embedding model; "" for none.
    """

    def __init__(self, cache: AnswerCache, remote: "RemoteModels | None" = None, local_embedder: str = "") -> None:
        self._cache = cache
        self._remote = remote
        self._chat = remote.chat if remote else None
        self._ranking = remote.ranking if remote else None
        self.embeddings = EmbeddingModels(cache, remote.embedder if remote else None, local_embedder)
        """The embedding models that can be used."""
        self._builtin = self.embeddings.builtin
        self.embedder: Embedder = self.embeddings.configured
        """The embedder of the store; another one after a switch to an index of another model."""

    @classmethod
    def from_settings(cls, settings: Settings, database: Database, retry_policy: RetryPolicy | None = None) -> Self:
        """Returns the models that the settings name; makes no calls before `open`."""
        cache = AnswerCache(database)
        local = "" if settings.embedding_url else settings.embedding_model
        if settings.chat_url is settings.embedding_url is settings.rerank_url is None:
            return cls(cache, None, local)
        if not is_installed("models"):
            raise ModelLibraryMissingError
        from memotree.models.remote import connect  # noqa: PLC0415 - see above

        timeout, attempts = settings.model_timeout.total_seconds(), settings.model_attempts
        remote = connect(settings, cache, retry_policy or RetryPolicy(timeout=timeout, attempts=attempts))
        return cls(cache, remote, local)

    async def open(self, model: str = "", dimensions: int = 0) -> None:
        """Chooses the embedding model: that of the index, if it can be used, or else the one of the settings; opens it.

        With an embedding model behind a URL, the database must be open.

        Args:
            model: The embedding model of the index that answers; "" if there is none yet.
            dimensions: The length of its vectors.

        Raises:
            LocalModelMissingError: If a local model is configured and not installed.
            ModelUnavailableError: If the embedding model does not answer, and its vector length is not cached.
            ModelRefusedError: If its endpoint refuses the call.
        """
        self.embedder = await self.embeddings.at_start(model, dimensions)

    async def close(self) -> None:
        """Closes the connections to every endpoint."""
        if self._remote is not None:
            await self._remote.close()

    def limit(self, per_minute: int) -> None:
        """Sets the most calls of models behind URLs that start per minute; 0 for no limit."""
        if self._remote is not None and self._remote.limiter is not None:
            self._remote.limiter.change(per_minute)

    @property
    def endpoints(self) -> "Sequence[Endpoint]":
        """The models behind URLs, with what they were asked so far."""
        return self._remote.endpoints if self._remote is not None else ()

    @property
    def has_chat(self) -> bool:
        """Whether a chat model is configured."""
        return self._chat is not None

    @property
    def is_built_in(self) -> bool:
        """Whether summaries and vectors are both built in, so that the ``…_now`` methods give the final ones."""
        return self._chat is None and self.embedder is self._builtin

    @property
    def has_ranking(self) -> bool:
        """Whether a reranking model is configured."""
        return self._ranking is not None

    @property
    def ranking_model(self) -> str:
        """The name of the reranking model; "" if none is configured."""
        return self._ranking.model if self._ranking else ""

    def as_now(self) -> "Models":
        """Returns these models without a later change of the embedder, for work that compares its own vectors."""
        return copy(self)

    def without_chat(self) -> "Models":
        """Returns these models without the chat model, so that summaries are built in and made at once."""
        models = self.as_now()
        models._chat = None  # noqa: SLF001 - of this class
        return models

    async def embed(self, texts: Sequence[str], meter: Meter) -> Vectors:
        """Returns one unit vector per text, in order.

        Raises:
            ModelUnavailableError: If the model does not answer; its earlier answers stay cached.
            ModelRefusedError: If the endpoint refuses the call.
            EmbeddingDimensionError: If its vectors have another length than those of the index.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        if (remote := self.embeddings.as_remote(self.embedder)) is not None:
            return await remote.embed(texts, meter)
        return await self.embedder.embed(texts)

    # --- Summaries ---------------------------------------------------------------------------------------------------

    async def summarise_text(self, text: str, meter: Meter) -> Summary:
        """Returns the summary of a text; if the chat model fails, the built-in one with `Summary.pending`.

        Raises:
            BudgetExhaustedError: If the meter's limit is reached.
        """
        pending = False
        if self._chat is not None and text.strip():
            made = await self._summarise(self._chat, leaf_question(text), meter)
            if made is not None:
                return made
            pending = True
        return replace(await in_thread_if_long(len(text), self.summarise_text_now, text), pending=pending)

    async def summarise_children(self, summaries: Sequence[str], meter: Meter) -> Summary:
        """Returns the summary of a node from those of its children, in order; otherwise like `summarise_text`.

        Raises:
            BudgetExhaustedError: If the meter's limit is reached.
        """
        filled = [summary for summary in summaries if summary.strip()]
        pending = False
        if self._chat is not None and filled:
            made = await self._summarise(self._chat, parent_question(filled), meter)
            if made is not None:
                return made
            pending = True
        made_here = await in_thread_if_long(sum(map(len, filled)), self.summarise_children_now, filled)
        return replace(made_here, pending=pending)

    @staticmethod
    def summarise_text_now(text: str) -> Summary:
        """Returns the built-in summary of a text, in the calling thread; call it off the event loop for many texts."""
        return Summary(extractive.summary_of("", text), extractive.MADE_BY)

    @staticmethod
    def summarise_children_now(summaries: Sequence[str]) -> Summary:
        """Returns the built-in summary of a node from those of its children; otherwise like `summarise_text_now`."""
        return Summary(extractive.digest_of([summary for summary in summaries if summary.strip()]), extractive.MADE_BY)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """Returns the vectors of the built-in model, in the calling thread."""
        return self._builtin.embed_now(texts)

    async def _summarise(self, chat: "Chat", question: Question[SummaryAnswer], meter: Meter) -> Summary | None:
        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            answer = await chat.ask(question, meter, optional=True)
            return {batch[0]: extractive.fitted(answer.summary).encode("utf-8", "replace")}

        label = question.prompt.label
        key = key_of(label, chat.model, question.user)
        try:
            values, found = await self._cache.answers(label, chat.model, [key], make, one_batch)
        except (ModelUnavailableError, ModelRefusedError) as error:
            _note_fallback(error, meter)
            return None
        meter.cached("chat", chat.model, found)
        return Summary(values[key].decode(), f"{chat.model} {label}")

    # --- Ranking -----------------------------------------------------------------------------------------------------

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """Returns the relevance of each text for a query, from 0 to 1, in the order of the texts.

        If the reranking model fails, the built-in ranking is used and the meter gets a warning.

        Raises:
            BudgetExhaustedError: If the meter's limit is reached.
        """
        if not texts:
            return []
        if self._ranking is not None:
            try:
                return await self._ranking.scores(query, texts, meter)
            except (ModelUnavailableError, ModelRefusedError) as error:
                _note_fallback(error, meter)
        vectors = await self._builtin.embed([query, *texts])
        return await in_thread_if_long(len(query) + sum(map(len, texts)), relevance.relevance, query, texts, vectors)

    # --- The loop ----------------------------------------------------------------------------------------------------

    async def decide(
        self, query: str, nodes: Sequence[ContextNode], meter: Meter, *, must_answer: bool = False
    ) -> Decision:
        """Returns the next step to answer a query: an answer, or the node to explore.

        Args:
            query: The question of the user.
            nodes: The nodes found so far.
            meter: Counts the calls.
            must_answer: Whether this is the last step, in which only an answer is valid.

        Raises:
            ChatMissingError: If no chat model is configured.
            ModelUnavailableError: If the model does not answer, or not with a valid decision.
            ModelRefusedError: If the endpoint refuses the call.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        chat = self._needed_chat()
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
            quoted = ", ".join(map(repr, unknown[:_SHOWN_IDS]))
            meter.warn(f"The model cited {quoted}, which it was not shown; these citations were left out.")
        return Answer(payload.final_answer, tuple(node_id for node_id in named if node_id in shown))

    # --- Tools -------------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> "FunctionChat":
        """The chat model with functions that it may ask to call.

        Raises:
            ChatMissingError: If no chat model is configured.
        """
        self._needed_chat()
        if self._remote is None or self._remote.functions is None:
            raise ChatMissingError(_NO_CHAT)
        return self._remote.functions

    def check_chat(self) -> None:
        """Checks that there is a chat model.

        Raises:
            ChatMissingError: If none is configured.
        """
        self._needed_chat()

    async def answer(self, question: Question[_M], meter: Meter) -> _M:
        """Returns the checked answer to a question; it is not cached.

        Raises:
            ChatMissingError: If no chat model is configured.
            ModelUnavailableError: If the model does not answer, or not with a valid answer.
            ModelRefusedError: If the endpoint refuses the call.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        return await self._needed_chat().ask(question, meter)

    def _needed_chat(self) -> "Chat":
        if self._chat is None:
            raise ChatMissingError(_NO_CHAT)
        return self._chat


def _note_fallback(error: MemoTreeError, meter: Meter) -> None:
    _log.warning("a model failed; the built-in one is used instead", why=error.message)
    meter.warn(error.message)
