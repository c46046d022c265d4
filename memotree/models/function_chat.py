"""Calls the chat model with functions that it may ask to call, and returns its turn; streams its text if asked to.

Parameters that an endpoint does not take (a temperature, for one) are left out from the call that it refuses on. What
it refuses because of the value is left out of that call alone.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import openai
from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.model.tokens import count_tokens
from openai.types.chat import ChatCompletion

from memotree.models.endpoint import Endpoint
from memotree.models.function_calls import ChatTurn, Message, OnText, TurnOptions
from memotree.models.meter import Meter, reported_or_counted
from memotree.models.model_errors import (
    BrokenAnswerError,
    MalformedRequestError,
    ModelRefusedError,
    ModelUnavailableError,
    RequestTooLongError,
    UnusableAnswerError,
)
from memotree.models.received_turn import ReceivedTurn

_ANSWER_TOKENS: Final = 500
"""The expected tokens of a turn, for the budget."""

_OPTIONAL: Final = ("temperature", "stream_options", "tool_choice", "max_completion_tokens", "max_tokens")
"""Parameters that some endpoints refuse; in place of ``max_tokens`` newer ones take ``max_completion_tokens``."""

_NOT_TAKEN: Final = ("unsupported", "not support", "unknown", "unrecognized", "not permitted", "max_completion_tokens")
"""Words in the message of an endpoint that does not take a parameter, whatever its value is."""

_FUNCTIONS: Final = ("tool", "function")
"""Words in the message of an endpoint that refuses functions."""


class ToolsUnsupportedError(ModelRefusedError):
    """The chat model does not take functions."""

    reason = "TOOLS_UNSUPPORTED"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The chat model {model!r} does not take tools. Ask without them (tools_enabled: false), or name a model "
            "with function calling in MEMOTREE_CHAT_MODEL."
        )


class TurnBrokenOffError(ModelUnavailableError):
    """A turn broke off after some of its text was passed on, so that it cannot be asked for again unnoticed."""

    reason = "MODEL_TURN_BROKEN_OFF"


class FunctionChat:
    """Calls the chat model of an endpoint; for one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._refused: frozenset[str] = frozenset()
        self._too_many = sys.maxsize
        """A number of tokens that the endpoint refuses because no answer may be so long."""

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._endpoint.model

    async def turn(
        self, messages: Sequence[Message], options: TurnOptions, meter: Meter, on_text: OnText | None = None
    ) -> ChatTurn:
        """Returns the next turn of the model.

        Args:
            messages: The conversation so far.
            options: How it is asked for.
            meter: Counts the calls.
            on_text: Receives the text as it is written; without it the endpoint need not stream.

        Raises:
            ToolsUnsupportedError: If the model does not take functions.
            UnusableAnswerError: If the model refused.
            TurnBrokenOffError: If it broke off after text had been passed on.
            ModelUnavailableError: If the endpoint does not answer.
            ModelRefusedError: If the endpoint refuses the call.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        sent = json.dumps([messages, list(options.functions)], ensure_ascii=False)
        read = await in_thread_if_long(len(sent), count_tokens, sent)
        refused, left_out = self._refused, frozenset[str]()
        while True:
            most = self._most_written(options, meter, read)
            parameters = _parameters(options, refused | left_out, most, streams=on_text is not None)
            try:
                turn = await self._call(messages, parameters, meter, on_text, read, options.max_tokens)
            except MalformedRequestError as error:
                detail = error.detail.lower()
                named = next((name for name in _OPTIONAL if name in parameters and name in detail), None)
                if named is None and _refuses_functions(error, options, messages):
                    raise ToolsUnsupportedError(self.model) from None
                if named is None:
                    raise
                if _is_never_taken(named, detail, options):
                    refused |= {named}
                else:
                    left_out |= {named}
                    if named == "max_completion_tokens" and not options.max_tokens:
                        self._too_many = min(self._too_many, most)
                continue
            self._refused |= refused  # only after a call has succeeded
            if options.temperature and "temperature" in refused | left_out:
                meter.warn(f"The chat model {self.model!r} does not take this temperature; it used its own.")
            return turn

    def _most_written(self, options: TurnOptions, meter: Meter, read: int) -> int:
        """Returns how many tokens the model may write; 0 for its own limit."""
        left = None if meter.left is None else max(meter.left - read, 1)
        if options.max_tokens:
            return options.max_tokens if left is None else min(options.max_tokens, left)
        return left if left is not None and left < self._too_many else 0

    async def _call(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        meter: Meter,
        on_text: OnText | None,
        read: int,
        max_tokens: int,
    ) -> ChatTurn:
        received = ReceivedTurn()

        async def ask(client: openai.AsyncOpenAI) -> tuple[ReceivedTurn, ChatTurn]:
            nonlocal received
            if received.text and on_text is not None:
                raise TurnBrokenOffError(
                    f"The chat model {self.model!r} broke off in the middle of its text. Send the same question again."
                )
            received = ReceivedTurn()
            answer: Any = await client.chat.completions.create(
                model=self.model,
                messages=messages,  # type: ignore[arg-type]  # plain dictionaries are what goes over the wire
                **parameters,
            )
            if on_text is None:
                if not isinstance(answer, ChatCompletion):
                    raise BrokenAnswerError("an answer that is not a completion")
                received.add(answer)
                return received, received.turn()
            async with answer as pieces:
                async for piece in pieces:
                    if added := received.add(piece):
                        await on_text(added)
                    if received.is_full:
                        break
            return received, received.turn()

        with meter.call("chat", self.model, read + (max_tokens or _ANSWER_TOKENS)) as call:
            received, turn = await self._endpoint.call(ask)
            written = turn.text + "".join(f"{each.name}{each.arguments}" for each in turn.calls)
            call.answered(
                reported_or_counted(getattr(received.usage, "prompt_tokens", None), read),
                reported_or_counted(getattr(received.usage, "completion_tokens", None), count_tokens(written)),
            )
            self._endpoint.totals.add(call.used)
        if received.has_refused:
            raise UnusableAnswerError(
                f"The chat model {self.model!r} refuses to answer this question. Ask it in other words, or name "
                "another model in MEMOTREE_CHAT_MODEL."
            )
        return turn


def _parameters(options: TurnOptions, refused: frozenset[str], most: int, *, streams: bool) -> dict[str, Any]:
    """The parameters of a call that may write so many tokens (0: the model's limit), without those that are refused."""
    found: dict[str, Any] = {"temperature": options.temperature}
    if options.functions:
        found |= {"tools": list(options.functions), "tool_choice": "auto" if options.may_call else "none"}
    if most:
        found["max_completion_tokens" if "max_tokens" in refused else "max_tokens"] = most
    if streams:
        found |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in found.items() if name not in refused}


def _is_never_taken(name: str, detail: str, options: TurnOptions) -> bool:
    """Whether an endpoint that has refused a parameter refuses it with other values, too."""
    if name == "temperature":
        return not options.temperature  # another one may be out of the endpoint's range
    return name != "max_completion_tokens" and (name != "max_tokens" or any(words in detail for words in _NOT_TAKEN))


def _refuses_functions(error: MalformedRequestError, options: TurnOptions, messages: Sequence[Message]) -> bool:
    """Whether an endpoint takes no functions; one that has called some does take them."""
    if not options.functions or isinstance(error, RequestTooLongError):
        return False
    has_called = any(message["role"] == "tool" for message in messages)
    return not has_called and any(word in error.detail.lower() for word in _FUNCTIONS)
