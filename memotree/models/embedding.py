"""Embeddings of a model behind a URL: in batches, each text once, checked before anything is kept."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import openai
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens
from memotree_storage.ports import Vector, Vectors
from openai.types import CreateEmbeddingResponse

from memotree.models.cache import AnswerCache, key_of
from memotree.models.endpoint import Endpoint
from memotree.models.failures import BrokenAnswerError, MalformedRequestError
from memotree.models.meter import Meter, told_or_counted

BATCH_TEXTS: Final = 128
"""The most texts of one call."""

BATCH_TOKENS: Final = 32_000
"""The most tokens of one call, by our counter; endpoints allow some 300,000 of theirs."""

TEXT_TOKENS: Final = 6_000
"""The tokens of a text that count, by our counter; common models read 8,192 of theirs."""

_SHORTEST: Final = 128
_PROBE: Final = "MemoTree asks how long the vectors of this model are."
_SMALLEST_NORM: Final = 1e-12


class EmbeddingDimensionError(FailedPreconditionError):
    """An embedding model gives vectors of another length than those that are kept."""

    reason = "EMBEDDING_DIMENSION_MISMATCH"

    def __init__(self, model: str, found: int, needed: int) -> None:
        super().__init__(
            f"The embedding model {model!r} gives vectors of {found} dimensions and {needed} are needed. Set "
            "MEMOTREE_EMBEDDING_DIMENSIONS to what it gives and start again; all vectors are then made anew."
        )


class EndpointEmbedder:
    """An `Embedder` behind a URL, with a cache; for one event loop.

    Args:
        endpoint: Where the model is.
        cache: What is known already.
        dimensions: The length of its vectors, which it is then asked for; without it `learn` has to be called first.
    """

    def __init__(self, endpoint: Endpoint, cache: AnswerCache, dimensions: int | None) -> None:
        self._endpoint = endpoint
        self._cache = cache
        self._wanted = dimensions
        self._asks_for_length = dimensions is not None
        self._dimensions = dimensions or 0

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._endpoint.model

    @property
    def dimensions(self) -> int:
        """Length of a vector; 0 before it is known."""
        return self._dimensions

    @property
    def remote(self) -> bool:
        """It is behind a URL."""
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def learn(self) -> None:
        """Find out how long the vectors are, by a text that is asked for once and kept.

        Raises:
            ModelUnavailableError: The endpoint does not answer.
            ModelRefusedError: It refuses the call.
        """
        if not self._dimensions:
            vectors = await self._vectors([_PROBE], Meter())
            self._dimensions = len(vectors[_PROBE])

    async def embed(self, texts: Sequence[str], meter: Meter | None = None) -> Vectors:
        """One unit row per text, in order; shape (texts, dimensions). A blank text gives the first axis.

        Who counts no calls is a search or the index, which come again: they do not wait for an endpoint that is known
        to be down.

        Raises:
            ModelUnavailableError: The endpoint does not answer with vectors; those it gave before are kept.
            ModelRefusedError: It refuses the call.
            EmbeddingDimensionError: Its vectors have another length.
            BudgetExhaustedError: The meter's limit is reached.
        """
        cut = [_clean(text) for text in texts]
        known = await self._vectors([text for text in cut if text], meter or Meter(), spare=meter is None)
        rows = np.zeros((len(cut), self._dimensions), dtype=np.float32)
        for row, text in zip(rows, cut, strict=True):
            if not text:
                row[0] = 1.0
                continue
            vector = known[text]
            if len(vector) != self._dimensions:
                raise EmbeddingDimensionError(self.model, len(vector), self._dimensions)
            row[:] = vector
        return rows

    async def _vectors(self, texts: Sequence[str], meter: Meter, *, spare: bool = False) -> dict[str, Vector]:
        by_key = {self._key(text): text for text in texts}

        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            vectors = await self._ask([by_key[key] for key in batch], meter, spare=spare)
            return {key: vector.tobytes() for key, vector in zip(batch, vectors, strict=True)}

        def batches(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
            return _batches(keys, by_key)

        values, found = await self._cache.answers("embedding", self.model, by_key, make, batches)
        meter.cached("embedding", self.model, found)
        return {by_key[key]: np.frombuffer(value, dtype="<f4") for key, value in values.items()}

    def _key(self, text: str) -> bytes:
        return key_of("embedding", self.model, str(self._wanted or 0), text)

    async def _ask(self, texts: list[str], meter: Meter, *, spare: bool) -> list[Vector]:
        """The vectors of one batch; a batch that is not taken goes in halves, a text that is not taken is halved."""
        try:
            return await self._call(texts, meter, spare=spare, asks_for_length=self._asks_for_length)
        except MalformedRequestError:
            if self._asks_for_length:
                with suppress(MalformedRequestError):
                    vectors = await self._call(texts, meter, spare=spare, asks_for_length=False)
                    # Most models have one length and do not let one ask for it; remembered only where that was it.
                    self._asks_for_length = False
                    return vectors
            if len(texts) > 1:
                half = len(texts) // 2
                first, second = texts[:half], texts[half:]
                return [*await self._ask(first, meter, spare=spare), *await self._ask(second, meter, spare=spare)]
            tokens = count_tokens(texts[0])
            if tokens <= _SHORTEST:
                raise
            return await self._ask([truncate_to_tokens(texts[0], tokens // 2)], meter, spare=spare)

    async def _call(self, texts: list[str], meter: Meter, *, spare: bool, asks_for_length: bool) -> list[Vector]:
        options: dict[str, Any] = {"dimensions": self._wanted} if asks_for_length else {}
        read = sum(map(count_tokens, texts))

        async def create(client: openai.AsyncOpenAI) -> tuple[list[Vector], int]:
            try:
                answer: Any = await client.embeddings.create(model=self.model, input=texts, **options)
            except (AttributeError, TypeError) as error:  # the SDK unpacks the vectors of whatever came
                raise BrokenAnswerError("an answer that holds no embeddings") from error
            vectors = _checked(answer, len(texts))
            return vectors, told_or_counted(getattr(answer.usage, "prompt_tokens", None), read)

        with meter.call("embedding", self.model, read) as call:
            vectors, tokens = await self._endpoint.call(create, spare=spare)
            call.answered(tokens)
        if self._dimensions and len(vectors[0]) != self._dimensions:
            raise EmbeddingDimensionError(self.model, len(vectors[0]), self._dimensions)
        return vectors


def _clean(text: str) -> str:
    """What is asked for: without blanks around, of bounded length, and all of it UTF-8."""
    return truncate_to_tokens(text.strip(), TEXT_TOKENS).encode("utf-8", "replace").decode()


def _batches(keys: Sequence[bytes], texts: Mapping[bytes, str]) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for key in keys:
        tokens = count_tokens(texts[key])
        if batch and (len(batch) >= BATCH_TEXTS or size + tokens > BATCH_TOKENS):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += tokens
    if batch:
        yield batch


def _checked(answer: Any, count: int) -> list[Vector]:
    """The vectors of an answer as unit vectors, in the order of the texts."""
    if not isinstance(answer, CreateEmbeddingResponse) or not isinstance(answer.data, list):
        raise BrokenAnswerError("an answer that holds no embeddings")
    if len(answer.data) != count:
        raise BrokenAnswerError(f"{len(answer.data)} vectors for {count} texts")
    places = {getattr(item, "index", None): item for item in answer.data}
    # Some servers leave the index out, and answer in order.
    ordered = [places[place] for place in range(count)] if places.keys() >= set(range(count)) else answer.data
    vectors = [_unit(getattr(item, "embedding", None)) for item in ordered]
    if len({len(vector) for vector in vectors}) > 1:
        raise BrokenAnswerError("vectors of different lengths")
    return vectors


def _unit(values: Any) -> Vector:
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BrokenAnswerError("a vector that holds no numbers") from None
    norm = float(np.linalg.norm(vector)) if vector.ndim == 1 and vector.size else 0.0
    if not np.isfinite(norm) or norm < _SMALLEST_NORM:
        raise BrokenAnswerError("a vector that is empty, zero or not finite")
    return (vector / norm).astype("<f4")
