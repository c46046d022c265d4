"""Answers without a chat model: the best of what was recalled, as it stands in the documents."""

from collections.abc import Collection
from typing import Final

from memotree_storage.model.tokens import truncate_to_tokens

from memotree.v1 import forest_service_pb2 as pb

EXTRACTIVE_BUDGET: Final = 1000
"""Tokens of an answer made of passages, unless the caller gives a budget: a person reads it, not a model."""

EXTRACTIVE_SHARE: Final = 0.25
"""The part of the best score that a passage of such an answer must have: what is there for its room alone misleads."""


def extract(recalled: pb.RecallResponse, budget: int, scope: set[str] | None = None) -> tuple[str, list[str]]:
    """The best of what was recalled as one text within a budget of tokens, and the ids of the nodes that it is from.

    Leaves that stand side by side stay joined as in their document; a blank line is between others.
    """
    places: list[tuple[int, pb.RecalledNode]] = []
    for number, passage in enumerate(recalled.passages):
        places += [(number, one) for one in passage.nodes]
    places += [(-1 - number, one) for number, one in enumerate(recalled.nodes)]
    if scope is not None:
        places = [place for place in places if place[1].node.id in scope]
    chosen, left = set[int](), budget
    least = EXTRACTIVE_SHARE * max((one.score for _, one in places), default=0.0)
    for index in sorted(range(len(places)), key=lambda each: -places[each][1].score):
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
    """Whether no passage of an answer has a word of the question, as far as the traces tell.

    The best of what was found is the best of what is there, and no more: shares of a score are relative to it. Where
    not even a word is shared, nearness in meaning may be chance.
    """
    nodes = [*(one for passage in recalled.passages for one in passage.nodes), *recalled.nodes]
    told = [[signal.name for signal in one.trace.signals] for one in nodes if one.node.id in cited]
    return bool(told) and all(signals and "words" not in signals for signals in told)
