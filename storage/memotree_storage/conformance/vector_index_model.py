"""A brute-force model of a ``VectorIndex``, which says what the suite expects."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memotree_storage.ports import IndexPoint, IndexQuery, Override, TermVector, Vector


@dataclass
class Model:
    """The index as a plain list that is searched completely."""

    points: dict[str, IndexPoint] = field(default_factory=dict)

    def put(self, points: Sequence[IndexPoint]) -> None:
        """Do the same as ``upsert``."""
        self.points.update({one.point_id: one for one in points})

    def close(self, ended: Sequence[tuple[str, int]]) -> None:
        """Do the same as ``close_versions``."""
        for point_id, end in ended:
            if point_id in self.points:
                self.points[point_id] = replace(self.points[point_id], to_seq=end)

    def override(self, overridden: Sequence[tuple[str, Sequence[Override]]]) -> None:
        """Do the same as ``override_versions``."""
        for point_id, overrides in overridden:
            if point_id in self.points:
                self.points[point_id] = replace(self.points[point_id], overrides=tuple(overrides))

    def alive(self, query: IndexQuery) -> list[IndexPoint]:
        """Return the points that are visible to the query."""
        return [one for one in self.points.values() if _sees(query, one)]

    def nearest(self, query: IndexQuery, vector: Vector) -> dict[str, float]:
        """Return the cosine of every visible point by id."""
        return {one.point_id: float(one.vector @ vector) for one in self.alive(query) if one.vector is not None}

    def best_terms(self, query: IndexQuery, terms: TermVector) -> dict[str, float]:
        """Return the dot product of every visible point by id, if it is greater than 0."""
        wanted = dict(zip(terms.ids, terms.weights, strict=True))
        scores = {
            one.point_id: sum(w * wanted.get(t, 0.0) for t, w in zip(one.terms.ids, one.terms.weights, strict=True))
            for one in self.alive(query)
        }
        return {key: score for key, score in scores.items() if score > 0}


def _is_overridden(query: IndexQuery, one: IndexPoint) -> bool:
    return any(span.number == by.line_number and by.seq <= span.seq for span in query.lineage for by in one.overrides)


def _sees(query: IndexQuery, one: IndexPoint) -> bool:
    return (
        one.workspace_id == query.workspace_id
        and any(
            span.line_id == one.line_id
            and one.from_seq <= span.seq
            and (query.every or one.to_seq is None or span.seq < one.to_seq)
            for span in query.lineage
        )
        and (not query.types or one.type in query.types)
        and (not query.archive_ids or one.archive_id in query.archive_ids)
        and set(query.tags) <= set(one.tags)
        and (query.node_ids is None or one.node_id in query.node_ids)
        and one.node_id not in query.without_ids
        and (query.every or not _is_overridden(query, one))
    )
