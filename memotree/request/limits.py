"""The limits and defaults of the service, taken from the settings."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from memotree_storage.model.node import NODE_TYPES
from memotree_storage.model.validation import DEFAULT_LIMITS, Limits
from memotree_storage.ports import Signature


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits and defaults of the operations.

    Attributes:
        node: Limits of a node's fields.
        max_depth: The greatest depth of a node; a root of an archive has depth 0.
        types: The registered node types.
        session_ttl: Idle time after which a session expires, unless another is given when it is opened.
        committer_name: The committer of every commit.
        committer_email: The committer's address.
        author_email: The author's address when only the session's agent names the author.
    """

    node: Limits = DEFAULT_LIMITS
    max_depth: int = 128
    types: frozenset[str] = NODE_TYPES
    session_ttl: timedelta = field(default=timedelta(days=7))
    committer_name: str = "MemoTree"
    committer_email: str = "memotree@localhost"
    author_email: str = "agent@localhost"

    def service_author(self) -> Signature:
        """The signature for commits that the service itself authors, with the current time."""
        return Signature(self.committer_name, self.committer_email, datetime.now(UTC).replace(microsecond=0))
