"""Connects to the models behind URLs that the settings name; they share one rate limiter."""

from dataclasses import dataclass, replace
from typing import Final

from memotree.models.cache import AnswerCache
from memotree.models.chat import Chat
from memotree.models.embedding import EndpointEmbedder
from memotree.models.endpoint import Endpoint
from memotree.models.function_chat import FunctionChat
from memotree.models.meter import Kind
from memotree.models.model_errors import RetryPolicy
from memotree.models.rate_limit import RateLimiter
from memotree.models.reranking import EndpointRanking, rerank_base
from memotree.settings import Settings

_EMBEDDING_COOL_DOWN: Final = 5.0
"""In seconds. It is short because there is no substitute for a vector: the model should be called again soon after an
outage."""


@dataclass(frozen=True, slots=True)
class RemoteModels:
    """The configured models; ``None`` where the built-in model is used."""

    embedder: EndpointEmbedder | None = None
    chat: Chat | None = None
    functions: FunctionChat | None = None
    ranking: EndpointRanking | None = None
    limiter: RateLimiter | None = None
    endpoints: tuple[Endpoint, ...] = ()

    async def close(self) -> None:
        """Closes the connections to every endpoint."""
        for part in (self.embedder, self.chat, self.ranking):
            if part is not None:
                await part.close()


def connect(settings: Settings, cache: AnswerCache, retry_policy: RetryPolicy) -> RemoteModels:
    """Returns the models that the settings name; makes no calls."""
    limiter = RateLimiter(settings.model_concurrency, settings.model_requests_per_minute)

    endpoints: list[Endpoint] = []

    def endpoint(kind: Kind, url: str) -> Endpoint:
        secret = getattr(settings, f"{kind}_api_key")
        key = secret.get_secret_value() if secret else ""
        cool_down = min(_EMBEDDING_COOL_DOWN, retry_policy.cool_down) if kind == "embedding" else retry_policy.cool_down
        made = Endpoint(
            kind, url, getattr(settings, f"{kind}_model"), key, limiter, replace(retry_policy, cool_down=cool_down)
        )
        endpoints.append(made)
        return made

    embedder = chat = functions = ranking = None
    if settings.embedding_url is not None:
        embedder = EndpointEmbedder(endpoint("embedding", settings.embedding_url), cache, settings.embedding_dimensions)
    if settings.chat_url is not None:
        chat_endpoint = endpoint("chat", settings.chat_url)
        chat, functions = Chat(chat_endpoint), FunctionChat(chat_endpoint)
    if settings.rerank_url is not None:
        ranking = EndpointRanking(endpoint("rerank", rerank_base(settings.rerank_url)), cache)
    return RemoteModels(embedder, chat, functions, ranking, limiter, tuple(endpoints))
