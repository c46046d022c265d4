"""The questions to the chat model: the data of each prompt, the schema of its answer, and the check of an answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from memotree_storage.model.tokens import count_tokens, truncate_to_tokens
from pydantic import BaseModel, ConfigDict, Field

from memotree.models import prompts
from memotree.models.chat_answers import ContextNode
from memotree.models.extractive import fitted
from memotree.models.language import differs_in_script
from memotree.models.prompts import Prompt

_SUMMARY_TOKENS: Final = 8_000
"""The most tokens of a text that are given to the model for a summary."""

_SUMMARY_NODE: Final = "SUMMARY_NODE"
_OTHER_LANGUAGE: Final = "it is in another language than the input; write it in the language of the input."

_M = TypeVar("_M", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class SummaryAnswer(_Strict):
    """The output of `leaf_summary` and `parent_summary`."""

    summary: str = Field(min_length=1)


class AnswerPayload(_Strict):
    """The payload of ANSWER."""

    final_answer: str = Field(min_length=1)
    cited_node_ids: list[str] = Field(default_factory=list)


class ExplorePayload(_Strict):
    """The payload of EXPLORE."""

    node_id_to_explore: str = Field(min_length=1)
    reasoning_for_exploration: str = ""


class LoopAnswer(_Strict):
    """The output of `agentic_loop`."""

    action: Literal["ANSWER", "EXPLORE"]
    payload: AnswerPayload | ExplorePayload


@dataclass(frozen=True, slots=True)
class Question(Generic[_M]):
    """A question to the chat model.

    Attributes:
        prompt: The instructions.
        data: The input data, as JSON.
        form: The schema of the answer.
        fault: Returns what is wrong with an answer that matches the schema, as a sentence for the model; ``""`` if
            nothing is.
        answer_tokens: The expected length of the answer in tokens; for the budget.
    """

    prompt: Prompt
    data: Mapping[str, Any]
    form: type[_M]
    fault: Callable[[_M], str]
    answer_tokens: int = 150

    @property
    def user(self) -> str:
        """The message with the data. An answer depends only on this, the prompt and the model."""
        return self.prompt.user(self.data)


def leaf_question(text: str) -> Question[SummaryAnswer]:
    """Returns the question for the summary of a text."""
    cut = truncate_to_tokens(text, _SUMMARY_TOKENS)
    return _summary_question(prompts.LEAF_SUMMARY, {"text": cut}, cut)


def parent_question(summaries: Sequence[str]) -> Question[SummaryAnswer]:
    """Returns the question for the summary of a node from those of its children, in order, as many as there is room."""
    fitting: list[str] = []
    room = _SUMMARY_TOKENS
    for summary in summaries:
        fitting.append(truncate_to_tokens(summary, room))
        room -= count_tokens(fitting[-1])
        if room <= 0:
            break
    return _summary_question(prompts.PARENT_SUMMARY, {"child_summaries": fitting}, " ".join(fitting))


def _summary_question(prompt: Prompt, data: Mapping[str, object], source: str) -> Question[SummaryAnswer]:
    def fault(answer: SummaryAnswer) -> str:
        if not fitted(answer.summary):
            return "the summary is empty."
        return _OTHER_LANGUAGE if differs_in_script(source, answer.summary) else ""

    return Question(prompt, data, SummaryAnswer, fault)


def loop_question(query: str, nodes: Sequence[ContextNode], *, must_answer: bool) -> Question[LoopAnswer]:
    """Returns the question for the next step to answer a query; with ``must_answer`` only ANSWER is valid."""
    shown = [
        {
            "node_id": node.node_id,
            "node_type": node.node_type,
            "summary": node.summary,
            "hint": node.hint,
            **({"content": node.content} if node.content else {}),
        }
        for node in nodes
    ]
    data: dict[str, object] = {"user_query": query, "context_nodes": shown}
    if must_answer:
        data["remaining_explorations"] = 0
    explorable = {node.node_id for node in nodes if node.node_type == _SUMMARY_NODE}

    def fault(answer: LoopAnswer) -> str:
        payload = answer.payload
        if isinstance(payload, AnswerPayload) != (answer.action == "ANSWER"):
            return f"the payload is not the one of {answer.action}."
        if isinstance(payload, ExplorePayload) and must_answer:
            return "nothing can be explored any more; use ANSWER with what is known, and say what is missing."
        if isinstance(payload, ExplorePayload) and payload.node_id_to_explore not in explorable:
            return "node_id_to_explore must be the node_id of a context node of the type SUMMARY_NODE."
        return ""

    return Question(prompts.AGENTIC_LOOP, data, LoopAnswer, fault, answer_tokens=500)
