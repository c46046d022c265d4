"""Measures what each part of the scoring contributes: the same questions and trees, with one part switched off.

This asks no server: it takes the leaves of the stored state as `Recall` does, scores them with other settings and
packs them. The row with the default settings must equal what the server answered.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.evidence import EvaluationSet
from bench.recall_asking import WORKSPACE, Ingested, Where, packed_parts, recall_of
from memotree.composition import open_store_and_models
from memotree.forest.recall.recall import CACHE_BYTES
from memotree.forest.recall.scoring.packing import pack
from memotree.forest.recall.scoring.scores import DEFAULT, Settings, score
from memotree.forest.recall.scoring.vocabulary import BuiltinWords
from memotree.forest.recall.search_corpus import SearchCorpus
from memotree.forest.recall.snapshot_cache import SnapshotCache
from memotree.forest.recall.word_frequency import frequency_in_workspace, read_term_counts
from memotree.models.builtin import WordllamaEmbedder
from memotree.request import lookup
from memotree.settings import load_settings

PARTS: Final[Mapping[str, Settings]] = {
    "default": DEFAULT,
    "without the tree": replace(DEFAULT, tree=0.0),
    "without words": replace(DEFAULT, words=0.0, document=0.0),
    "without vectors": replace(DEFAULT, meaning=0.0),
    "without routing (tree and whole documents)": replace(DEFAULT, tree=0.0, document=0.0),
    "without whole documents": replace(DEFAULT, document=0.0),
    "without headings": replace(DEFAULT, heading=0.0),
    "without labels (speakers)": replace(DEFAULT, label=0.0),
    "without related words": DEFAULT,
    "one scale for all conversations": replace(DEFAULT, growth=0.0),
    "texts at the scale of conversations": replace(DEFAULT, text_centre=DEFAULT.centre),
    "scales added, not sharpened": replace(DEFAULT, power=1.0),
    "leaves by themselves": replace(DEFAULT, tree=0.0, centre=30.0, growth=0.0, spread=0.1),
}
"""The settings of each row; there is no row for reranking because the default does not rerank."""

WITHOUT_RELATED: Final = "without related words"

Figures = dict[str, dict[Where, dict[int, list[float]]]]
"""The recall of each question in order, from 0 to 1: by row, place and budget."""


async def run(
    folder: Path,
    data: EvaluationSet,
    ingested: Ingested,
    budgets: Sequence[int],
    places: Sequence[Where],
    embedding: str | None = None,
) -> Figures:
    """Measure every row over a data folder whose server, with this embedding model, has stopped."""
    found: Figures = {}
    async with AsyncExitStack() as stack:
        settings = load_settings(data_folder=folder, log_level="warning", embedding_model=embedding)
        store, models = await open_store_and_models(settings, stack)
        async with store.database.connection() as conn:
            place = await lookup.find_revision(conn, WORKSPACE, "")
        kept = SnapshotCache(store, CACHE_BYTES)
        view = await kept.view(place.state)
        vectors = await models.embedder.embed([question.text for question in data.questions])
        embedder = models.embedder
        related = BuiltinWords(embedder if isinstance(embedder, WordllamaEmbedder) else None)
        corpora: dict[tuple[str, ...], SearchCorpus] = {}
        async with store.database.connection() as conn:
            frequencies = [
                frequency_in_workspace(
                    await read_term_counts(conn, place.state.workspace_id, question.text, related, for_search=False)
                )
                for question in data.questions
            ]
        for where in places:
            for name, part in PARTS.items():
                rows = found.setdefault(name, {}).setdefault(where, {})
                for question, vector, frequency in zip(data.questions, vectors, frequencies, strict=True):
                    wanted = (
                        [*filter(None, [ingested.archives[question.document]])]
                        if where == "own"
                        else sorted(filter(None, ingested.archives))
                    )
                    if tuple(wanted) not in corpora:
                        corpora[tuple(wanted)] = await kept.corpus(view, wanted)
                    corpus = corpora[tuple(wanted)]
                    words = None if name == WITHOUT_RELATED else related
                    # If all archives are searched, the frequencies of words come from the leaves themselves.
                    counted = frequency if where == "own" and len(ingested.archives) > 1 else None
                    scores = score(
                        corpus.leaf_index,
                        question.text,
                        vector,
                        related=words,
                        frequency=counted,
                        settings=part,
                    )
                    for budget in budgets:
                        taken = [corpus.place(leaf) for leaf in pack(scores.total, corpus.leaf_index, budget).tolist()]
                        packed = packed_parts([snapshot.leaf_id(number) for snapshot, number in taken], ingested)
                        rows.setdefault(budget, []).append(recall_of(question, packed, data))
    return found
