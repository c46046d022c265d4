"""Translates the field path of a faulty node into the path of the field in the request.

A node is checked as a whole and in canonical order. A request has other names (``node_id``, ``parts[1].title``), lists
in the caller's order, and often only some of the fields; the other fields keep the values that the node had before.
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
    """How a request names the fields of a node that it sets.

    Attributes:
        names: The request's path of each field of the node; fields that the request does not set are missing.
        owner: The field that names the node; faults in fields that the request does not set are reported there.
        tags: The tags in the request's order.
        relations: The relations in the request's order, with full target ids.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    owner: str = "node_id"
    tags: Sequence[str] = ()
    relations: Sequence[Relation] = ()

    def translate(self, fault: FieldViolation, node: Node) -> FieldViolation:
        """Translate a fault of a node into a fault of the request.

        Args:
            fault: The fault, with a path of the node.
            node: The node as it was checked, in canonical order.
        """
        found = _PATH.fullmatch(fault.field)
        head, index, rest = found.groups() if found else (fault.field, None, "")
        name = self.names.get(head)
        if name is not None and index is not None:
            place = self._place(head, int(index), node)
            # A list in the request has indexes; a single relation has none.
            name = None if place is None else f"{name}[{place}]" if name == head else name
        if name is None:
            return FieldViolation(self.owner, f"leads to {node.id}, whose {fault.field} {fault.description}")
        return replace(fault, field=name + rest)

    def _place(self, head: str, index: int, node: Node) -> int | None:
        """The request's index of an item of the node's canonical list; ``None`` if the item is not from the request."""
        if head == "tags":
            given: Sequence[object] = [tag.strip() for tag in self.tags]
            item: object = node.tags[index]
        elif head == "relations":
            given = [(relation.type, relation.target_id) for relation in self.relations]
            item = (node.relations[index].type, node.relations[index].target_id)
        else:
            return None
        # Of two equal items the last one is kept.
        return next((place for place in reversed(range(len(given))) if given[place] == item), None)
