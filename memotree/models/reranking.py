"""Reranks texts with a model behind a URL, by the `/rerank` call that Cohere, Jina and vLLM share."""

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import openai
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens

from memotree.models.cache import AnswerCache, key_of
from memotree.models.endpoint import Endpoint
from memotree.models.meter import Meter
from memotree.models.model_errors import BrokenAnswerError

BATCH_TEXTS: Final = 64
"""The most texts in one call."""

_TEXT_TOKENS: Final = 2_000
_PATH: Final = "/rerank"
_SCORE: Final = struct.Struct("<d")


def rerank_base(url: str) -> str:
    """Returns the base URL of the API; people may configure the full URL of the call instead."""
    return url.rstrip("/").removesuffix(_PATH)


class EndpointRanking:
    """Scores texts for a query, with a cache of every pair; for one event loop."""

    def __init__(self, endpoint: Endpoint, cache: AnswerCache) -> None:
        self._endpoint = endpoint
        self._cache = cache

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._endpoint.model

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoint.close()

    async def scores(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """Returns a score from 0 to 1 for each text, in the order of the texts.

        Raises:
            ModelUnavailableError: If the endpoint does not answer with scores.
            ModelRefusedError: If the endpoint refuses the call.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        query, cut = _clean(query), [_clean(text) for text in texts]
        by_key = {key_of("rerank", self.model, query, text): text for text in cut if text}

        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            scores = await self._call(query, [by_key[key] for key in batch], meter)
            return {key: _SCORE.pack(score) for key, score in zip(batch, scores, strict=True)}

        values, found = await self._cache.answers("rerank", self.model, by_key, make, _batches)
        meter.cached("rerank", self.model, found)
        raw = {by_key[key]: _SCORE.unpack(value)[0] for key, value in values.items()}
        calibrated = _calibrated(raw)
        return [calibrated.get(text, 0.0) for text in cut]

    async def _call(self, query: str, texts: list[str], meter: Meter) -> list[float]:
        body = {"model": self.model, "query": query, "documents": texts, "top_n": len(texts)}
        read = count_tokens(query) * len(texts) + sum(map(count_tokens, texts))

        async def post(client: openai.AsyncOpenAI) -> list[float]:
            return _checked(await client.post(_PATH, cast_to=object, body=body), len(texts))

        with meter.call("rerank", self.model, read) as call:
            scores = await self._endpoint.call(post, optional=True)
            call.answered(read)
            self._endpoint.totals.add(call.used)
        return scores


def _clean(text: str) -> str:
    return truncate_to_tokens(text.strip(), _TEXT_TOKENS).encode("utf-8", "replace").decode()


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + BATCH_TEXTS] for start in range(0, len(keys), BATCH_TEXTS))


def _checked(answer: Any, count: int) -> list[float]:
    """Returns the score of each text in an answer, in the order of the texts."""
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise BrokenAnswerError("an answer without results")
    scores: dict[int, float] = {}
    for result in results:
        index, score = _entry(result)
        if not 0 <= index < count or index in scores or not math.isfinite(score):
            raise BrokenAnswerError("a ranking with an impossible entry")
        scores[index] = score
    if len(scores) != count:
        raise BrokenAnswerError(f"{len(scores)} scores for {count} texts")
    return [scores[index] for index in range(count)]


def _entry(result: Any) -> tuple[int, float]:
    try:
        score = result["relevance_score"] if "relevance_score" in result else result["score"]
        return int(result["index"]), float(score)
    except (KeyError, TypeError, ValueError):
        raise BrokenAnswerError("a ranking with an entry that has no index or score") from None


def _calibrated(raw: dict[str, float]) -> dict[str, float]:
    """Returns scores from 0 to 1. If any is outside that range, the server returns logits and all are converted."""
    if all(0.0 <= score <= 1.0 for score in raw.values()):
        return raw
    return {text: 1 / (1 + math.exp(-max(-50.0, min(50.0, score)))) for text, score in raw.items()}
