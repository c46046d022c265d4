"""Answers without a chat model: the best recalled passages, verbatim."""

from collections.abc import Collection
from typing import Final

from memotree_storage.model.tokens import truncate_to_tokens

from memotree.v1 import forest_service_pb2 as pb

EXTRACTIVE_BUDGET: Final = 1000
"""The default budget in tokens of an answer made of passages. It is small because a person reads it, not a model."""

EXTRACTIVE_SHARE: Final = 0.25
"""The share of the best score that a passage must have to be included; one that only fills up the budget misleads."""


def extract(recalled: pb.RecallResponse, budget: int, scope: set[str] | None = None) -> tuple[str, list[str]]:
    """Returns the best recalled nodes as one text within a budget of tokens, and the ids of these nodes.

    Adjacent leaves of a document are joined as in the document; others are separated by a blank line.
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
        joined = before == index - 1 and before >= 0 and places[before][0] == place
        part = one.node.content or one.node.summary or one.node.title
        text = text + part if joined else f"{text.rstrip()}\n\n{part}".lstrip("\n")
        before = index
    return truncate_to_tokens(text.strip(), budget), [places[index][1].node.id for index in sorted(chosen)]


def lacks_words(recalled: pb.RecallResponse, cited: Collection[str]) -> bool:
    """Whether, according to the traces, no cited passage has a word of the question.

    Scores are relative to the best match, so even the best one may be irrelevant. If not a single word is shared,
    similarity by meaning may be chance.
    """
    nodes = [*(node for passage in recalled.passages for node in passage.nodes), *recalled.nodes]
    traced = [[signal.name for signal in node.trace.signals] for node in nodes if node.node.id in cited]
    return bool(traced) and all(signals and "words" not in signals for signals in traced)
