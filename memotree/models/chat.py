"""Calls the chat model with a prompt and its data, and returns a checked answer.

The answer is requested as structured output. If the endpoint does not support that, a JSON object is requested, and if
it does not support that either, plain text. In all cases the first JSON object of the answer is used and checked. If it
is invalid, the model is asked once more and told what is wrong.
"""

from typing import Any, Final, Literal, TypeVar

import openai
from memotree_storage.model.tokens import count_tokens
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from pydantic import BaseModel, ValidationError

from memotree.models.chat_requests import Question
from memotree.models.endpoint import Endpoint
from memotree.models.meter import Meter, reported_or_counted
from memotree.models.model_errors import (
    BrokenAnswerError,
    MalformedRequestError,
    RequestTooLongError,
    UnusableAnswerError,
)
from memotree.models.parsing import first_object

_TURNS: Final = 2
_SHOWN: Final = 2_000

Format = Literal["json_schema", "json_object", "text"]
_FORMATS: Final[tuple[Format, ...]] = ("json_schema", "json_object", "text")

_M = TypeVar("_M", bound=BaseModel)
_Message = dict[str, str]


class Chat:
    """Calls the chat model of an endpoint; for one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._format: Format = "json_schema"
        self._sends_temperature = True

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._endpoint.model

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoint.close()

    async def ask(self, question: Question[_M], meter: Meter, *, optional: bool = False) -> _M:
        """Returns the checked answer to a question.

        Args:
            question: The question.
            meter: Counts the calls.
            optional: Whether the caller can do without the answer; such calls are not sent to an endpoint that is down.

        Raises:
            UnusableAnswerError: If the model refused, or gave an invalid answer twice.
            ModelUnavailableError: If the endpoint does not answer.
            ModelRefusedError: If the endpoint refuses the call.
            BudgetExhaustedError: If the meter's limit is reached.
        """
        messages: list[_Message] = [
            {"role": "system", "content": question.prompt.system},
            {"role": "user", "content": question.user},
        ]
        fault = ""
        for _ in range(_TURNS):
            text = await self._complete(messages, question, meter, optional=optional)
            answer, fault = _read(text, question)
            if answer is not None:
                return answer
            messages = [
                *messages[:2],
                {"role": "assistant", "content": text[:_SHOWN] or "{}"},
                {"role": "user", "content": f"That answer cannot be used: {fault} Answer again, with the JSON alone."},
            ]
        raise UnusableAnswerError(
            f"The chat model {self.model!r} gave no usable answer to {question.prompt.label}: {fault} Try again, or "
            "name another model in MEMOTREE_CHAT_MODEL."
        )

    async def _complete(self, messages: list[_Message], question: Question[_M], meter: Meter, *, optional: bool) -> str:
        """Returns the text of one completion, requested in the best format that the endpoint supports."""
        style, with_temperature = self._format, self._sends_temperature
        while True:
            try:
                text = await self._call(
                    messages, question, meter, style, with_temperature=with_temperature, optional=optional
                )
            except RequestTooLongError:
                raise
            except MalformedRequestError as error:
                if with_temperature and "temperature" in error.detail.lower():
                    with_temperature = False
                elif style != _FORMATS[-1]:
                    style = _FORMATS[_FORMATS.index(style) + 1]
                else:
                    raise
                continue
            # Remembered only after a call has succeeded.
            self._format, self._sends_temperature = style, with_temperature
            return text

    async def _call(
        self,
        messages: list[_Message],
        question: Question[_M],
        meter: Meter,
        style: Format,
        *,
        with_temperature: bool,
        optional: bool,
    ) -> str:
        options: dict[str, Any] = {"temperature": 0} if with_temperature else {}
        if style != "text":
            options["response_format"] = _response_format(style, question)
        read = sum(count_tokens(message["content"]) for message in messages)

        async def complete(client: openai.AsyncOpenAI) -> ChatCompletion:
            answer = await client.chat.completions.create(
                model=self.model,
                messages=messages,  # type: ignore[arg-type]  # plain dictionaries are what goes over the wire
                **options,
            )
            return _checked(answer)

        with meter.call("chat", self.model, read + question.answer_tokens) as call:
            completion = await self._endpoint.call(complete, optional=optional)
            content = completion.choices[0].message.content
            text = content if isinstance(content, str) else ""
            usage: Any = completion.usage
            call.answered(
                reported_or_counted(getattr(usage, "prompt_tokens", None), read),
                reported_or_counted(getattr(usage, "completion_tokens", None), count_tokens(text)),
            )
            self._endpoint.totals.add(call.used)
        _refuse_refusal(self.model, completion, question)
        return text


def _checked(answer: Any) -> ChatCompletion:
    """Checks that an answer is a completion with a choice; the SDK returns any JSON, and even text that is not JSON."""
    if not isinstance(answer, ChatCompletion):
        raise BrokenAnswerError("an answer that is not a completion")
    choice = answer.choices[0] if isinstance(answer.choices, list) and answer.choices else None
    if not isinstance(getattr(choice, "message", None), ChatCompletionMessage):
        raise BrokenAnswerError("an answer without choices")
    return answer


def _refuse_refusal(model: str, completion: ChatCompletion, question: Question[Any]) -> None:
    choice = completion.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise UnusableAnswerError(
            f"The chat model {model!r} refuses to answer {question.prompt.label} for this text. Name another model in "
            "MEMOTREE_CHAT_MODEL, or keep the built-in answer."
        )


def _read(text: str, question: Question[_M]) -> tuple[_M | None, str]:
    """Returns the answer in a text, or ``None`` and a sentence that says what is wrong with it."""
    found = first_object(text)
    if found is None:
        return None, "it holds no whole JSON object."
    try:
        answer = question.form.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return None, f"{'.'.join(map(str, first['loc'])) or 'the object'}: {first['msg']}."
    fault = question.fault(answer)
    return (None, fault) if fault else (answer, "")


def _response_format(style: Format, question: Question[Any]) -> dict[str, Any]:
    if style == "json_object":
        return {"type": "json_object"}
    schema = _closed(question.form.model_json_schema())
    return {"type": "json_schema", "json_schema": {"name": question.prompt.name, "strict": True, "schema": schema}}


_OUTSIDE_STRICT: Final = frozenset({"title", "default", "minLength", "description"})
"""Keywords that strict structured output rejects, or that cost tokens and add nothing."""


def _closed(schema: Any) -> Any:
    """Returns a schema as strict structured output needs it: every property is required, and no others are allowed."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: _closed(part) for name, part in value.items()} if key in {"properties", "$defs"} else _closed(value)
        for key, value in schema.items()
        if key not in _OUTSIDE_STRICT
    }
    if "properties" in closed:
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed
