"""What a fault of a node is called in the request that brings it: the path of a field of that request.

A node is checked as a whole and in canonical order. A request has other names (``node_id``, ``parts[1].title``), lists
in the caller's order, and often only some of the fields; what it does not have was there before.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memotree_storage.errors import FieldViolation
from memotree_storage.model.node import Node, Relation

_PATH: Final = re.compile(r"(\w+)(?:\[(\d+)\])?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RequestFields:
    """How a request names the fields of a node that it gives.

    Attributes:
        names: The request's path by the node's field; a field that is missing here, the request does not give.
        owner: The field that names the node: faults of what the request does not give are told there.
        tags: The tags in the request's order.
        relations: The relations in the request's order, their targets as whole ids.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    owner: str = "node_id"
    tags: Sequence[str] = ()
    relations: Sequence[Relation] = ()

    def tell(self, fault: FieldViolation, node: Node) -> FieldViolation:
        """Say a fault of a node as a fault of the request.

        Args:
            fault: The fault, with a path of the node.
            node: The node as it was checked, in canonical order.
        """
        found = _PATH.fullmatch(fault.field)
        head, index, rest = found.groups() if found else (fault.field, None, "")
        name = self.names.get(head)
        if name is not None and index is not None:
            place = self._place(head, int(index), node)
            # A list of the request's own has places; a relation that comes alone has none.
            name = None if place is None else f"{name}[{place}]" if name == head else name
        if name is None:
            return FieldViolation(self.owner, f"leads to {node.id}, whose {fault.field} {fault.description}")
        return replace(fault, field=name + rest)

    def _place(self, head: str, index: int, node: Node) -> int | None:
        """Where an item of the node's canonical list stands in the request; ``None`` when it was there before."""
        if head == "tags":
            given: Sequence[object] = [tag.strip() for tag in self.tags]
            item: object = node.tags[index]
        elif head == "relations":
            given = [(relation.type, relation.target_id) for relation in self.relations]
            item = (node.relations[index].type, node.relations[index].target_id)
        else:
            return None
        # Of two that mean the same the last one stays.
        return next((place for place in reversed(range(len(given))) if given[place] == item), None)
