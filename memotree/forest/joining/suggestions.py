"""Suggests similar archives of one model by the vectors of their roots."""

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
from memotree_storage.errors import InvalidInputError
from memotree_storage.ports import Vectors
from memotree_storage.postgres import archive_versions, tree
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.joining.similarity_groups import groups
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.messages import archive_message
from memotree.v1 import forest_service_pb2 as pb

DEFAULT_SIMILARITY: Final = 0.6
"""The default for the least cosine of two archives that are suggested together."""

_MOST_ROOTS: Final = 32
"""The most roots of an archive from which its vector is made."""

_MOST_SUGGESTED: Final = 100
_LISTED: Final = 5
_SMALLEST_NORM: Final = 1e-6


async def suggest(
    store: Store, models: Models, request: pb.SuggestArchiveMergesRequest
) -> pb.SuggestArchiveMergesResponse:
    """Suggests groups of archives whose roots are similar, the most similar group first.

    Raises:
        InvalidInputError: If the threshold is not from 0 to 1.
    """
    threshold = request.threshold if request.HasField("threshold") else DEFAULT_SIMILARITY
    if not 0.0 <= threshold <= 1.0:  # also rejects NaN
        raise InvalidInputError.at("threshold", f"is {threshold:g}; give a number from 0 to 1.")
    async with store.database.connection() as conn:
        place = await lookup.use_revision(conn, request.workspace, request.revision)
        archives = await archive_versions.archives(Snapshot(conn, place.state))
        if request.model_id:
            archives = [one for one in archives if one.model_id == request.model_id]
        below = await tree.directly_below(Snapshot(conn, place.state), [one.entry_id for one in archives])
        first = {key: ids[:_MOST_ROOTS] for key, ids in below.items()}
        roots = await tree.versions(Snapshot(conn, place.state), [root for ids in first.values() for root in ids])
    by_model: dict[str, list[ArchiveVersion]] = {}
    for one in archives:
        if first.get(one.entry_id):
            by_model.setdefault(one.model_id, []).append(one)
    found: list[tuple[float, list[ArchiveVersion]]] = []
    for same in by_model.values():
        if len(same) > 1:
            vectors = await _vectors(
                models, [[roots[key] for key in first[one.entry_id] if key in roots] for one in same]
            )
            similar = await asyncio.to_thread(groups, vectors, threshold)
            found += [(group.similarity, [same[place] for place in group.members]) for group in similar]
    found.sort(key=lambda pair: (-pair[0], pair[1][0].name))
    return pb.SuggestArchiveMergesResponse(
        suggestions=[
            pb.ArchiveMergeSuggestion(
                archives=[archive_message(one) for one in members],
                similarity=similarity,
                reason=_reason(members, similarity),
            )
            for similarity, members in found[:_MOST_SUGGESTED]
        ]
    )


async def _vectors(models: Models, roots: Sequence[Sequence[Version]]) -> Vectors:
    """Returns a unit vector for each archive: the normalised mean of its roots' vectors."""
    texts = [f"{root.title}\n{root.summary or root.brief}" for own in roots for root in own]
    vectors = await models.embed(texts, Meter())
    means = np.zeros((len(roots), vectors.shape[1]), dtype=np.float32)
    start = 0
    for number, own in enumerate(roots):
        total = vectors[start : start + len(own)].sum(axis=0)
        means[number] = total / max(float(np.linalg.norm(total)), _SMALLEST_NORM)
        start += len(own)
    return means


def _reason(members: Sequence[ArchiveVersion], similarity: float) -> str:
    names = ", ".join(one.name for one in members[:_LISTED])
    more = f" and {len(members) - _LISTED} more" if len(members) > _LISTED else ""
    return f"{names}{more} are similar: each has a cosine of {similarity:.2f} or more to its nearest other."
