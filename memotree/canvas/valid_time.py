"""The valid time of nodes: checked when it is given, and kept right when nodes are merged or supersede each other."""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.model.node import Node
from memotree_storage.model.validity import SUPERSEDES, period, validity_faults
from memotree_storage.postgres import tree
from memotree_storage.postgres.superseding import superseding
from memotree_storage.postgres.tree import Snapshot

_MOST_STEPS: Final = 1000


class ValidTimeDiffersError(FailedPreconditionError):
    """The nodes to be merged hold at different times, so no valid time is right for all of their texts."""

    reason = "VALID_TIME_DIFFERS"


class SupersedingCycleError(InvalidInputError):
    """The relation would close a circle of nodes that supersede each other, so that none of them would hold."""

    reason = "SUPERSEDING_CYCLE"


def check_valid_time(attributes: Mapping[str, str]) -> None:
    """Check the attributes with the valid time of a node.

    Raises:
        InvalidInputError: One of them is not a time, or the end is not after the beginning.
    """
    faults = list(validity_faults(attributes))
    if faults:
        raise InvalidInputError("; ".join(f"{fault.field} {fault.description}" for fault in faults) + ".", faults)


async def check_no_cycle(
    snapshot: Snapshot, node_id: str, target_id: str, *, field: str = "relation.target_id"
) -> None:
    """Check that a node may supersede another one: that does not supersede it, directly or through others.

    Raises:
        SupersedingCycleError: It does.
    """
    seen, waiting = {target_id}, [target_id]
    while waiting and len(seen) < _MOST_STEPS:
        found = await tree.versions(snapshot, waiting)
        ends = {end for one in found.values() for kind, end, _ in one.relations if kind == SUPERSEDES}
        if node_id in ends:
            raise SupersedingCycleError.at(
                field,
                f"{target_id} supersedes {node_id} already, directly or through others. Remove that relation first, or "
                "none of them would count as current.",
            )
        waiting = sorted(ends - seen)
        seen.update(waiting)


async def check_same_time(snapshot: Snapshot, nodes: Sequence[Node]) -> None:
    """Check that nodes hold at the same times, so that they can be merged into one.

    Raises:
        ValidTimeDiffersError: They do not, or only some of them are superseded.
    """
    over = {one.target_id for one in await superseding(snapshot, targets=[node.id for node in nodes])}
    if len({(*period(node.attributes), node.id in over) for node in nodes}) > 1:
        sentence = (
            "The nodes hold at different times, or only some of them are superseded; one node could not say when each "
            "of their texts holds. Give them the same valid_from and valid_to first, or delete what does not hold."
        )
        raise ValidTimeDiffersError(sentence, [FieldViolation(node.id, sentence) for node in nodes])
