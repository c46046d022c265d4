"""Calls that have begun and whose request has not arrived.

A client that begins calls and never sends their requests would otherwise use up what the server may hold at once.
"""

from typing import Final

from memotree_storage.errors import TooLargeError

REQUEST_SECONDS: Final = 60.0
"""How long a request may take to arrive after its call began."""


class RequestNotReceivedError(TooLargeError):
    """The request of a call did not arrive in time, or its place was needed for the call of another client."""

    reason = "REQUEST_NOT_RECEIVED"
    passes = True

    def __init__(self) -> None:
        super().__init__(
            f"The server waits at most {REQUEST_SECONDS:g} seconds for the request of a call, less when one connection "
            "has begun many calls, and did not begin this one; send it again, with its request right behind it."
        )
