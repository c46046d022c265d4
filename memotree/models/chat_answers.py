"""The values that models return: summaries, and the decisions of the loop that answers a question."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of at most 200 characters.

    Attributes:
        text: The summary, one line.
        made_by: Its author: ``extractive-1``, or a model and the version of the prompt (``gpt-x leaf_summary@1``).
        pending: Whether a chat model is configured but failed, so that this is the built-in summary for the time being.
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
        summary: Its summary.
        hint: Why it is shown (``nearest common ancestor of several hits``).
        content: Its text if it is a leaf whose summary is not enough.
    """

    node_id: str
    node_type: str
    summary: str
    hint: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The model answers: the text, and the ids of the nodes that it cites, all of which it was shown."""

    text: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explore:
    """The model asks for the children of a node, and says why."""

    node_id: str
    reasoning: str


Decision = Answer | Explore
"""The next step of the loop."""
