"""Recalled passages as text and metadata, the form that retrievers of frameworks return."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from memotree.client import AsyncRevision, Passage, RecallResult, Revision

_LEAF: Final = "leaf_chunk"


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """What a retriever asks for; the arguments of ``recall`` of the same names."""

    token_budget: int = 0
    archives: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    node_types: tuple[str, ...] = ()
    under: str | None = None
    only_if_known: bool = False


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage of an answer.

    Attributes:
        node_id: Its best node, which identifies it.
        text: Its text.
        score: From 0 to 1.
        metadata: ``node``, ``nodes``, ``title``, ``commit``, ``archive``, ``document``, ``span``, ``sha256``,
            ``score`` and ``confidence``; those of a document only for a passage that was cut from one.
    """

    node_id: str
    text: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


def recall(memory: Revision | AsyncRevision, query: str, options: RecallOptions) -> list[FoundPassage]:
    """Recalls passages with the blocking client, in one call.

    Raises:
        TypeError: If the memory is of the asynchronous client.
    """
    if not isinstance(memory, Revision):
        raise TypeError("This memory is of the AsyncClient; call the retriever's asynchronous method.")
    return _passages(memory.recall(query, **_arguments(options)), options)


async def arecall(memory: AsyncRevision, query: str, options: RecallOptions) -> list[FoundPassage]:
    """Recalls passages with the asynchronous client, in one call."""
    return _passages(await memory.recall(query, **_arguments(options)), options)


def _arguments(options: RecallOptions) -> dict[str, Any]:
    return {
        "token_budget": options.token_budget,
        "archives": options.archives,
        "tags": options.tags,
        "node_types": options.node_types,
        "under": options.under,
    }


def _passages(answer: RecallResult, options: RecallOptions) -> list[FoundPassage]:
    if options.only_if_known and answer.confidence == "none":
        return []
    return [_passage(part, answer) for passage in answer.passages if passage.nodes for part in _parts(passage)]


def _parts(passage: Passage) -> list[Passage]:
    """The passage itself if it was cut from a document; of notes that are next to each other, each, best first."""
    if len(passage.nodes) == 1 or any(each.node.type == _LEAF for each in passage.nodes):
        return [passage]
    notes = sorted(passage.nodes, key=lambda each: -each.score)
    return [replace(passage, text=each.node.content, score=each.score, nodes=(each,)) for each in notes]


def _passage(passage: Passage, answer: RecallResult) -> FoundPassage:
    best = max(passage.nodes, key=lambda each: each.score)
    own = best.citation.source if best.citation else None
    own_title = [] if best.node.type == _LEAF else [best.node.title]
    title = (own.heading if own else "") or " > ".join([*passage.headings, *own_title])
    metadata: dict[str, Any] = {
        "node": best.node.id,
        "nodes": [each.node.id for each in passage.nodes],
        "title": title or best.node.title,
        "commit": answer.commit_id,
        "archive": passage.archive_name,
        "score": passage.score,
        "confidence": answer.confidence,
    }
    if best.citation is not None:
        metadata["sha256"] = best.citation.content_sha256
    sources = [each.citation.source for each in passage.nodes if each.citation and each.citation.source]
    if sources:
        metadata["document"] = sources[0].document_id
        metadata["span"] = [min(source.start for source in sources), max(source.end for source in sources)]
    return FoundPassage(best.node.id, passage.text, passage.score, metadata)
