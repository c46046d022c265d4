"""The loop that answers a question: what the chat model sees, what it may explore, and what its answer rests on.

Nothing here reads a store or calls a model; `asking.py` does both. Whatever a document says, a model can only name
nodes that it was shown: every id that it gives is looked up here, and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

from memotree_storage.index.terms import words_of
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens

from memotree.models.chat_answers import ContextNode
from memotree.v1 import types_pb2

LEAF: Final = "LEAF_CHUNK"
INNER: Final = "SUMMARY_NODE"
"""The names that the loop's prompt has for the two kinds of nodes (the seed's)."""

_KEYS_TOKENS: Final = 28
"""Tokens of a node's keys, id and type in the prompt."""

_FULL_SHARE: Final = 0.75
"""The part of the budget that goes to nodes as they are; the rest keeps the outlines of all others."""

_LEAST_CUT: Final = 60
"""Tokens that a text must have left for it to be worth cutting."""

_MOST_CITED: Final = 3
"""Leaves that are cited when the model names none."""

_LEAST_SHARED: Final = 3.0
"""What a further leaf must add to those before it, in weighted words: more than one word that few texts have."""


@dataclass(slots=True)
class Shown:
    """A node that the model was shown.

    Attributes:
        node: It, with its summary.
        content: Its own text; empty for a node whose content is derived from what is below it.
        hint: Why it is shown.
        score: How well it fits the question, within its step.
        step: The step that brought it; 0 for the nodes that were recalled.
        explored: Whether what is below it was shown.
        refused: How often the model wanted to explore it again.
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
        """Whether nothing is below it."""
        return self.node.child_count == 0

    @property
    def outline(self) -> str:
        """What it is about."""
        return self.node.summary or self.node.brief or self.node.title


class Context:
    """The nodes of one question, in the order in which they came.

    Args:
        budget: The most tokens of them that one decision may read.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._nodes: dict[str, Shown] = {}

    def add(self, nodes: Iterable[Shown]) -> list[Shown]:
        """Show more nodes; those that were not shown before are returned."""
        return [one for one in nodes if self._nodes.setdefault(one.node.id, one) is one]

    def get(self, node_id: str) -> Shown | None:
        """The node of that id, if it was shown."""
        return self._nodes.get(node_id)

    def __len__(self) -> int:
        return len(self._nodes)

    def refusal(self, node_id: str) -> str:
        """Why a node cannot be explored, as the model is told; empty when it can."""
        known = self._nodes.get(node_id)
        name = node_id[:40].encode("utf-8", "replace").decode()
        if known is None:
            return f"{name!r} is no node of the context; only a SUMMARY_NODE that is shown there can be explored."
        if known.is_leaf:
            return f"{name} is a leaf: nothing is below it, and its text is all there is."
        if known.explored:
            known.refused += 1  # its hint changes, so that the model is told and not asked the same again
            return f"{name} was explored already; what is below it is shown."
        return ""

    def for_model(self) -> list[ContextNode]:
        """The nodes as the prompt shows them, within the budget.

        What came last and fits best is shown in full, then the outlines of the others as far as there is room, or at
        least their titles. A node that has no room at all is still known: when it is named, that counts.
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
        """The nodes with a text of their own, in the order in which they came."""
        return [one for one in self._nodes.values() if one.content]

    def cited(self, named: Sequence[str]) -> tuple[list[Shown], list[str]]:
        """The nodes that an answer names, in its order, and the names that stand for none that was shown."""
        wanted = list(dict.fromkeys(named))
        known = [one for node_id in wanted if (one := self._nodes.get(node_id)) is not None]
        return known, [node_id for node_id in wanted if node_id not in self._nodes]


def tokens_of(form: ContextNode) -> int:
    """Tokens of a node in the prompt, near enough."""
    return _KEYS_TOKENS + sum(count_tokens(text) for text in (form.summary, form.hint, form.content))


def _form(one: Shown, summary: str, content: str = "") -> ContextNode:
    hint = one.hint
    if one.explored:
        hint = "explored already: what is below it and fits is shown"
    if one.refused:
        hint += f"; to explore it again was refused ({one.refused}), so choose another node, or answer"
    return ContextNode(one.node.id, LEAF if one.is_leaf else INNER, summary, hint, content)


def _full(one: Shown, room: int) -> ContextNode | None:
    """A node as it is, its text cut to the room if it must be; ``None`` when it is not worth that."""
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
    """The leaves that share most words with an answer, each of which adds some that those before it lack.

    A word weighs the more the fewer leaves have it, so that what all of them say decides nothing.
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
        best = max(range(len(have)), key=lambda place: gains[place])  # the first of equals
        if gains[best] < (_LEAST_SHARED if chosen else 1.0):
            break
        one, words = have.pop(best)
        chosen.append(one)
        covered |= words
    return chosen
