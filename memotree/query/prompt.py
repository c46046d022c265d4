"""What the model reads: the question with what recall found, the turns before, and the results of tools.

Every text that comes from the store, from files or from the web is a value in a JSON object, so that no text can end
its quotation, and stands under a key that the system message names as quoted data.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from memotree_storage.model.tokens import count_tokens, truncate_to_tokens
from memotree_storage.postgres.conversations import ConversationTurn

from memotree.forest.recall.answers import as_asked
from memotree.gateways.results import Result
from memotree.models import prompts
from memotree.models.function_calls import FunctionCall, Message
from memotree.v1 import forest_service_pb2 as forest

RESULT_TOKENS: Final = 3000
"""The most tokens of the result of a call that the model reads."""

EARLIER_TOKENS: Final = 4000
"""The most tokens of the earlier turns of a conversation that the model reads."""

_LEAST_TOKENS: Final = 200
"""A turn for which there is less room than this is left out."""

_LONGEST_NAME: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


def first_messages(
    question: str, recalled: forest.RecallResponse, earlier: Sequence[ConversationTurn] = ()
) -> list[Message]:
    """The messages before the first turn of the model."""
    messages: list[Message] = [{"role": "system", "content": prompts.QUERY.system}]
    for turn in _fitting(earlier):
        messages.append({"role": "user", "content": prompts.QUERY.user({"question": turn.question})})
        messages.append({"role": "assistant", "content": turn.answer})
    data = {"question": question, "passages": list(passages(recalled))}
    messages.append({"role": "user", "content": prompts.QUERY.user(data)})
    return messages


def passages(recalled: forest.RecallResponse) -> Iterator[dict[str, str]]:
    """What recall found, as the model reads it; for a question about the past with what was said before."""
    for node in nodes_of(recalled):
        text = as_asked(node.node.content or node.node.summary, node, recalled)
        yield {"node_id": node.node.id, "title": node.node.title, "text": text}


def nodes_of(recalled: forest.RecallResponse) -> Iterator[forest.RecalledNode]:
    """The nodes that recall found."""
    for passage in recalled.passages:
        yield from passage.nodes
    yield from recalled.nodes


def asked_message(text: str, calls: Sequence[tuple[str, FunctionCall, bool]]) -> Message:
    """The turn of the model in which it asked for calls.

    Args:
        text: What it said about them.
        calls: The id of each call, the call, and whether its arguments are a JSON object. Some endpoints fail on a
            history with others, or with names that no function can have, so these are replaced.
    """
    return {
        "role": "assistant",
        "content": _clean(text) or None,
        "tool_calls": [
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": _NOT_IN_NAMES.sub("_", call.name)[:_LONGEST_NAME] or "unnamed",
                    "arguments": _clean(call.arguments) if is_object else "{}",
                },
            }
            for call_id, call, is_object in calls
        ],
    }


def result_message(call_id: str, result: Result) -> Message:
    """The result of a call, cut to what the model may read of it."""
    if result.failure is not None:
        told: dict[str, Any] = {"success": False, "error": result.failure.code}
    else:
        told = {"success": True}
    told["quoted_data"] = cut(result.text)
    return {"role": "tool", "tool_call_id": call_id, "content": _clean(json.dumps(told, ensure_ascii=False))}


def cut(text: str) -> str:
    """A text of at most `RESULT_TOKENS`, which says so if it was cut."""
    short = truncate_to_tokens(text, RESULT_TOKENS)
    if len(short) == len(text):
        return text
    return f"{short}…\n[Cut: {len(text) - len(short):,} more characters are not shown. Ask for less at once.]"


def _fitting(earlier: Sequence[ConversationTurn]) -> list[ConversationTurn]:
    """The last turns for which there is room; the first of them is shortened to the room that is left for it."""
    found: list[ConversationTurn] = []
    room = EARLIER_TOKENS
    for turn in reversed(earlier):
        size = count_tokens(turn.question) + count_tokens(turn.answer)
        if size > room:
            if room >= _LEAST_TOKENS:
                found.append(_shortened(turn, room))
            break
        found.append(turn)
        room -= size
    return found[::-1]


def _shortened(turn: ConversationTurn, room: int) -> ConversationTurn:
    """A turn of about as many tokens as there is room for; its question has half of them at most."""
    question = _beginning(turn.question, room // 2)
    return ConversationTurn(question, _beginning(turn.answer, room - count_tokens(question)))


def _beginning(text: str, budget: int) -> str:
    short = truncate_to_tokens(text, budget)
    return text if len(short) == len(text) else f"{short}…"


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
