"""The context of the loop that answers a question: what the model is shown, may explore and can cite.

Nothing here reads a store or calls a model; `ask.py` does both. Whatever a document says, a model can only refer to
nodes that it was shown: every id that it gives is looked up here, and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

from memotree_storage.index.terms import words_of
from memotree_storage.model.provenance import shown_summary
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens

from memotree.models.chat_answers import ContextNode
from memotree.v1 import types_pb2

LEAF: Final = "LEAF_CHUNK"
INNER: Final = "SUMMARY_NODE"
"""The names of the two kinds of nodes in the loop's prompt (the seed's)."""

_KEYS_TOKENS: Final = 28
"""The tokens of a node's keys, id and type in the prompt."""

_FULL_SHARE: Final = 0.75
"""The share of the budget for nodes in full; the rest is for the outlines of all others."""

_LEAST_CUT: Final = 60
"""A text is cut only if at least this many tokens of it remain."""

_MOST_CITED: Final = 3
"""The most leaves that are cited if the model names none."""

_LEAST_SHARED: Final = 3.0
"""The weight of words that a further leaf must add to those before it: more than that of a single rare word."""


@dataclass(slots=True)
class Shown:
    """A node that the model is shown.

    Attributes:
        node: The node with its summary.
        content: Its own text; empty for a node whose content is derived from its leaves.
        hint: Why it is shown.
        score: How well it matches the question, compared with other nodes of the same step.
        step: The step that found it; 0 for recalled nodes, -1 for their ancestors.
        explored: Whether its children were shown.
        refused: How often the model asked to explore it again.
    """

    node: types_pb2.Node
    content: str
    hint: str
    score: float
    step: int
    explored: bool = False
    refused: int = 0

    @property
    def is_leaf(self) -> bool:
        """Whether the node has no children."""
        return self.node.child_count == 0

    @property
    def outline(self) -> str:
        """The summary of the node, else its brief, else its title."""
        return shown_summary(self.node.summary, self.node.attributes) or self.node.brief or self.node.title


class Context:
    """The nodes shown for one question, in the order in which they were found.

    Args:
        budget: The most tokens of them in one prompt.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._nodes: dict[str, Shown] = {}

    def add(self, nodes: Iterable[Shown]) -> list[Shown]:
        """Adds nodes and returns those that were not shown before."""
        return [shown for shown in nodes if self._nodes.setdefault(shown.node.id, shown) is shown]

    def get(self, node_id: str) -> Shown | None:
        """Returns the node with this id, or ``None`` if it was not shown."""
        return self._nodes.get(node_id)

    def __len__(self) -> int:
        return len(self._nodes)

    def refusal(self, node_id: str) -> str:
        """Returns why a node cannot be explored, or ``""`` if it can."""
        known = self._nodes.get(node_id)
        name = node_id[:40].encode("utf-8", "replace").decode()
        if known is None:
            return f"{name!r} is not a node of the context; only a SUMMARY_NODE shown there can be explored."
        if known.is_leaf:
            return f"{name} is a leaf and has no children; its text is all there is."
        if known.explored:
            known.refused += 1  # changes the hint, so that the model learns of the refusal and the prompt differs
            return f"{name} was explored already; its children are shown."
        return ""

    def for_model(self) -> list[ContextNode]:
        """Returns the nodes as the prompt shows them, within the budget.

        The newest and best nodes are shown in full, then the outlines of the others while there is room, or at least
        their titles. A node for which there is no room can still be explored and cited.
        """
        ranked = sorted(self._nodes.values(), key=lambda one: (one.explored, -one.step, -one.score))
        forms: dict[str, ContextNode] = {}
        left = self._budget
        reserve = int(self._budget * (1 - _FULL_SHARE)) if len(ranked) > 1 else 0
        for one in ranked:
            form = _full(one, left - reserve)
            if form is not None:
                forms[one.node.id] = form
                left -= tokens_of(form)
        for one in ranked:
            if one.node.id not in forms:
                form = _outline(one, left)
                if form is not None:
                    forms[one.node.id] = form
                    left -= tokens_of(form)
        if not forms and ranked:
            first = ranked[0]
            forms[first.node.id] = _form(first, truncate_to_tokens(first.outline, max(self._budget, 1)))
        return [forms[node_id] for node_id in self._nodes if node_id in forms]

    def leaves(self) -> list[Shown]:
        """Returns the nodes with content of their own, in the order in which they were found."""
        return [one for one in self._nodes.values() if one.content]

    def cited(self, named: Sequence[str]) -> tuple[list[Shown], list[str]]:
        """Returns the nodes that an answer names, in its order, and the names of nodes that were not shown."""
        wanted = list(dict.fromkeys(named))
        known = [one for node_id in wanted if (one := self._nodes.get(node_id)) is not None]
        return known, [node_id for node_id in wanted if node_id not in self._nodes]


def tokens_of(form: ContextNode) -> int:
    """Returns the approximate number of tokens of a node in the prompt."""
    return _KEYS_TOKENS + sum(count_tokens(text) for text in (form.summary, form.hint, form.content))


def _form(one: Shown, summary: str, content: str = "") -> ContextNode:
    hint = one.hint
    if one.explored:
        hint = "explored already: what is below it and fits is shown"
    if one.refused:
        hint += f"; to explore it again was refused ({one.refused}), so choose another node, or answer"
    return ContextNode(one.node.id, LEAF if one.is_leaf else INNER, summary, hint, content)


def _full(one: Shown, room: int) -> ContextNode | None:
    """Returns a node in full, its text cut to the room if necessary; ``None`` if too little of it would remain."""
    if not one.content:
        form = _form(one, one.outline)
        return form if tokens_of(form) <= room else None
    form = _form(one, one.node.title, one.content)
    over = tokens_of(form) - room
    if over <= 0:
        return form
    kept = count_tokens(one.content) - over - 1
    return None if kept < _LEAST_CUT else _form(one, one.node.title, truncate_to_tokens(one.content, kept) + "…")


def _outline(one: Shown, room: int) -> ContextNode | None:
    for text in dict.fromkeys((one.outline, one.node.title)):
        form = _form(one, text)
        if tokens_of(form) <= room:
            return form
    return None


def nearest_by_words(answer: str, leaves: Sequence[Shown]) -> list[Shown]:
    """Returns the leaves that share most words with an answer; each adds words that the ones before it lack.

    A word weighs more if fewer leaves have it, so words that all leaves have hardly count.
    """
    said = set(words_of(answer))
    have = [(one, said & set(words_of(f"{one.node.title}\n{one.content}"))) for one in leaves]
    weight = {
        word: log2(1 + len(have) / sum(1 for _, words in have if word in words))
        for word in {word for _, words in have for word in words}
    }
    chosen: list[Shown] = []
    covered: set[str] = set()
    while have and len(chosen) < _MOST_CITED:
        gains = [sum(weight[word] for word in words - covered) for _, words in have]
        best = max(range(len(have)), key=lambda place: gains[place])  # the first of ties
        if gains[best] < (_LEAST_SHARED if chosen else 1.0):
            break
        one, words = have.pop(best)
        chosen.append(one)
        covered |= words
    return chosen
