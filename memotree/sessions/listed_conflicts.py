"""Conflicts as ListConflicts shows them: each whole, a content with the parts that both sides changed."""

from collections.abc import Iterable

from memotree_storage.conflicts import Conflict
from memotree_storage.model.text_merge import Hunk, parts_of

from memotree.request.conflicts import conflict_message
from memotree.request.pages import PAGE_BYTES, fitting
from memotree.v1 import types_pb2


def told_conflicts(conflicts: Iterable[Conflict]) -> list[types_pb2.Conflict]:
    """The messages of conflicts, as many as fit into a page. Blocks: long texts are compared."""
    return fitting(map(_told, conflicts))


def _told(conflict: Conflict) -> types_pb2.Conflict:
    message = conflict_message(conflict)
    hunks = [types_pb2.ConflictHunk(base=hunk.base, ours=hunk.ours, theirs=hunk.theirs) for hunk in hunks_of(conflict)]
    if message.ByteSize() + sum(hunk.ByteSize() for hunk in hunks) <= PAGE_BYTES:
        message.hunks.extend(hunks)
    return message


def hunks_of(conflict: Conflict) -> list[Hunk]:
    """The parts of a content that both sides changed; none if that is all of it, or another field. Blocks."""
    parts = text_parts(conflict)
    return [] if len(parts) == 1 else [part for part in parts if isinstance(part, Hunk)]


def text_parts(conflict: Conflict) -> list[str | Hunk]:
    """The parts of a content in conflict: what both sides agree on, and hunks; none for another field. Blocks."""
    base, ours, theirs = conflict.base, conflict.ours, conflict.theirs
    if conflict.field != "content" or not (isinstance(base, str) and isinstance(ours, str) and isinstance(theirs, str)):
        return []
    return parts_of(base, ours, theirs)
