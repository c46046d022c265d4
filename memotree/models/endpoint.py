"""Calls one model behind a URL through the OpenAI SDK, and retries if the endpoint is busy or does not answer.

The SDK's own retries are off. We decide which answers are retried and how long to wait, so that there is one policy for
chat, embeddings and reranking, which also notices when an endpoint is down.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar
from urllib.parse import urlsplit

import openai
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from memotree.models.meter import Kind
from memotree.models.model_errors import (
    BrokenAnswerError,
    MalformedRequestError,
    ModelRefusedError,
    ModelUnavailableError,
    RequestTooLongError,
    RetryPolicy,
)
from memotree.models.rate_limit import RateLimiter

LONGEST_RETRY_AFTER: Final = 60.0
"""The most seconds that an endpoint may ask us to wait; if it asks for more, the call is not retried."""

_NO_KEY: Final = "none"  # the SDK requires a key; local endpoints ignore it
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429})
_NO_MONEY: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_BUSY_FROM: Final = 500
_TOO_LONG: Final = 413
_TOO_LONG_CODES: Final = frozenset({"context_length_exceeded", "string_above_max_length"})
_TOO_LONG_SENTENCE: Final = re.compile(r"context (?:length|window|size)|reduce the length", re.IGNORECASE)
_MALFORMED: Final = frozenset({400, _TOO_LONG, 422})

_log: Final = structlog.get_logger(__name__)
_T = TypeVar("_T")


@dataclass(slots=True)
class EndpointTotals:
    """What an endpoint was asked since the start: calls that it answered or not, tokens that its model read and wrote.

    A retry is no call of its own.
    """

    answered: int = 0
    failed: int = 0
    read_tokens: int = 0
    written_tokens: int = 0

    def add(self, used: tuple[int, int] | None) -> None:
        """Add the tokens that a call has read and written."""
        if used is not None:
            self.read_tokens += used[0]
            self.written_tokens += used[1]


class Endpoint:
    """A model behind a URL; for one event loop.

    Args:
        kind: The kind of model.
        url: The base URL of its API (``…/v1``).
        model: The name of the model.
        key: The API key; empty for none.
        limiter: The rate limiter shared by all endpoints.
        retry_policy: When to retry, and how long to wait.
    """

    def __init__(
        self, kind: Kind, url: str, model: str, key: str, limiter: RateLimiter, retry_policy: RetryPolicy
    ) -> None:
        self.kind: Kind = kind
        self.model = model
        self.totals = EndpointTotals()
        self._host = urlsplit(url).hostname or ""
        self._limiter = limiter
        self._retry_policy = retry_policy
        self._failed = 0
        self._down_until = 0.0
        self._client = openai.AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=url, max_retries=0, timeout=retry_policy.timeout + 1
        )
        # The SDK takes these from the environment, but only our settings may decide what is sent.
        self._client.organization = self._client.project = None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def call(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[_T]], *, optional: bool = False) -> _T:
        """Returns the result of ``ask``, retried while that may help.

        Args:
            ask: Makes the call and checks the form of its answer (``BrokenAnswerError``).
            optional: Whether the caller can do without the answer; such calls fail at once while the endpoint is down.

        Raises:
            ModelUnavailableError: If no attempt was answered, or the endpoint is down and the call is optional.
            ModelRefusedError: If the endpoint refuses the key, the model or the path.
            MalformedRequestError: If the endpoint rejects this request.
        """
        attempts = self._attempts(optional=optional)
        try:
            answer = await self._try(ask, attempts)
        except Exception as error:
            self.totals.failed += 1
            raise self._translated(error, attempts) from error
        self.totals.answered += 1
        self._failed = 0
        return answer

    def _attempts(self, *, optional: bool) -> int:
        """Returns the number of attempts: 1 after an outage, so that only one optional call probes the endpoint."""
        if not optional or self._failed < self._retry_policy.failures:
            return self._retry_policy.attempts
        now = asyncio.get_running_loop().time()
        if now < self._down_until:
            raise ModelUnavailableError(
                f"The {self.kind} model {self.model!r} did not answer {self._failed} calls in a row and is not called "
                f"for {self._retry_policy.cool_down:.0f} seconds; send the same call again after that."
            )
        self._down_until = now + self._retry_policy.cool_down
        return 1

    async def _try(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[_T]], attempts: int) -> _T:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(attempts),
            retry=retry_if_exception(_may_pass),
            wait=self._wait,
            before_sleep=self._log_retry,
            sleep=asyncio.sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with self._limiter.slot(), asyncio.timeout(self._retry_policy.timeout):
                    return await ask(self._client)
        raise AssertionError("tenacity either returns or raises")

    def _wait(self, state: RetryCallState) -> float:
        """Returns the seconds the endpoint asked us to wait, else a random time up to a growing limit (full jitter)."""
        error = state.outcome.exception() if state.outcome else None
        asked = retry_after(error) if isinstance(error, openai.APIStatusError) else None
        jitter: float = wait_random_exponential(self._retry_policy.first_wait, self._retry_policy.longest_wait)(state)
        return (
            jitter if asked is None else asked + min(jitter, asked / 10)
        )  # so that waiting calls don't all retry at once

    def _log_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = round(state.upcoming_sleep, 1)
        _log.info("retrying a model call", kind=self.kind, model=self.model, why=_named(error), wait=wait)

    def _translated(self, error: Exception, attempts: int) -> Exception:
        """Returns the domain error for a call that failed in all attempts."""
        if isinstance(error, openai.APIStatusError) and error.status_code in _MALFORMED:
            # The endpoint has answered, so this does not count as a failure.
            if _is_too_long(error):
                return RequestTooLongError(
                    f"A request to the {self.kind} model {self.model!r} at {self._host} is longer than the model can "
                    "read; let it read less at once, or name a model that reads more in "
                    f"MEMOTREE_{self.kind.upper()}_MODEL.",
                    str(error.message),
                )
            return MalformedRequestError(
                f"The {self.kind} model {self.model!r} at {self._host} rejected a request ({_named(error)}); "
                f"check that MEMOTREE_{self.kind.upper()}_MODEL names a model of this kind.",
                str(error.message),
            )
        if isinstance(error, openai.APIStatusError) and not _may_pass(error) and _code(error) not in _NO_MONEY:
            self._count_failure()
            return ModelRefusedError(
                f"The {self.kind} model {self.model!r} at {self._host} refused the call ({_named(error)}); check "
                f"MEMOTREE_{self.kind.upper()}_URL, _MODEL and _API_KEY."
            )
        if isinstance(error, (openai.OpenAIError, BrokenAnswerError, TimeoutError, ValueError)):
            self._count_failure()
            return ModelUnavailableError(
                f"The {self.kind} model {self.model!r} at {self._host} gave no usable answer in {attempts} attempts "
                f"({_named(error)}). Resume the work, or send the same call again, when it answers again."
            )
        return error  # one of our own errors, or a bug

    def _count_failure(self) -> None:
        self._failed += 1
        if self._failed >= self._retry_policy.failures:
            self._down_until = asyncio.get_running_loop().time() + self._retry_policy.cool_down


def retry_after(error: openai.APIStatusError) -> float | None:
    """Returns the seconds of the Retry-After header (RFC 9110, section 10.2.3: a number or a date), if there is one."""
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


def _is_too_long(error: openai.APIStatusError) -> bool:
    """Whether the request is longer than the model can read; many endpoints have no code for that, only a sentence."""
    return (
        error.status_code == _TOO_LONG
        or _code(error) in _TOO_LONG_CODES
        or _TOO_LONG_SENTENCE.search(str(error.message)) is not None
    )


def _may_pass(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, openai.APIResponseValidationError):
        return True
    if isinstance(error, openai.APIStatusError):
        if _code(error) in _NO_MONEY or (retry_after(error) or 0) > LONGEST_RETRY_AFTER:
            return False
        return error.status_code in _TRY_AGAIN or error.status_code >= _BUSY_FROM
    # ValueError: truncated JSON, which the SDK does not check.
    return isinstance(error, (openai.APIConnectionError, BrokenAnswerError, TimeoutError, ValueError))


def _code(error: openai.APIStatusError) -> str:
    return str(error.code or error.type or "")


def _named(error: BaseException | None) -> str:
    """Returns what happened, without any text of the endpoint, which might contain a key."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return "too slow"
    if isinstance(error, openai.APIConnectionError):
        return "no connection"
    return str(error) if isinstance(error, BrokenAnswerError) else "an answer that is not JSON"
