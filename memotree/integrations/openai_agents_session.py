"""A session of the OpenAI Agents SDK whose conversation is a node in Git, with a note for each item.

    from agents import Agent, Runner
    from memotree.client import AsyncClient
    from memotree.integrations.openai_agents_session import MemoTreeSession

    session = MemoTreeSession("ada-2026-11-22", AsyncClient().workspace("memory"))
    result = await Runner.run(Agent(name="Assistant"), "Hello", session=session)

The items of one call are one commit. A conversation has one writer at a time, as the SDK's own sessions assume: calls
of one object wait for each other. What two objects add at the same time is all kept, mixed, each in its own order.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from agents.memory.session_settings import SessionSettings, resolve_session_limit

from memotree.client import AbortedError, AlreadyExistsError, AsyncWorkspace, Change, Node, NotFoundError, changes
from memotree.integrations.contention import Contention
from memotree.integrations.named_nodes import NamedNodes, Place
from memotree.integrations.note_values import from_note, one_line, one_word, to_note
from memotree.integrations.port import ArchivePort

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

ITEM_TYPE: Final = "memory"
"""The node type of an item."""

_CONVERSATION: Final = "_conversation"


class MemoTreeSession:
    """The items of one conversation, oldest first.

    Args:
        session_id: The name of the conversation; another object of the same name continues it.
        workspace: The workspace that holds it; it must exist.
        archive: The archive that holds all conversations; the first item creates it.
        agent: The author of the commits.
        session_settings: The SDK's settings; their limit applies to reads without one.
    """

    def __init__(
        self,
        session_id: str,
        workspace: AsyncWorkspace,
        *,
        archive: str = "conversations",
        agent: str = "openai-agents",
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._archive = archive
        self._port = ArchivePort(workspace, archive, agent)
        self._named = NamedNodes(self._port, archive)
        self._name = (session_id,)
        self._turn = asyncio.Lock()
        self._contention = Contention()

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """Returns the items, oldest first; with a limit, the newest that many of them."""
        most = resolve_session_limit(limit, self.session_settings)
        if most is None:
            found = await self._items(with_content=True)
        elif most <= 0:
            found = []
        else:
            newest = (await self._items(with_content=False))[-most:]
            found = [node for node in await self._port.nodes([node.id for node in newest]) if node is not None]
        return [cast("TResponseInputItem", from_note(node)) for node in found]

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Adds items at the end, in one commit."""
        if not items:
            return
        notes = [cast("Mapping[str, Any]", item) for item in items]
        message = one_line(f"Add to the conversation {self.session_id}: {_title(notes[-1])}", 200)
        async with self._turn:
            await self._contention.outlast(partial(self._add, notes, message), "the conversation")

    async def _add(self, notes: Sequence[Mapping[str, Any]], message: str) -> None:
        place = self._named.last_seen(self._name)
        begin = [] if place.is_alive else [self._begin(place)]
        try:
            await self._port.change([*begin, *(_added(place.node_id, note) for note in notes)], message)
        except (AbortedError, AlreadyExistsError, NotFoundError):
            await self._named.find([self._name])  # for the next attempt
            raise
        self._named.remember(self._name, Place(place.node_id, is_alive=True))

    async def pop_item(self) -> "TResponseInputItem | None":
        """Removes the newest item and returns it; ``None`` if there is none."""
        async with self._turn:
            while listed := await self._items(with_content=False):
                newest = (await self._port.nodes([listed[-1].id]))[0]
                if newest is None:
                    continue
                if await self._delete([newest], f"Take back the last item of the conversation {self.session_id}"):
                    return cast("TResponseInputItem", from_note(newest))
            return None

    async def clear_session(self) -> None:
        """Removes all items, in one commit; the conversation stays, and so does its history."""
        async with self._turn:
            while listed := await self._items(with_content=False):
                if await self._delete(listed, f"Clear the conversation {self.session_id}"):
                    return

    async def _items(self, *, with_content: bool) -> list[Node]:
        node = (await self._named.find([self._name]))[0]
        if node is None:
            return []
        below = self._port.children(node.id, with_content=with_content)
        return [item async for item in below if item.type == ITEM_TYPE]

    async def _delete(self, nodes: list[Node], message: str) -> bool:
        """Deletes items; says whether they were still there, unchanged."""
        try:
            gone = [changes.delete(node, etag=node.etag) for node in nodes]
            return await self._port.change(gone, one_line(message, 200))
        except (AbortedError, NotFoundError):
            return False

    def _begin(self, place: Place) -> Change:
        return changes.create(
            one_line(self.session_id) or "A conversation",
            archive=self._archive,
            node_id=place.node_id,
            auto_generate_summary=False,
            attributes={_CONVERSATION: one_word(self.session_id)},
        )


def _added(parent_id: str, item: Mapping[str, Any]) -> Change:
    note = to_note(item)
    return changes.create(
        _title(item), note.content, parent=parent_id, node_type=ITEM_TYPE, attributes=dict(note.attributes)
    )


def _title(item: Mapping[str, Any]) -> str:
    """Who or what the item is from, and how it begins."""
    who = str(item.get("role") or item.get("type") or "item")
    return one_line(f"{who}: {to_note(item).text or item.get('name') or ''}".removesuffix(": "))
