"""What a piece of work asks of models: calls and tokens per kind and model, and a limit that stops it cleanly."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from memotree_storage.errors import TooLargeError

Kind = Literal["chat", "embedding", "rerank"]
"""The kinds of models."""

_MOST_WARNINGS: Final = 20


class BudgetExhaustedError(TooLargeError):
    """The next call of a model would exceed the budget of this work."""

    reason = "MODEL_BUDGET_EXHAUSTED"
    stops_job = True


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model was asked for.

    Attributes:
        kind: "chat", "embedding" or "rerank".
        model: Its name.
        calls: Calls that it answered.
        prompt_tokens: Tokens that it read, as it says, or as MemoTree counts when it does not.
        completion_tokens: Tokens that it wrote.
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
        """Both together."""
        return replace(
            self,
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached=self.cached + other.cached,
        )


def told_or_counted(told: Any, counted: int) -> int:
    """The tokens that an endpoint says, when it says a number that can be one."""
    return told if isinstance(told, int) and told > 0 else counted


class PlannedCall:
    """One call that is under way; whoever makes it says what it used."""

    def __init__(self) -> None:
        self.used: tuple[int, int] | None = None

    def answered(self, prompt_tokens: int, completion_tokens: int = 0) -> None:
        """The model answered, and counted so many tokens."""
        self.used = (prompt_tokens, completion_tokens)


class Meter:
    """Counts the model calls of one piece of work; for one event loop.

    Args:
        max_tokens: The most tokens that models may read and write for it; 0 is no limit.
        spent: Tokens of earlier attempts that are told elsewhere; they count against the limit and are no usage here.
    """

    def __init__(self, *, max_tokens: int = 0, spent: int = 0) -> None:
        self._spent = spent
        self._max_tokens = max_tokens
        self._used: dict[tuple[Kind, str], Usage] = {}
        self._tokens_ahead = 0
        self._warnings: dict[str, None] = {}

    @property
    def usage(self) -> list[Usage]:
        """What was used so far, by kind and model."""
        return [self._used[key] for key in sorted(self._used)]

    @property
    def tokens(self) -> int:
        """Tokens so far, of all models."""
        return sum(usage.tokens for usage in self._used.values())

    @property
    def warnings(self) -> list[str]:
        """What a person should know: each model that failed and what stood in for it, once."""
        return list(self._warnings)

    @contextmanager
    def call(self, kind: Kind, model: str, estimate: int) -> Iterator[PlannedCall]:
        """The place of one call, which counts once it was answered.

        Args:
            kind: Of the model.
            model: Its name.
            estimate: How many tokens the call may need; they are set aside while it is under way.

        Raises:
            BudgetExhaustedError: The call would exceed the limit.
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
        """So many texts were answered from the cache."""
        if count:
            self._add(Usage(kind, model, cached=count))

    def warn(self, sentence: str) -> None:
        """Note something that a person should know; the same sentence stands once."""
        if len(self._warnings) < _MOST_WARNINGS:
            self._warnings[sentence] = None

    def _add(self, usage: Usage) -> None:
        key = (usage.kind, usage.model)
        known = self._used.get(key)
        self._used[key] = usage if known is None else known.plus(usage)

    def _check(self, estimate: int) -> None:
        if self._max_tokens and self._spent + self.tokens + self._tokens_ahead + estimate > self._max_tokens:
            raise BudgetExhaustedError(
                f"The next model call would exceed the budget of {self._max_tokens:,} tokens. What was made so far is "
                "kept; resume the work with a greater budget."
            )
