"""The errors of models behind URLs, and the retry policy.

This is a module of its own because the code that makes calls imports the SDK, which takes a second, and only callers
need that.
"""

from dataclasses import dataclass

from memotree_storage.errors import FailedPreconditionError, UnavailableError


class ModelUnavailableError(UnavailableError):
    """A model does not answer, or its answer is unusable; the same work can be resumed later."""

    reason = "MODEL_UNAVAILABLE"


class ModelRefusedError(FailedPreconditionError):
    """A model's endpoint refuses our calls: a wrong key, model name or URL."""

    reason = "MODEL_REFUSED"


class MalformedRequestError(ModelRefusedError):
    """A model's endpoint rejects this request because of its size, or because of a part that it does not support."""

    reason = "MODEL_REQUEST_MALFORMED"

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """The message of the endpoint; not shown to clients."""


class RequestTooLongError(MalformedRequestError):
    """A model's endpoint rejects this request because it is longer than the model can read."""

    reason = "MODEL_REQUEST_TOO_LONG"


class BrokenAnswerError(Exception):
    """An answer does not have the required form; the call is retried."""


class UnusableAnswerError(ModelUnavailableError):
    """A chat model refused to answer, or its answers were invalid."""

    reason = "MODEL_ANSWER_UNUSABLE"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When calls of an endpoint are retried. Times are in seconds.

    Attributes:
        timeout: The longest time that one attempt may take.
        attempts: The most attempts of a call.
        first_wait: Upper limit of the wait before the second attempt. The limit doubles at each attempt; the wait is
            random below it.
        longest_wait: The longest wait between two attempts, unless the endpoint asks for another one.
        failures: The endpoint counts as down after this many calls in a row failed in all attempts.
        cool_down: For this long it then gets no calls that are optional.
    """

    timeout: float = 60.0
    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 20.0
    failures: int = 3
    cool_down: float = 30.0
