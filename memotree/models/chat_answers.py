"""What models answer, as values: summaries, and the decisions of the loop that answers a question."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of at most 200 characters.

    Attributes:
        text: The summary, one line.
        made_by: What made it: ``extractive-1``, or a model and the version of the prompt (``gpt-x leaf_summary@1``).
        pending: Whether a chat model is configured and failed, so that the built-in one stands in until it answers.
    """

    text: str
    made_by: str
    pending: bool = False


@dataclass(frozen=True, slots=True)
class ContextNode:
    """A node as the loop shows it to the chat model.

    Attributes:
        node_id: Its id.
        node_type: ``LEAF_CHUNK`` or ``SUMMARY_NODE``; only the latter can be explored.
        summary: What it is about.
        hint: Why it is shown (``nearest common ancestor of several hits``).
        content: Its text, for a leaf whose summary is not enough.
    """

    node_id: str
    node_type: str
    summary: str
    hint: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The model can answer: its text, and the nodes that it says it relied on (all of them were shown to it)."""

    text: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explore:
    """The model wants to see what is below a node, and says why."""

    node_id: str
    reasoning: str


Decision = Answer | Explore
"""The next step of the loop."""
