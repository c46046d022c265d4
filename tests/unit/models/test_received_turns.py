"""Turns of the chat model with calls, as endpoints send them: whole, in pieces, and in odd pieces."""

from types import SimpleNamespace
from typing import Any

import pytest

from memotree.models.function_calls import FunctionCall
from memotree.models.model_errors import BrokenAnswerError
from memotree.models.received_turn import MOST_ARGUMENTS, MOST_CALLS, MOST_TEXT, ReceivedTurn

pytestmark = pytest.mark.requirement("TOOL-9")


def piece(
    *calls: tuple[int | None, str | None, str | None, str | None], text: Any = None, finish: str | None = None
) -> Any:
    """A piece with parts of calls, each with its index, id, name and arguments."""
    parts = [
        SimpleNamespace(index=index, id=call_id, function=SimpleNamespace(name=name, arguments=arguments))
        for index, call_id, name, arguments in calls
    ]
    delta = SimpleNamespace(content=text, tool_calls=parts, refusal=None)
    return SimpleNamespace(choices=[SimpleNamespace(delta=delta, message=None, finish_reason=finish)], usage=None)


def received(*pieces: Any) -> ReceivedTurn:
    turn = ReceivedTurn()
    for each in pieces:
        turn.add(each)
    return turn


@pytest.mark.parametrize(
    "pieces",
    [
        [piece((0, "a", "add", "{"), (1, "b", "sub", "[")), piece((0, None, None, "}")), piece((1, None, None, "]"))],
        [piece((0, "a", "add", "{}"), (1, "b", "sub", "[]"))],
        [piece((0, "a", "add", "{}")), piece((0, "b", "sub", "[]"))],  # all with one index
        [
            piece((None, "a", "add", "{")),
            piece((None, None, None, "}")),
            piece((None, "b", "sub", "[]")),
        ],  # without
    ],
)
def test_calls_are_put_together_from_their_pieces(pieces: list[Any]) -> None:
    turn = received(*pieces, piece(finish="tool_calls")).turn()
    assert turn.calls == (FunctionCall("add", "{}"), FunctionCall("sub", "[]"))


def test_what_is_no_text_is_none_and_a_refusal_is_noted() -> None:
    turn = received(piece((0, None, None, None), text=5), piece(text=["x"], finish="stop")).turn()
    assert (turn.text, turn.calls) == ("", (FunctionCall("", ""),))
    assert received(piece(finish="content_filter")).has_refused


def test_a_turn_without_choices_or_without_an_end_is_broken() -> None:
    with pytest.raises(BrokenAnswerError, match="without choices"):
        received(SimpleNamespace(choices=[], usage=None)).turn()
    with pytest.raises(BrokenAnswerError, match="in the middle"):
        received(piece(text="Half an ans")).turn()


def test_sizes_are_bounded() -> None:
    long = received(piece(text="x" * MOST_TEXT), piece(text="more"))
    assert long.is_full
    assert (len(long.turn().text), long.turn().is_cut) == (MOST_TEXT, True)
    many = received(*(piece((number, f"id{number}", "f", "{}")) for number in range(1000)), piece(finish="stop"))
    assert len(many.turn().calls) == MOST_CALLS
    wide = received(*[piece((0, "a", None, "[" * 50_000))] * 9, piece(finish="stop"))
    assert len(wide.turn().calls[0].arguments) == MOST_ARGUMENTS + 1
