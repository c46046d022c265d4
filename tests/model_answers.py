"""What the models of the test's endpoint say: every answer depends on the request alone, and on the fault of it."""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final

import numpy as np
from memotree_storage.index.terms import words_of

CHINESE: Final = "\u8fd9\u662f\u4e00\u4e2a\u7528\u4e2d\u6587\u5199\u7684\u6458\u8981\u3002"
ENGLISH: Final = "This is a summary that was written in English."

_SUM: Final = re.compile(r"\d+(?: *[-+*/^] *\d+)+")
"""Matches what the calculator is called with."""

_SUMMARY_WORDS: Final = 12
_CJK: Final = 0x2E80


class Fault(Enum):
    """A fault of one answer."""

    BUSY = auto()  # 429, with Retry-After if it is given
    BROKEN = auto()  # 500
    SLOW = auto()  # no answer for `seconds`
    CLOSED = auto()  # the connection ends without an answer
    CUT_BODY = auto()  # the connection ends in the middle of the answer
    HALF_JSON = auto()  # a whole answer whose body ends in the middle
    NO_JSON = auto()  # text in place of JSON
    UNAUTHORIZED = auto()  # 401
    UNKNOWN_MODEL = auto()  # 404
    NO_MONEY = auto()  # 429 insufficient_quota
    MALFORMED = auto()  # 400
    EMPTY_CHOICES = auto()  # chat
    REFUSAL = auto()  # chat
    FILTERED = auto()  # chat: finish_reason content_filter
    CUT_OFF = auto()  # chat: finish_reason length, half an object
    PROSE = auto()  # chat: an answer that is no JSON
    OTHER_LANGUAGE = auto()  # chat
    TOO_LONG = auto()  # chat: a summary of far more than 200 characters
    WRONG_DIMENSION = auto()  # embeddings
    TOO_FEW = auto()  # embeddings and ranking
    NAN = auto()  # embeddings and ranking
    RAW = auto()  # the body given to `reply_next`


def made_answer(body: dict[str, Any], fault: Fault | None) -> str | list[dict[str, Any]]:
    """What the model says when nothing was scripted."""
    last = next(part for part in reversed(body["messages"]) if part["role"] == "user")
    try:
        data = json.loads(last["content"])["input_data"]
    except ValueError:  # it is told what is wrong with its answer
        data = input_data(body)
    if "question" not in data:
        return _completion(input_data(body), fault)
    found = _SUM.search(data["question"])
    if "most_steps" in data:
        offered = {tool["name"] for tool in data["tools"]}
        step = {"tool": "calculator", "purpose": "Calculate it."}
        step["parameters_json"] = json.dumps({"expression": found[0] if found else ""})
        steps = [step] if found and "calculator" in offered else []
        return json.dumps({"strategy": "SINGLE_TOOL" if steps else "DIRECT", "steps": steps})
    results = [part for part in body["messages"] if part["role"] == "tool"]
    if results:
        return f"The result: {json.loads(results[-1]['content'])['quoted_data']}"
    if found and any(tool["function"]["name"] == "calculator" for tool in body.get("tools", ())):
        called = {"name": "calculator", "arguments": json.dumps({"expression": found[0]})}
        return [{"id": "made_0", "type": "function", "function": called}]
    passages = data["passages"]
    return f"{passages[0]['text']} [{passages[0]['node_id']}]" if passages else "Nothing is known about that."


def _completion(data: dict[str, Any], fault: Fault | None) -> str:
    if fault is Fault.PROSE:
        return "I am afraid that I have nothing to say in that form."
    if "user_query" in data:
        return json.dumps(_decision(data))
    if "text" in data:
        summary = first_words(data["text"])
    else:
        parts = data["child_summaries"]
        summary = " / ".join(first_words(part, _SUMMARY_WORDS // len(parts) + 3) for part in parts)
    if fault is Fault.OTHER_LANGUAGE:
        summary = ENGLISH if any(ord(character) >= _CJK for character in summary) else CHINESE
    if fault is Fault.TOO_LONG:
        summary = f"{summary}. " * 20
    return json.dumps({"summary": summary}, ensure_ascii=False)


def _decision(data: dict[str, Any]) -> dict[str, Any]:
    nodes = data["context_nodes"]
    leaves = [node for node in nodes if node["node_type"] != "SUMMARY_NODE"]
    if not leaves and nodes and "remaining_explorations" not in data:
        payload = {"node_id_to_explore": nodes[0]["node_id"], "reasoning_for_exploration": "more detail is needed"}
        return {"action": "EXPLORE", "payload": payload}
    known = leaves or nodes
    text = " ".join(node.get("content") or node["summary"] for node in known) or "Nothing is known about that."
    cited = [node["node_id"] for node in known]
    return {"action": "ANSWER", "payload": {"final_answer": text, "cited_node_ids": cited}}


def stream_pieces(completion: Any) -> Iterator[Any]:
    """The events of a completion as a stream: its words, and pieces of its calls."""
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    for choice in completion["choices"]:
        message = choice["message"]
        yield piece({"role": "assistant", "content": ""})
        for word in re.findall(r"\S+\s*|\s+", message["content"] or ""):
            yield piece({"content": word})
        for index, call in enumerate(message.get("tool_calls", ())):
            function, half = call["function"], len(call["function"]["arguments"]) // 2
            first = {**call, "index": index, "function": {**function, "arguments": function["arguments"][:half]}}
            yield piece({"tool_calls": [first]})
            yield piece({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"][half:]}}]})
        yield piece({}, choice["finish_reason"])
    yield {**head, "choices": [], "usage": completion["usage"]}
    yield "[DONE]"


def input_data(call: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a chat call, which the prompt refers to."""
    found: dict[str, Any] = json.loads(call["messages"][1]["content"])["input_data"]
    return found


def hashed(text: str, dimensions: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The unit vector of a text: its words, each counted at the place that its hash names."""
    vector = np.full(dimensions, 1e-3, dtype=np.float32)
    for word in words_of(text):
        vector[zlib.crc32(word.encode("utf-8", "replace")) % dimensions] += 1
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def first_words(text: str, count: int = _SUMMARY_WORDS) -> str:
    """The summary of a text: its first words, or its first characters when it has no blanks."""
    words = text.split()
    return " ".join(words[:count]) if len(words) > 1 else text.strip()[:60]
