"""One model behind a URL: calls through the OpenAI SDK, tried again when the endpoint is busy or silent.

Which answers are worth another attempt, and how long to wait before it, is ours to say (the SDK's own retries are off):
one policy for chat, embeddings and ranking, which also knows when an endpoint is down for good.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar
from urllib.parse import urlsplit

import openai
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from memotree.models.failures import (
    BrokenAnswerError,
    MalformedRequestError,
    ModelRefusedError,
    ModelUnavailableError,
    RetryPolicy,
)
from memotree.models.meter import Kind
from memotree.models.rate_limit import RateLimiter

LONGEST_RETRY_AFTER: Final = 60.0
"""Seconds that an endpoint may ask us to wait; one that asks for more is not asked again."""

_NO_KEY: Final = "none"  # the SDK refuses to start without one; a local endpoint reads none
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429})
_NO_MONEY: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_BUSY_FROM: Final = 500
_TOO_LONG: Final = 413
_MALFORMED: Final = frozenset({400, _TOO_LONG, 422})

_log: Final = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Endpoint:
    """A model behind a URL; for one event loop.

    Args:
        kind: What it is for.
        url: The base of its API (``…/v1``).
        model: Its name there.
        key: Its key; empty for none.
        limiter: Shared by all endpoints.
        retry_policy: How long to wait for it.
    """

    def __init__(
        self, kind: Kind, url: str, model: str, key: str, limiter: RateLimiter, retry_policy: RetryPolicy
    ) -> None:
        self.kind: Kind = kind
        self.model = model
        self._host = urlsplit(url).hostname or ""
        self._limiter = limiter
        self._retry_policy = retry_policy
        self._failed = 0
        self._spared_until = 0.0
        self._client = openai.AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=url, max_retries=0, timeout=retry_policy.timeout + 1
        )
        # Which the SDK takes from the environment: what is sent is what the settings say.
        self._client.organization = self._client.project = None

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def call(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[_T]], *, spare: bool = False) -> _T:
        """What ``ask`` gets from the endpoint, tried again while that may help.

        Args:
            ask: Makes the call and checks the form of its answer (``BrokenAnswerError``).
            spare: Whether the caller can do without: then an endpoint that is down is not asked for a while.

        Raises:
            ModelUnavailableError: It did not answer in all attempts, or is spared.
            ModelRefusedError: It refuses the key, the model or the path.
            MalformedRequestError: It does not take this request.
        """
        attempts = self._attempts(spare=spare)
        try:
            answer = await self._try(ask, attempts)
        except Exception as error:
            raise self._translated(error, attempts) from error
        self._failed = 0
        return answer

    def _attempts(self, *, spare: bool) -> int:
        """How often to try: once when the endpoint was down a while ago, so that only one caller waits for it."""
        if not spare or self._failed < self._retry_policy.failures:
            return self._retry_policy.attempts
        now = asyncio.get_running_loop().time()
        if now < self._spared_until:
            raise ModelUnavailableError(
                f"The {self.kind} model {self.model!r} did not answer {self._failed} calls in a row and is spared for "
                f"{self._retry_policy.rest:.0f} seconds; send the same call again then."
            )
        self._spared_until = now + self._retry_policy.rest
        return 1

    async def _try(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[_T]], attempts: int) -> _T:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(attempts),
            retry=retry_if_exception(_may_pass),
            wait=self._wait,
            before_sleep=self._tell,
            sleep=asyncio.sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with self._limiter.place(), asyncio.timeout(self._retry_policy.timeout):
                    return await ask(self._client)
        raise AssertionError("tenacity either returns or raises")

    def _wait(self, state: RetryCallState) -> float:
        """What the endpoint asked for, and else a random time that may be longer at each attempt ("full jitter")."""
        error = state.outcome.exception() if state.outcome else None
        asked = retry_after(error) if isinstance(error, openai.APIStatusError) else None
        jitter: float = wait_random_exponential(self._retry_policy.first_wait, self._retry_policy.longest_wait)(state)
        return jitter if asked is None else asked + min(jitter, asked / 10)  # not all waiting calls in one moment

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = round(state.upcoming_sleep, 1)
        _log.info("a model is asked again", kind=self.kind, model=self.model, why=_named(error), wait=wait)

    def _translated(self, error: Exception, attempts: int) -> Exception:
        """The domain error for a call that failed for good."""
        if isinstance(error, openai.APIStatusError) and error.status_code in _MALFORMED:
            # The endpoint answers, so it is not down.
            return MalformedRequestError(
                f"The {self.kind} model {self.model!r} at {self._host} does not take a request ({_named(error)}); "
                f"check that MEMOTREE_{self.kind.upper()}_MODEL names a model of this kind.",
                str(error.message),
            )
        if isinstance(error, openai.APIStatusError) and not _may_pass(error) and _code(error) not in _NO_MONEY:
            self._count_failure()
            return ModelRefusedError(
                f"The {self.kind} model {self.model!r} at {self._host} refuses the call ({_named(error)}); check "
                f"MEMOTREE_{self.kind.upper()}_URL, _MODEL and _API_KEY."
            )
        if isinstance(error, (openai.OpenAIError, BrokenAnswerError, TimeoutError, ValueError)):
            self._count_failure()
            return ModelUnavailableError(
                f"The {self.kind} model {self.model!r} at {self._host} gave no usable answer in {attempts} attempts "
                f"({_named(error)}). Resume the work, or send the same call again, when it does."
            )
        return error  # ours, or a fault of ours

    def _count_failure(self) -> None:
        self._failed += 1
        if self._failed >= self._retry_policy.failures:
            self._spared_until = asyncio.get_running_loop().time() + self._retry_policy.rest


def retry_after(error: openai.APIStatusError) -> float | None:
    """The seconds that the endpoint asks to wait (RFC 9110, section 10.2.3: a number or a date), if it does."""
    value = error.response.headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, until.timestamp() - time.time())


def _may_pass(error: BaseException) -> bool:
    """Whether another attempt may go better."""
    if isinstance(error, openai.APIResponseValidationError):
        return True
    if isinstance(error, openai.APIStatusError):
        if _code(error) in _NO_MONEY or (retry_after(error) or 0) > LONGEST_RETRY_AFTER:
            return False
        return error.status_code in _TRY_AGAIN or error.status_code >= _BUSY_FROM
    # ValueError: half a JSON, which the SDK lets pass.
    return isinstance(error, (openai.APIConnectionError, BrokenAnswerError, TimeoutError, ValueError))


def _code(error: openai.APIStatusError) -> str:
    return str(error.code or error.type or "")


def _named(error: BaseException | None) -> str:
    """What happened, without anything that the endpoint wrote, which might repeat a key."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return "too slow"
    if isinstance(error, openai.APIConnectionError):
        return "no connection"
    return str(error) if isinstance(error, BrokenAnswerError) else "an answer that is no JSON"
