"""Whether two archive snapshots say the same, however they were made."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot
from memotree.forest.recall.scoring.row_blocks import RowBlocks

_CLOSE: Final = 1e-3

_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind", bound=np.integer)


def same(one: ArchiveSnapshot, other: ArchiveSnapshot) -> bool:
    """Whether two snapshots of an archive are equal.

    Vectors, and what is made of them, may differ as those of one text by one model do in another batch.
    """
    return _same(_plain(one), _plain(other))


def _plain(snapshot: ArchiveSnapshot) -> ArchiveSnapshot:
    """Returns a snapshot as one that was read at once: numbers in the order of their first use, and plain rows."""
    index, order = snapshot.leaf_index.packed(), snapshot.order
    labels, label_of = _renumbered(index.labels, index.label_of, keep_first=True)
    types, type_of = _renumbered(snapshot.types, snapshot.type_of)
    tag_sets, tags_of = _renumbered(snapshot.tag_sets, snapshot.tags_of)
    headings, heading_of = _renumbered(order.headings, order.heading_of, keep_first=True)
    known = order.document_of >= 0
    documents, numbers = _renumbered(order.documents, order.document_of[known])
    document_of = order.document_of.copy()
    document_of[known] = numbers
    return replace(
        snapshot,
        types=types,
        type_of=type_of,
        tag_sets=tag_sets,
        tags_of=tags_of,
        blobs=RowBlocks.of(snapshot.blobs.array),
        leaf_index=replace(index, labels=labels, label_of=label_of, windows=index.windows.packed()),
        order=replace(order, headings=headings, heading_of=heading_of, documents=documents, document_of=document_of),
        number=0,
        change=None,
    )


def _renumbered(
    values: Sequence[_Value], numbers: NDArray[_Kind], *, keep_first: bool = False
) -> tuple[tuple[_Value, ...], NDArray[_Kind]]:
    """Returns values in the order in which numbers name them first, without the unused, and the new numbers."""
    used, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    if keep_first and 0 in used:
        order = np.concatenate([order[used[order] == 0], order[used[order] != 0]])
    shift = int(keep_first and 0 not in used)
    place = np.empty(len(used), dtype=numbers.dtype)
    place[order] = np.arange(len(used)) + shift
    kept = [values[0]] if shift else []
    return tuple(kept + [values[number] for number in used[order].tolist()]), place[inverse]


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype.kind != other.dtype.kind or one.shape != other.shape:
            return False
        close = one.dtype == np.float32 and np.allclose(one, other, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        return close or bool(np.array_equal(one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if is_dataclass(one) and type(one) is type(other):
        return all(_same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return bool(one == other)
