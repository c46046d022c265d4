"""Embeds texts with a model behind a URL: in batches, each text once; answers are checked before they are cached."""

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
from memotree.models.meter import Meter, reported_or_counted
from memotree.models.model_errors import BrokenAnswerError, MalformedRequestError

BATCH_TEXTS: Final = 128
"""The most texts in one call."""

BATCH_TOKENS: Final = 32_000
"""The most tokens in one call, by our counter; endpoints allow about 300,000 by theirs."""

TEXT_TOKENS: Final = 6_000
"""Only this many tokens of a text are embedded, by our counter; common models read 8,192 by theirs."""

_SHORTEST: Final = 128
_PROBE: Final = "MemoTree asks how long the vectors of this model are."
_SMALLEST_NORM: Final = 1e-12


class EmbeddingDimensionError(FailedPreconditionError):
    """The embedding model returns vectors of another length than the stored ones."""

    reason = "EMBEDDING_DIMENSION_MISMATCH"

    def __init__(self, model: str, found: int, needed: int) -> None:
        super().__init__(
            f"The embedding model {model!r} returns vectors of {found} dimensions, but {needed} are needed. Run "
            f"`memotree reindex --embedding {model} --dimensions {found}`, and set MEMOTREE_EMBEDDING_DIMENSIONS to "
            f"{found}."
        )


class EndpointEmbedder:
    """An `Embedder` behind a URL, with a cache; for one event loop.

    Args:
        endpoint: The endpoint of the model.
        cache: The cache of vectors.
        dimensions: The length of vectors to request; without it, call `learn` first.
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
        """Length of a vector; 0 until it is known."""
        return self._dimensions

    @property
    def is_slow(self) -> bool:
        """True: the model is behind a URL."""
        return True

    def of_length(self, dimensions: int) -> "EndpointEmbedder":
        """Returns an embedder of the same model whose vectors have another length; it shares the connections."""
        return EndpointEmbedder(self._endpoint, self._cache, dimensions)

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoint.close()

    async def learn(self) -> None:
        """Finds out the length of the vectors by embedding a fixed text, which is then cached.

        Raises:
            ModelUnavailableError: If the endpoint does not answer.
            ModelRefusedError: If the endpoint refuses the call.
        """
        if not self._dimensions:
            vectors = await self._vectors([_PROBE], Meter())
            self._dimensions = len(vectors[_PROBE])

    async def embed(self, texts: Sequence[str], meter: Meter | None = None) -> Vectors:
        """Returns one unit vector per text, in order; shape (texts, dimensions). A blank text gives the first axis.

        Callers without a meter are searches and the index, which try again later. Their calls do not wait for an
        endpoint that is known to be down.

        Raises:
            ModelUnavailableError: If the endpoint does not answer with vectors; those it returned before stay cached.
            ModelRefusedError: If the endpoint refuses the call.
            EmbeddingDimensionError: If its vectors have another length.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        cut = [_clean(text) for text in texts]
        known = await self._vectors([text for text in cut if text], meter or Meter(), optional=meter is None)
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

    async def _vectors(self, texts: Sequence[str], meter: Meter, *, optional: bool = False) -> dict[str, Vector]:
        by_key = {self._key(text): text for text in texts}

        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            vectors = await self._ask([by_key[key] for key in batch], meter, optional=optional)
            return {key: vector.tobytes() for key, vector in zip(batch, vectors, strict=True)}

        def batches(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
            return _batches(keys, by_key)

        values, found = await self._cache.answers("embedding", self.model, by_key, make, batches)
        meter.cached("embedding", self.model, found)
        return {by_key[key]: np.frombuffer(value, dtype="<f4") for key, value in values.items()}

    def _key(self, text: str) -> bytes:
        return key_of("embedding", self.model, str(self._wanted or 0), text)

    async def _ask(self, texts: list[str], meter: Meter, *, optional: bool) -> list[Vector]:
        """Returns the vectors of one batch. If the endpoint rejects it, halves the batch; a rejected text is halved."""
        try:
            return await self._call(texts, meter, optional=optional, asks_for_length=self._asks_for_length)
        except MalformedRequestError:
            if self._asks_for_length:
                with suppress(MalformedRequestError):
                    vectors = await self._call(texts, meter, optional=optional, asks_for_length=False)
                    # Most models have a fixed length and reject a request for one. Remembered only if that was the
                    # cause, which is certain once the call without it has succeeded.
                    self._asks_for_length = False
                    return vectors
            if len(texts) > 1:
                half = len(texts) // 2
                first, second = texts[:half], texts[half:]
                return [
                    *await self._ask(first, meter, optional=optional),
                    *await self._ask(second, meter, optional=optional),
                ]
            tokens = count_tokens(texts[0])
            if tokens <= _SHORTEST:
                raise
            return await self._ask([truncate_to_tokens(texts[0], tokens // 2)], meter, optional=optional)

    async def _call(self, texts: list[str], meter: Meter, *, optional: bool, asks_for_length: bool) -> list[Vector]:
        options: dict[str, Any] = {"dimensions": self._wanted} if asks_for_length else {}
        read = sum(map(count_tokens, texts))

        async def create(client: openai.AsyncOpenAI) -> tuple[list[Vector], int]:
            try:
                answer: Any = await client.embeddings.create(model=self.model, input=texts, **options)
            except (AttributeError, TypeError) as error:  # the SDK unpacks vectors without checking the answer
                raise BrokenAnswerError("an answer that holds no embeddings") from error
            vectors = _checked(answer, len(texts))
            return vectors, reported_or_counted(getattr(answer.usage, "prompt_tokens", None), read)

        with meter.call("embedding", self.model, read) as call:
            vectors, tokens = await self._endpoint.call(create, optional=optional)
            call.answered(tokens)
            self._endpoint.totals.add(call.used)
        if self._dimensions and len(vectors[0]) != self._dimensions:
            raise EmbeddingDimensionError(self.model, len(vectors[0]), self._dimensions)
        return vectors


def _clean(text: str) -> str:
    """Returns the text to embed: stripped, of bounded length, and valid UTF-8."""
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
    """Returns the vectors of an answer as unit vectors, in the order of the texts."""
    if not isinstance(answer, CreateEmbeddingResponse) or not isinstance(answer.data, list):
        raise BrokenAnswerError("an answer that holds no embeddings")
    if len(answer.data) != count:
        raise BrokenAnswerError(f"{len(answer.data)} vectors for {count} texts")
    places = {getattr(item, "index", None): item for item in answer.data}
    # Some servers leave out the index and answer in order.
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
