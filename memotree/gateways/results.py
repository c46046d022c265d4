"""The result format of tools, the same over every generic interface; over MCP in short unless the whole is wanted."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from memotree.client.errors import MemoTreeClientError
from memotree.gateways.answer_parts import NEXT_PART

_MOST_OF_A_FACT: Final = 64
"""A longer text of an answer is left out of its short form, in characters."""

NEXT_PAGE: Final = "next_page_token"
_TEXTS: Final = frozenset({"text", "content", "markdown"})
"""What the message says anyway."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a tool failed.

    Attributes:
        code: The stable error code, UPPER_SNAKE.
        status: Its family, the name of a gRPC status.
        message: A sentence that says what to do next.
        details: Further details: ``violations`` by field, ``conflicts``, candidate or missing ``nodes``, ``metadata``,
            ``retry_after`` (seconds) if the same call may be sent again.
    """

    code: str
    status: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: MemoTreeClientError) -> "Failure":
        """The failure for an error; without a reason (the server was not reached), the code is the gRPC status."""
        details: dict[str, Any] = {
            "violations": [asdict(each) for each in error.violations],
            "conflicts": [each.in_words() for each in error.conflicts],
            "nodes": [{"id": node.id, "type": node.type, "title": node.title} for node in error.nodes],
            "metadata": dict(error.metadata),
            "retry_after": error.retry_after,
        }
        return cls(
            error.reason or error.code,
            error.code,
            error.message,
            {name: each for name, each in details.items() if each},
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call.

    Attributes:
        message: One sentence for a person; if the call failed, what to do next.
        text: The text for a language model: the answer in short, or why the call failed.
        data: The response of the RPC as JSON; ``None`` if the call failed without one.
        warnings: Warnings of a call that succeeded.
        failure: Why it failed; ``None`` if it succeeded.
        metadata: The tool, and the workspace of the call.
        elapsed: The duration in seconds.
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
        """Whether the call succeeded."""
        return self.failure is None

    def in_short(self) -> dict[str, Any]:
        """The text with ids, names and states for a program, as JSON.

        Some hosts show their model the structure alone, and a model pays for each token of it.
        """
        found: dict[str, Any] = {"success": self.success, "message": self.text}
        facts = {name: fact for name, value in (self.data or {}).items() if (fact := _fact(name, value)) is not None}
        if facts:
            found["data"] = facts
        if self.failure is not None:
            found["error"] = {"code": self.failure.code, "status": self.failure.status}
            if wait := self.failure.details.get("retry_after"):
                found["error"]["retry_after"] = wait
        return found

    def to_json(self) -> dict[str, Any]:
        """The result as JSON; every key is always present."""
        return {
            "success": self.success,
            "message": self.message,
            "data": self.data,
            "warnings": list(self.warnings),
            "error": asdict(self.failure) if self.failure else None,
            "metadata": dict(self.metadata),
            "elapsed_ms": round(1000 * self.elapsed, 2),
        }


def _fact(name: str, value: Any) -> Any:
    if name in {NEXT_PAGE, NEXT_PART}:
        return value or None
    if isinstance(value, Mapping):
        return None if (known := _fact("id", value.get("id"))) is None else {"id": known}
    is_short = isinstance(value, str) and 0 < len(value) <= _MOST_OF_A_FACT
    return value if is_short and name not in _TEXTS else None
