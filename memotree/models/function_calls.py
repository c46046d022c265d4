"""What the chat model is told and tells when it may call functions. These are values; they import no SDK."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
"""A message of OpenAI's chat completions."""

Function = Mapping[str, Any]
"""A function as the protocol describes it: ``{"type": "function", "function": {name, description, parameters}}``."""

OnText = Callable[[str], Awaitable[None]]
"""Receives the text of the model piece by piece."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call that the model asks for; it may name a function that there is not, with arguments that are no JSON.

    Attributes:
        name: The name of the function.
        arguments: The arguments; should be the text of a JSON object.
    """

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn of the model.

    Attributes:
        text: Its text; with calls, what it says about them.
        calls: The calls that it asks for; none if the text is its answer.
        is_cut: Whether the text ends at a limit of tokens.
    """

    text: str
    calls: tuple[FunctionCall, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How a turn is asked for.

    Attributes:
        functions: The functions.
        may_call: Whether the model may ask for calls; otherwise it must write text.
        temperature: How freely it chooses its words, from 0 to 2.
        max_tokens: The most tokens that it may write; its own limit if 0.
    """

    functions: Sequence[Function] = ()
    may_call: bool = True
    temperature: float = 0.0
    max_tokens: int = 0
