"""Expands and collapses nodes in a view, and renders it."""

from memotree.client.enums import Level, LevelName, to_wire
from memotree.client.node_values import ArchiveRef, NodeRef, archive_id, node_id
from memotree.client.transport import Transport
from memotree.client.view_values import Collapse, Expansion, Rendering
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import view_service_pb2 as views


class AsyncView:
    """A named map from nodes to levels of detail, belonging to a session or branch."""

    def __init__(self, transport: Transport, workspace: str, revision: str, name: str) -> None:
        self._transport = transport
        self._workspace = workspace
        self._revision = revision
        self._name = name

    def __repr__(self) -> str:
        at = f" at {self._revision!r}" if self._revision else ""
        return f"<{type(self).__name__} {self._name!r} of {self._workspace!r}{at}>"

    @property
    def name(self) -> str:
        """The name, unique within its session or branch."""
        return self._name

    async def expand(
        self,
        node: NodeRef,
        level: LevelName = Level.DETAIL,
        *,
        include_children: bool = False,
        include_relations: bool = False,
    ) -> Expansion:
        """Sets the level of ``node`` and returns its text; ``include_children`` adds its children to the view."""
        request = nodes.ExpandNodeRequest(
            workspace=self._workspace,
            revision=self._revision,
            view_name=self._name,
            node_id=node_id(node),
            level=to_wire(Level, level),
            include_children=include_children,
            include_relations=include_relations,
        )
        return Expansion.from_wire(await self._transport.call(request, nodes.ExpandNodeResponse))

    async def collapse(self, node: NodeRef, *, recursive: bool = False) -> Collapse:
        """Sets ``node`` back to its title and hides its children; ``recursive`` resets all levels below it."""
        request = nodes.CollapseNodeRequest(
            workspace=self._workspace,
            revision=self._revision,
            view_name=self._name,
            node_id=node_id(node),
            recursive=recursive,
        )
        return Collapse.from_wire(await self._transport.call(request, nodes.CollapseNodeResponse))

    async def render(self, token_budget: int = 0, *, archive: ArchiveRef | None = None) -> Rendering:
        """The view as Markdown with node ids, within ``token_budget`` tokens (0: no limit)."""
        request = views.RenderViewRequest(
            workspace=self._workspace,
            revision=self._revision,
            view_name=self._name,
            token_budget=token_budget,
            archive=archive_id(archive),
        )
        return Rendering.from_wire(await self._transport.call(request, views.RenderViewResponse))

    async def delete(self) -> None:
        """Deletes the view."""
        request = views.DeleteViewRequest(workspace=self._workspace, revision=self._revision, view_name=self._name)
        await self._transport.call(request, views.DeleteViewResponse)
