"""Counts the model calls and tokens of a piece of work by kind and model, and stops it at a limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from memotree_storage.errors import TooLargeError

Kind = Literal["chat", "embedding", "rerank"]
"""The kinds of models."""

_MOST_WARNINGS: Final = 20


class BudgetExhaustedError(TooLargeError):
    """The next model call would exceed the budget of this work."""

    reason = "MODEL_BUDGET_EXHAUSTED"
    stops_job = True


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one model.

    Attributes:
        kind: "chat", "embedding" or "rerank".
        model: Its name.
        calls: Calls that it answered.
        prompt_tokens: Tokens that it read, as its endpoint reports, or by MemoTree's counter if it reports none.
        completion_tokens: Tokens that it wrote, counted in the same way.
        cached: Texts that were answered from the cache.
    """

    kind: Kind
    model: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Returns the sum of both."""
        return replace(
            self,
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached=self.cached + other.cached,
        )


def reported_or_counted(reported: Any, counted: int) -> int:
    """Returns the number of tokens that an endpoint reports if it is plausible, else our own count."""
    return reported if isinstance(reported, int) and reported > 0 else counted


class PlannedCall:
    """One call in progress; its caller reports what it used with `answered`."""

    def __init__(self) -> None:
        self.used: tuple[int, int] | None = None

    def answered(self, prompt_tokens: int, completion_tokens: int = 0) -> None:
        """Records that the model answered, and the tokens that it used."""
        self.used = (prompt_tokens, completion_tokens)


class Meter:
    """Counts the model calls of one piece of work; for one event loop.

    Args:
        max_tokens: The most tokens that models may read and write for it; 0 for no limit.
        spent: Tokens of earlier attempts that are reported elsewhere; they count against the limit but not as usage.
    """

    def __init__(self, *, max_tokens: int = 0, spent: int = 0) -> None:
        self._spent = spent
        self._max_tokens = max_tokens
        self._used: dict[tuple[Kind, str], Usage] = {}
        self._tokens_ahead = 0
        self._warnings: dict[str, None] = {}

    @property
    def usage(self) -> list[Usage]:
        """The usage so far, ordered by kind and model."""
        return [self._used[key] for key in sorted(self._used)]

    @property
    def tokens(self) -> int:
        """The number of tokens so far, of all models."""
        return sum(usage.tokens for usage in self._used.values())

    @property
    def left(self) -> int | None:
        """The tokens that may still be used, beside those that are reserved; ``None`` without a limit."""
        return self._max_tokens - self._spent - self.tokens - self._tokens_ahead if self._max_tokens else None

    @property
    def warnings(self) -> list[str]:
        """The warnings for a person, each once, such as models that failed and were replaced by built-in ones."""
        return list(self._warnings)

    @contextmanager
    def call(self, kind: Kind, model: str, estimate: int) -> Iterator[PlannedCall]:
        """Reserves one call, which is counted if it is answered.

        Args:
            kind: The kind of the model.
            model: The name of the model.
            estimate: The tokens that the call may need; they are reserved while it is in progress.

        Raises:
            BudgetExhaustedError: If the call would exceed the limit.
        """
        self._check(estimate)
        planned = PlannedCall()
        self._tokens_ahead += estimate
        try:
            yield planned
        finally:
            self._tokens_ahead -= estimate
            if planned.used is not None:
                read, wrote = planned.used
                self._add(Usage(kind, model, calls=1, prompt_tokens=read, completion_tokens=wrote))

    def cached(self, kind: Kind, model: str, count: int = 1) -> None:
        """Counts texts that were answered from the cache."""
        if count:
            self._add(Usage(kind, model, cached=count))

    def warn(self, sentence: str) -> None:
        """Adds a warning for a person; a repeated sentence is kept once."""
        if len(self._warnings) < _MOST_WARNINGS:
            self._warnings[sentence] = None

    def _add(self, usage: Usage) -> None:
        key = (usage.kind, usage.model)
        known = self._used.get(key)
        self._used[key] = usage if known is None else known.plus(usage)

    def _check(self, estimate: int) -> None:
        if self.left is not None and estimate > self.left:
            raise BudgetExhaustedError(
                f"The next model call would exceed the budget of {self._max_tokens:,} tokens. All results so far are "
                "kept; resume the work with a greater budget."
            )
