"""A search corpus as arrays by name, and back.

The arrays of all archive snapshots follow each other in one array of each kind, so there are as many for ten thousand
archives as for one. What a loaded corpus has are slices of them, equal to the last bit to what was saved. Vectors and
terms are saved in the order of leaves, as a corpus has them that was just read: one segment for all rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, OrderFacts, Validity
from memotree.forest.recall.saved.array_files import Array, Parts, UnusableFilesError
from memotree.forest.recall.scoring.leaf_index import LeafIndex, running
from memotree.forest.recall.scoring.leaf_rows import LeafRows, Segment
from memotree.forest.recall.scoring.leaf_windows import LeafWindows
from memotree.forest.recall.scoring.postings import Postings
from memotree.forest.recall.scoring.row_blocks import RowBlocks
from memotree.forest.recall.search_corpus import SearchCorpus, make_corpus
from memotree.forest.recall.superseded import Superseded

_AT_ONCE: Final = 1 << 14
"""The vectors that are brought into order at once: sixteen megabytes."""

_VECTORS: Final = "vectors"
_SIZES: Final = "sizes"

_OF_NODES: Final = ("ids", "parents", "ends")
_OF_LEAVES: Final = ("places", "type_of", "tags_of", "moments")
_INDEXED: Final = ("tokens", "lengths", "label_of")
_OF_WINDOWS: Final = ("offsets", "norms")
_OF_DOCUMENTS: Final = ("has_tree", "reach", "spoken")
_OF_POSTINGS: Final = ("terms", "bounds", "leaves", "counts")
_PERIODS: Final = ("begins", "ends", "over")

_KINDS: Final = (
    *_OF_NODES,
    *_OF_LEAVES,
    *("blobs", "positions", "heading_of", "document_of", "starts"),
    *(f"index.{name}" for name in (*_INDEXED, *_OF_WINDOWS, *_OF_DOCUMENTS)),
    *(f"validity.{name}" for name in _PERIODS),
    *(f"{rows}.{name}" for rows in ("text", "headings") for name in _OF_POSTINGS),
)
"""The arrays that each archive has a part of."""


def arrays_of(corpus: SearchCorpus) -> tuple[dict[str, Array | Parts], list[dict[str, Any]]]:
    """Returns the arrays of a corpus by name, and the facts of each of its archives, which JSON can say."""
    snapshots, index = corpus.snapshots, corpus.leaf_index
    parts = list(zip(*map(_arrays, snapshots), strict=True))
    found: dict[str, Array | Parts] = {name: np.concatenate(own) for name, own in zip(_KINDS, parts, strict=True)}
    found[_SIZES] = np.array([[len(array) for array in own] for own in parts], dtype=np.int64)
    if sum(map(bool, map(len, snapshots))) > 1:
        found |= _postings_of("all.text", index.text_rows.packed_terms())
        found |= _postings_of("all.headings", index.heading_rows.packed_terms())
    places = np.arange(len(index))
    wide = index.text_rows.segments[0].vectors.shape[1]
    chunks = (index.text_rows.vectors_of(places[start : start + _AT_ONCE]) for start in range(0, len(index), _AT_ONCE))
    found[_VECTORS] = Parts(np.dtype(np.float32), (len(index), wide), chunks)
    return found, [_facts(each) for each in snapshots]


def corpus_of(
    arrays: Mapping[str, Array], facts: Sequence[Mapping[str, Any]], ended: Mapping[str, Superseded]
) -> SearchCorpus:
    """Returns the corpus of arrays and facts of archives.

    Args:
        arrays: The arrays.
        facts: The facts of each archive.
        ended: The superseded nodes of the state by id, which are not among them.

    Raises:
        UnusableFilesError: If they are not those of a corpus.
    """
    try:
        vectors = arrays[_VECTORS]
        pieces = [_pieces(arrays[name], sizes) for name, sizes in zip(_KINDS, arrays[_SIZES].tolist(), strict=True)]
        snapshots, start = [], 0
        for each, own in zip(facts, zip(*pieces, strict=True), strict=True):
            named = dict(zip(_KINDS, own, strict=True))
            count = len(named["places"])
            # The vectors of a slice are counted where the whole array is.
            mine = vectors if count == len(vectors) else vectors[start : start + count]
            made = _snapshot(named, each, mine)
            snapshots.append(made)
            start += len(made)
        if start != len(vectors):
            raise UnusableFilesError("The archives have not as many leaves as there are vectors.")
        rows = None
        if "all.text.terms" in arrays:
            bare = np.zeros((start, 0), dtype=np.float32)
            rows = (
                LeafRows.plain(Segment(vectors, _postings(arrays, "all.text"))),
                LeafRows.plain(Segment(bare, _postings(arrays, "all.headings"))),
            )
        return make_corpus(snapshots, vectors.shape[1], ended, rows)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UnusableFilesError(f"They are not those of a corpus: {error!r}") from error


# --- One archive -----------------------------------------------------------------------------------------------------


def _arrays(snapshot: ArchiveSnapshot) -> list[Array]:
    """Returns the arrays of an archive, in the order of their kinds."""
    index, order = snapshot.leaf_index, snapshot.order
    nothing = np.zeros(0, dtype=np.float64)
    periods = snapshot.validity or Validity(nothing, nothing, nothing.astype(bool))
    return [
        *(getattr(snapshot, name) for name in (*_OF_NODES, *_OF_LEAVES)),
        snapshot.blobs.array,
        order.positions if order.is_clear else np.zeros(0, dtype="S1"),
        order.heading_of,
        order.document_of,
        index.starts,
        *(getattr(index, name) for name in _INDEXED),
        *(getattr(index.windows, name).array for name in _OF_WINDOWS),
        *(getattr(index, name) for name in _OF_DOCUMENTS),
        *(getattr(periods, name) for name in _PERIODS),
        *_postings_of("text", index.text_rows.packed_terms()).values(),
        *_postings_of("headings", index.heading_rows.packed_terms()).values(),
    ]


def _facts(snapshot: ArchiveSnapshot) -> dict[str, Any]:
    order = snapshot.order
    return {
        "archive": snapshot.archive_id,
        "types": snapshot.types,
        "tags": [sorted(tags) for tags in snapshot.tag_sets],
        "headings": order.headings,
        "documents": order.documents,
        "is_clear": order.is_clear,
        "labels": snapshot.leaf_index.labels,
        "has_validity": snapshot.validity is not None,
    }


def _snapshot(arrays: Mapping[str, Array], facts: Mapping[str, Any], vectors: Array) -> ArchiveSnapshot:
    """Returns the snapshot of an archive."""
    bare = np.zeros((len(vectors), 0), dtype=np.float32)
    own: dict[str, Any] = {name: arrays[name] for name in (*_OF_NODES, *_OF_LEAVES)}
    return ArchiveSnapshot(
        archive_id=str(facts["archive"]),
        types=tuple(facts["types"]),
        tag_sets=tuple(frozenset(tags) for tags in facts["tags"]),
        validity=Validity(*(arrays[f"validity.{name}"] for name in _PERIODS)) if facts["has_validity"] else None,
        blobs=RowBlocks.of(arrays["blobs"]),
        leaf_index=LeafIndex(
            starts=arrays["starts"],
            tokens_before=running(arrays["index.tokens"]),
            words_before=running(arrays["index.lengths"]),
            text_rows=LeafRows.plain(Segment(vectors, _postings(arrays, "text"))),
            heading_rows=LeafRows.plain(Segment(bare, _postings(arrays, "headings"))),
            windows=LeafWindows(*(RowBlocks.of(arrays[f"index.{name}"]) for name in _OF_WINDOWS)),
            labels=tuple(facts["labels"]),
            **{name: arrays[f"index.{name}"] for name in (*_INDEXED, *_OF_DOCUMENTS)},
        ),
        order=OrderFacts(
            positions=arrays["positions"],
            headings=tuple(facts["headings"]),
            heading_of=arrays["heading_of"],
            documents=tuple((str(name), bool(is_talk)) for name, is_talk in facts["documents"]),
            document_of=arrays["document_of"],
            is_clear=bool(facts["is_clear"]),
        ),
        **own,
    )


def _pieces(whole: Array, sizes: Sequence[int]) -> Iterator[Array]:
    """Yields the part of each archive of an array."""
    start = 0
    for size in sizes:
        yield whole[start : start + size]
        start += size
    if start != len(whole):
        raise UnusableFilesError("An array has not as many values as the archives.")


def _postings_of(name: str, postings: Postings) -> dict[str, Array]:
    return {f"{name}.{part}": getattr(postings, part) for part in _OF_POSTINGS}


def _postings(arrays: Mapping[str, Array], name: str) -> Postings:
    return Postings(*(arrays[f"{name}.{part}"] for part in _OF_POSTINGS))
