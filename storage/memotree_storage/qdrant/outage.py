"""The one error of an index that is away, whoever notices it; light to import."""

from memotree_storage.errors import UnavailableError


class IndexUnavailableError(UnavailableError):
    """The index of vectors and terms does not answer."""

    reason = "INDEX_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The search index does not answer. Nothing is lost; send the call again, and check Qdrant if that keeps "
            "failing: the log of the server says how."
        )
        self.detail = detail
        """What the connection said; for the log, never for a client."""
