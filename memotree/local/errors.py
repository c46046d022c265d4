"""The errors of opening a folder."""

from memotree.client.errors import FailedPreconditionError, UnavailableError
from memotree.extras import install


class ServerStartError(UnavailableError):
    """The private server of a folder did not start; the message has the last lines of its log."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="SERVER_NOT_STARTED")


class ServerNotInstalledError(FailedPreconditionError):
    """Only the client is installed, and the call needs a server on this machine."""

    def __init__(self) -> None:
        super().__init__(
            f"Only the client library of MemoTree is installed, and this needs a server: {install('server')}",
            reason="SERVER_NOT_INSTALLED",
        )
