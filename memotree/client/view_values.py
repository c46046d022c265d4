"""Views and their contents, as plain values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from memotree.client.node_values import Node, RelatedNode, moment
from memotree.v1 import node_service_pb2, view_service_pb2


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """The tokens that a view uses, and its token budget (0: no budget)."""

    tokens_used: int = 0
    token_budget: int = 0
    nodes_expanded: int = 0
    nodes_shown: int = 0

    @classmethod
    def from_wire(cls, message: node_service_pb2.ContextUsage) -> Self:
        """Reads the message."""
        return cls(message.tokens_used, message.token_budget, message.nodes_expanded, message.nodes_shown)


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A named map from nodes to levels; ``scope`` is the session or branch it belongs to."""

    name: str
    scope: str = ""
    nodes_expanded: int = 0
    update_time: datetime | None = None

    @classmethod
    def from_wire(cls, message: view_service_pb2.View) -> Self:
        """Reads the message."""
        return cls(message.name, message.scope, message.nodes_expanded, moment(message, "update_time"))


@dataclass(frozen=True, slots=True)
class Expansion:
    """A node expanded in a view: its text at that level, and its children and relations if asked for."""

    node: Node
    text: str
    children: tuple[Node, ...] = ()
    relations: tuple[RelatedNode, ...] = ()
    usage: ContextUsage = ContextUsage()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.ExpandNodeResponse) -> Self:
        """Reads the message."""
        return cls(
            Node.from_wire(message.node),
            message.text,
            tuple(Node.from_wire(child) for child in message.children),
            tuple(RelatedNode.from_wire(relation) for relation in message.relations),
            ContextUsage.from_wire(message.usage),
            tuple(message.warnings),
        )


@dataclass(frozen=True, slots=True)
class Collapse:
    """A node set back to its title in a view."""

    node: Node
    usage: ContextUsage = ContextUsage()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.CollapseNodeResponse) -> Self:
        """Reads the message."""
        return cls(Node.from_wire(message.node), ContextUsage.from_wire(message.usage), tuple(message.warnings))


@dataclass(frozen=True, slots=True)
class Rendering:
    """A view as Markdown; ``collapsed_ids`` are the nodes that were collapsed to keep the budget."""

    markdown: str
    usage: ContextUsage = ContextUsage()
    collapsed_ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: view_service_pb2.RenderViewResponse) -> Self:
        """Reads the message."""
        return cls(
            message.markdown,
            ContextUsage.from_wire(message.usage),
            tuple(message.collapsed_ids),
            tuple(message.warnings),
        )
