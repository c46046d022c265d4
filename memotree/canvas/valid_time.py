"""The valid time of nodes that are created or changed: checked, and begun when a new node supersedes another."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.attribute_names import VALID_FROM
from memotree_storage.model.node import Node
from memotree_storage.model.validity import SUPERSEDES, validity_faults


def check_valid_time(attributes: Mapping[str, str]) -> None:
    """Check the attributes with the valid time of a node.

    Raises:
        InvalidInputError: One of them is not a time, or the end is not after the beginning.
    """
    faults = list(validity_faults(attributes))
    if faults:
        raise InvalidInputError("; ".join(f"{fault.field} {fault.description}" for fault in faults) + ".", faults)


def begun(node: Node) -> Node:
    """Return a new node with the current time as the beginning of its valid time, if it supersedes another node.

    Without it, a later change of the node would seem to move the end of the superseded one.
    """
    if VALID_FROM in node.attributes or not any(relation.type == SUPERSEDES for relation in node.relations):
        return node
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return replace(node, attributes={**node.attributes, VALID_FROM: now})
