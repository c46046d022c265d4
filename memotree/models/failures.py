"""What can be wrong with a model behind a URL, and how long to wait for one.

Apart from the code that calls, since the SDK takes a second to import and only those who call need it.
"""

from dataclasses import dataclass

from memotree_storage.errors import FailedPreconditionError, UnavailableError


class ModelUnavailableError(UnavailableError):
    """A model does not answer, or not with anything usable; the same work may be resumed later."""

    reason = "MODEL_UNAVAILABLE"


class ModelRefusedError(FailedPreconditionError):
    """A model's endpoint refuses our calls: a wrong key, model name or URL."""

    reason = "MODEL_REFUSED"


class MalformedRequestError(ModelRefusedError):
    """A model's endpoint does not take this request, because of its size or of a part that it does not know."""

    reason = "MODEL_REQUEST_MALFORMED"

    def __init__(self, message: str, told: str = "") -> None:
        super().__init__(message)
        self.told = told
        """What the endpoint said about it; not for clients."""


class BrokenAnswerError(Exception):
    """An answer that has not the form it must have; the call is worth another attempt."""


class UnusableAnswerError(ModelUnavailableError):
    """A chat model answers, but not with what it was asked for."""

    reason = "MODEL_ANSWER_UNUSABLE"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long an endpoint is waited for. Times are in seconds.

    Attributes:
        timeout: The longest that one attempt may take.
        attempts: How often a call is made at most.
        first_wait: The longest wait before the second attempt; it doubles, and each wait is random up to it.
        longest_wait: The longest wait between two attempts, unless the endpoint asks for another one.
        failures: After so many calls in a row that failed for good, the endpoint counts as down.
        rest: For so long it is then spared the calls that can do without it.
    """

    timeout: float = 60.0
    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 20.0
    failures: int = 3
    rest: float = 30.0
