"""Finds the JSON object in the answer of a chat model, whatever text surrounds it."""

import json
import re
from itertools import islice
from typing import Any, Final

_LONGEST: Final = 1 << 17
_FENCE: Final = re.compile(r"```(?:json)?\s*(?=\{)")
_MOST_TRIES: Final = 100
_decoder: Final = json.JSONDecoder(strict=False)  # models write line breaks into strings


def first_object(text: str) -> dict[str, Any] | None:
    """Returns the first whole JSON object in a text, fenced or not; ``None`` if there is none.

    Prefers the text after ``<think>…</think>``, because the model's thoughts may contain an object, too.
    """
    text = text[:_LONGEST]
    _, closed, answer = text.rpartition("</think>")
    for part in (answer, text) if closed else (text,):
        found = _fenced(part) or _anywhere(part)
        if found is not None:
            return found
    return None


def _fenced(text: str) -> dict[str, Any] | None:
    fences = islice(_FENCE.finditer(text), _MOST_TRIES)
    return next(filter(None, (_at_start(text[fence.end() :]) for fence in fences)), None)


def _anywhere(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    for _ in range(_MOST_TRIES):
        if start < 0:
            return None
        found = _at_start(text[start:])
        if found is not None:
            return found
        start = text.find("{", start + 1)
    return None


def _at_start(text: str) -> dict[str, Any] | None:
    try:
        value, _ = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
