"""The one shape of what a tool answers, over every generic interface."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from memotree.client.errors import MemoTreeClientError


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a tool failed.

    Attributes:
        code: The stable error code, UPPER_SNAKE.
        status: Its family, the name of a gRPC status.
        message: A sentence that says what to do next.
        details: What else is known: ``violations`` by field, ``conflicts``, ``nodes`` that were meant or are needed,
            ``metadata``.
    """

    code: str
    status: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: MemoTreeClientError) -> "Failure":
        """What an error tells; a server that was not reached has no code of its own."""
        details: dict[str, Any] = {
            "violations": [asdict(each) for each in error.violations],
            "conflicts": [asdict(each) for each in error.conflicts],
            "nodes": [{"id": node.id, "type": node.type, "title": node.title} for node in error.nodes],
            "metadata": dict(error.metadata),
        }
        return cls(
            error.reason or error.code,
            error.code,
            error.message,
            {name: each for name, each in details.items() if each},
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answers.

    Attributes:
        message: One sentence for a person; of a failed call, what to do next.
        text: What a model reads: the answer in short, or why there is none.
        data: The response of the RPC in JSON; ``None`` when it failed and left none.
        warnings: What a person may want to know though it succeeded.
        failure: Why it failed; ``None`` when it succeeded.
        metadata: The tool, and the workspace that was meant.
        elapsed: How long it took, in seconds.
    """

    message: str
    text: str
    data: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    elapsed: float = 0.0

    @property
    def success(self) -> bool:
        """Whether the tool did what it was asked for."""
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        """The shape on the wire; every key is always there."""
        return {
            "success": self.success,
            "message": self.message,
            "data": self.data,
            "warnings": list(self.warnings),
            "error": asdict(self.failure) if self.failure else None,
            "metadata": dict(self.metadata),
            "elapsed_ms": round(1000 * self.elapsed, 2),
        }
