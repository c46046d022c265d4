"""The index point of a version: its id, and its fields from the row of the outbox and from its text."""

import uuid
from typing import Final

from memotree_storage.ports import IndexPoint, Override, TermVector, Vector
from memotree_storage.postgres.pending import Pending

_NAMESPACE: Final = uuid.UUID("6f1d8b52-7d43-5b8e-9c63-2f0a4e9d1c77")


def point_id(workspace_id: str, entry_id: str, blob: str, commit_id: str) -> str:
    """Return the id of a version's point, derived only from facts in Git, so that it survives every rebuild."""
    return str(uuid.uuid5(_NAMESPACE, f"{workspace_id}/{entry_id}/{blob}/{commit_id}"))


def index_point(workspace_id: str, row: Pending, terms: TermVector, vector: Vector | None) -> IndexPoint:
    """Build the index point of a version."""
    return IndexPoint(
        point_id=point_id(workspace_id, row.entry_id, row.blob, row.commit_id),
        workspace_id=workspace_id,
        node_id=row.entry_id,
        line_id=row.line_id,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        archive_id=row.archive_id,
        type=row.type,
        tags=tuple(row.tags),
        vector=vector,
        terms=terms,
        overrides=overrides_of(row),
    )


def overrides_of(row: Pending) -> tuple[Override, ...]:
    """Return the lines that hide a version."""
    return tuple(Override(number, seq) for number, seq in row.overrides)
