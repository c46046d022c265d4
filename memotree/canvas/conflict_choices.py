"""What a caller chooses for conflicts: which conflicts are meant, and the value that each gets."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.conflicts import Absence, Conflict, ConflictKind, FieldValue, Place, RelationValue
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.text_merge import Hunk
from memotree_storage.postgres.session_conflicts import SessionConflict, by_entry

from memotree.request.lookup import InvalidIdError
from memotree.sessions.listed_conflicts import text_parts
from memotree.v1 import session_service_pb2 as pb
from memotree.v1 import types_pb2

MOST_RESOLUTIONS: Final = 1000
_SIDES: Final[Mapping[int, str]] = {
    types_pb2.CONFLICT_SIDE_OURS: "ours",
    types_pb2.CONFLICT_SIDE_THEIRS: "theirs",
    types_pb2.CONFLICT_SIDE_BASE: "base",
}
PLACES: Final = ("parent", "archive")
"""The fields that are places."""

OTHERS: Final = "others"
"""The path of the side for conflicts that no resolution names."""

_SHORTEST_PREFIX: Final = 4


class ConflictNotFoundError(NotFoundError):
    """The session has no such conflict."""

    reason = "CONFLICT_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen for one conflict.

    Attributes:
        kept: The conflict.
        side: The side that is chosen, "ours", "theirs" or "base"; "" for a value of its own.
        value: The value that the field gets.
        at: The path of the choice in the request.
    """

    kept: SessionConflict
    side: str
    value: FieldValue | None
    at: str

    @property
    def conflict(self) -> Conflict:
        """The conflict."""
        return self.kept.conflict


def beginnings(request: pb.ResolveConflictsRequest) -> list[str]:
    """The ids, or beginnings of ids, that a request names.

    Raises:
        InvalidInputError: It names too many, or nothing.
        InvalidIdError: One of them cannot be the beginning of an id.
    """
    if len(request.resolutions) > MOST_RESOLUTIONS:
        raise InvalidInputError.at("resolutions", f"has more than {MOST_RESOLUTIONS}; send several calls.")
    if not request.resolutions and not request.others:
        raise InvalidInputError.at("resolutions", "is needed, or others for the side to take in all conflicts.")
    for index, resolution in enumerate(request.resolutions):
        if len(resolution.node_id) < _SHORTEST_PREFIX:
            raise InvalidIdError.of(f"resolutions[{index}].node_id", resolution.node_id)
    return [resolution.node_id for resolution in request.resolutions]


def read_choices(request: pb.ResolveConflictsRequest, present: Sequence[SessionConflict]) -> list[Choice]:
    """The choices of a request for these conflicts. Blocks: long texts are compared for hunks.

    Args:
        request: The request.
        present: The conflicts of the entries that it names; with ``others``, those of all.

    Raises:
        ConflictNotFoundError: The session has no such conflict.
        InvalidInputError: A choice is missing, ambiguous, given twice, or not possible for the field.
    """
    by_id = by_entry(present)
    ids = sorted(by_id)
    found: dict[tuple[str, int], Choice] = {}
    for index, resolution in enumerate(request.resolutions):
        at = f"resolutions[{index}]"
        for kept in _named(resolution, by_id, ids, at):
            key = (kept.conflict.node_id, kept.number)
            if key in found:
                raise InvalidInputError.at(at, f"is for a conflict that {found[key].at} resolves already.")
            found[key] = _choice(resolution, kept, at)
    if request.others:
        found |= {
            (kept.conflict.node_id, kept.number): _of_side(kept, request.others, OTHERS)
            for kept in present
            if (kept.conflict.node_id, kept.number) not in found
        }
    return list(found.values())


def sided(kept: SessionConflict, side: int) -> Choice:
    """The choice of one side."""
    return _of_side(kept, side, OTHERS)


def _named(
    resolution: pb.ConflictResolution, by_id: Mapping[str, list[SessionConflict]], ids: Sequence[str], at: str
) -> Sequence[SessionConflict]:
    """The conflicts that a resolution is for; of several about one field, a value of one's own is for the first."""
    name = resolution.node_id
    begin = bisect_left(ids, name)
    begun = [one for one in ids[begin : begin + 2] if one.startswith(name)]
    if len(begun) > 1 and begun[0] != name:
        raise InvalidInputError.at(f"{at}.node_id", "is the beginning of several ids; give more of it.")
    wanted = begun[0] if begun else name
    of_node = by_id.get(wanted, [])
    chosen = [kept for kept in of_node if resolution.field in ("", kept.conflict.field)]
    if not chosen:
        what = f"no conflict of {resolution.field!r} in {wanted}" if of_node else f"no conflict of {wanted}"
        raise ConflictNotFoundError(f"The session has {what}. ListConflicts has all.", "conflict", wanted)
    if resolution.WhichOneof("choice") == "side":
        return chosen
    if len({kept.conflict.field for kept in chosen}) > 1:
        raise InvalidInputError.at(f"{at}.field", f"is needed: {wanted} has {len(chosen)} conflicts.")
    return sorted(chosen, key=lambda kept: not kept.conflict.kind.is_of_values)[:1]


def _choice(resolution: pb.ConflictResolution, kept: SessionConflict, at: str) -> Choice:
    kind = resolution.WhichOneof("choice")
    if kind == "side":
        return _of_side(kept, resolution.side, f"{at}.side")
    if kind in ("text", "place", "remove"):
        return Choice(kept, "", _value(resolution, kind, kept.conflict, f"{at}.{kind}"), f"{at}.{kind}")
    if kind == "hunks":
        return Choice(kept, "", _joined(resolution.hunks.hunks, kept.conflict, f"{at}.hunks"), f"{at}.hunks")
    raise InvalidInputError.at(at, "has no choice: give a side, a text, a place, remove or hunks.")


def _of_side(kept: SessionConflict, side: int, at: str) -> Choice:
    name = _SIDES.get(side)
    if name is None:
        raise InvalidInputError.at(at, "is no side; give OURS, THEIRS or BASE.")
    conflict = kept.conflict
    parts = text_parts(conflict)
    # Of a content, only what both sides changed is taken: nothing else that either of them changed is lost.
    if any(isinstance(part, Hunk) for part in parts):
        text = "".join(getattr(part, name) if isinstance(part, Hunk) else part for part in parts)
        return Choice(kept, name, text.removesuffix("\n"), at)
    return Choice(kept, name, getattr(conflict, name), at)


def _value(resolution: pb.ConflictResolution, kind: str, conflict: Conflict, at: str) -> FieldValue:
    if conflict.kind is ConflictKind.HAS_CHILDREN or (conflict.kind.is_of_values and not conflict.field):
        raise InvalidInputError.at(at, "The conflict is about the whole node or archive; choose a side.")
    if (conflict.field in PLACES) != (kind == "place") or (conflict.kind is ConflictKind.NAME_TAKEN and kind != "text"):
        raise InvalidInputError.at(at, f"is no value that {conflict.field} can have.")
    if kind == "place":
        return Place(resolution.place.archive_id, resolution.place.parent_id, resolution.place.position)
    if kind == "remove":
        if not resolution.remove:
            raise InvalidInputError.at(at, "is true, or another choice is given.")
        return Absence.NONE
    name, _, key = conflict.field.partition(".")
    if name == "relations":
        relation, _, target = key.partition(".")
        return RelationValue(relation, target, resolution.text)
    return resolution.text


def _joined(choices: Sequence[pb.HunkResolution], conflict: Conflict, at: str) -> str:
    """The text with a choice for each of its hunks."""
    parts = text_parts(conflict)
    hunks = [part for part in parts if isinstance(part, Hunk)]
    if not hunks:
        raise InvalidInputError.at(at, "The conflict has no hunks; choose a side or give a text.")
    if len(choices) != len(hunks):
        raise InvalidInputError.at(at, f"has {len(choices)} choice(s), and the conflict has {len(hunks)} hunk(s).")
    pairs = enumerate(zip(hunks, choices, strict=True))
    chosen = iter([_chosen(hunk, choice, f"{at}.hunks[{number}]") for number, (hunk, choice) in pairs])
    return "".join(next(chosen) if isinstance(part, Hunk) else part for part in parts).removesuffix("\n")


def _chosen(hunk: Hunk, choice: pb.HunkResolution, at: str) -> str:
    kind = choice.WhichOneof("choice")
    if kind == "side":
        name = _SIDES.get(choice.side)
        if name is not None:
            return str(getattr(hunk, name))
    elif kind == "text":
        needs_end = hunk.is_of_lines and choice.text and not choice.text.endswith("\n")
        return f"{choice.text}\n" if needs_end else choice.text
    raise InvalidInputError.at(at, "has no choice: give a side or a text.")
