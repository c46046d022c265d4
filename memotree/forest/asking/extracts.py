"""Answers without a chat model: the best recalled passages, verbatim."""

from typing import Final

from memotree_storage.model.provenance import shown_summary
from memotree_storage.model.titles import own_title, titled
from memotree_storage.model.tokens import truncate_to_tokens

from memotree.v1 import forest_service_pb2 as pb

EXTRACTIVE_BUDGET: Final = 1000
"""The default budget in tokens of an answer made of passages. It is small because a person reads it, not a model."""

EXTRACTIVE_SHARE: Final = 0.25
"""The share of the best score that a passage must have to be included; one that only fills up the budget misleads."""


def extract(recalled: pb.RecallResponse, budget: int, scope: set[str] | None = None) -> tuple[str, list[str]]:
    """Returns the best recalled nodes as one text within a budget of tokens, and the ids of these nodes.

    Adjacent leaves of a document are joined as in the document, adjacent notes by a line break; others are separated by
    a blank line. A note stands with its title.
    """
    places: list[tuple[int, pb.RecalledNode]] = []
    for number, passage in enumerate(recalled.passages):
        places += [(number, node) for node in passage.nodes]
    places += [(-1 - number, node) for number, node in enumerate(recalled.nodes)]
    if scope is not None:
        places = [place for place in places if place[1].node.id in scope]
    chosen, left = set[int](), budget
    least = EXTRACTIVE_SHARE * max((node.score for _, node in places), default=0.0)
    for index in sorted(range(len(places)), key=lambda index: -places[index][1].score):
        one = places[index][1]
        tokens = one.tokens or one.node.content_tokens
        if not chosen or (tokens <= left and one.score >= least):
            chosen.add(index)
            left -= tokens
    text, before = "", -1
    for index in sorted(chosen):
        place, one = places[index]
        is_next = before == index - 1 and before >= 0 and places[before][0] == place
        gap = _separator(places[before][1], one) if is_next else "\n\n"
        text = f"{text.rstrip() if gap else text}{gap}{_shown(one)}".lstrip("\n")
        before = index
    return truncate_to_tokens(text.strip(), budget), [places[index][1].node.id for index in sorted(chosen)]


def _separator(before: pb.RecalledNode, after: pb.RecalledNode) -> str:
    """Returns what stands between two neighbours: nothing if they were cut apart in one text, else a line break."""
    one, other = before.citation.source, after.citation.source
    return "" if one.start < one.end == other.start else "\n"


def _shown(one: pb.RecalledNode) -> str:
    node = one.node
    if not node.content:
        return shown_summary(node.summary, node.attributes) or node.title
    return titled(own_title(node.title, node.type, node.content), node.content)
