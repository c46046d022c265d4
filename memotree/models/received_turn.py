"""Reads a turn of the chat model from a completion, or from the pieces of a streamed one; sizes are bounded."""

from collections.abc import Iterable
from typing import Any, Final

from memotree.models.function_calls import ChatTurn, FunctionCall
from memotree.models.model_errors import BrokenAnswerError

MOST_TEXT: Final = 400_000
"""The most characters of a turn's text; the turn counts as cut there."""

MOST_CALLS: Final = 32
"""The most calls of a turn; further ones are left out."""

MOST_ARGUMENTS: Final = 100_000
"""The most characters of the arguments of a call; those of a longer one are cut, and so no JSON any more."""

_CUT: Final = "length"
_REFUSED: Final = "content_filter"


class _Call:
    """A call whose pieces arrive."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments = ""

    def add(self, piece: Any) -> None:
        function = getattr(piece, "function", None)
        self.call_id = self.call_id or _text(getattr(piece, "id", None))
        self.name += _text(getattr(function, "name", None))
        self.arguments = (self.arguments + _text(getattr(function, "arguments", None)))[: MOST_ARGUMENTS + 1]


class ReceivedTurn:
    """A turn that is received: whole, or piece by piece."""

    def __init__(self) -> None:
        self.text = ""
        self.usage: Any = None
        self.has_refused = False
        self._finish = ""
        self._has_choice = False
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @property
    def is_full(self) -> bool:
        """Whether the text is as long as it may be, so that nobody need read on."""
        return len(self.text) >= MOST_TEXT

    def add(self, piece: Any) -> str:
        """Adds a piece of a stream, or a whole completion; returns the text that it adds."""
        self.usage = getattr(piece, "usage", None) or self.usage
        choices = getattr(piece, "choices", None)
        choice = choices[0] if isinstance(choices, list) and choices else None
        if choice is None:
            return ""
        self._has_choice = True
        self._finish = _text(getattr(choice, "finish_reason", None)) or self._finish
        said = getattr(choice, "delta", None) or getattr(choice, "message", None)
        if getattr(said, "refusal", None) or self._finish == _REFUSED:
            self.has_refused = True
        self._add_calls(getattr(said, "tool_calls", None) or ())
        added = _text(getattr(said, "content", None))[: MOST_TEXT - len(self.text)]
        self.text += added
        return added

    def turn(self) -> ChatTurn:
        """The turn.

        Raises:
            BrokenAnswerError: There was no choice, or the stream ended before the turn did.
        """
        if not self._has_choice:
            raise BrokenAnswerError("an answer without choices")
        if not self._finish and not self.is_full:
            raise BrokenAnswerError("an answer that ends in the middle")
        calls = tuple(FunctionCall(call.name, call.arguments) for call in self._calls[:MOST_CALLS])
        return ChatTurn(self.text, calls, is_cut=self.is_full or self._finish == _CUT)

    def _add_calls(self, pieces: Iterable[Any]) -> None:
        """Adds pieces of calls. Some endpoints give all calls the index 0, or none; then a new id begins a call."""
        for piece in pieces:
            index = getattr(piece, "index", None)
            call_id = _text(getattr(piece, "id", None))
            known = self._calls[-1] if index is None and self._calls else self._by_index.get(index or 0)
            if known is None or (call_id and known.call_id and call_id != known.call_id):
                if len(self._calls) > MOST_CALLS:
                    continue
                known = _Call()
                self._calls.append(known)
                self._by_index[index or 0] = known
            known.add(piece)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
