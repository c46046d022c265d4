"""A LangGraph store (``langgraph.store.base.BaseStore``) whose items are notes in Git.

    from memotree.client import Client
    from memotree.integrations.langgraph_store import MemoTreeStore

    store = MemoTreeStore(Client().workspace("memory"))
    store.put(("users", "ada"), "drink", {"text": "Ada prefers tea."})
    store.get(("users", "ada"), "drink").value                       # {'text': 'Ada prefers tea.'}
    store.search(("users",), query="What does Ada drink?")[0].key    # 'drink'

A namespace is a node below its parent's, an item a note of type ``memory`` below its namespace. All puts and deletions
of a batch are one commit. A time to live is the end of an item's valid time: then it is found no more, and stays in
the history; reading does not prolong it. `AsyncMemoTreeStore` is for event loops, and joins what is called at the same
time into one batch.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from memotree.client import (
    AsyncWorkspace,
    Change,
    Node,
    NotFoundError,
    Workspace,
    changes,
)
from memotree.client.blocking import run
from memotree.integrations.contention import Contention, block
from memotree.integrations.langgraph_items import (
    ITEM_TYPE,
    Namespace,
    is_indexed,
    is_item,
    is_namespace,
    matches,
    namespace_change,
    namespace_of,
    passes,
    put_change,
    to_item,
    to_search_item,
)
from memotree.integrations.named_nodes import Name, NamedNodes, Place
from memotree.integrations.note_values import one_line
from memotree.integrations.port import ArchivePort, is_absent

_MOST_FOUND: Final = 1000
"""The most items that one search by text looks at."""

_PAGE: Final = 50

_Puts = Mapping[Name, PutOp]


def _item_name(namespace: Namespace, key: str) -> Name:
    return ("item", *namespace, key)


def _namespace_name(namespace: Namespace) -> Name:
    return ("namespace", *namespace)


class _Items:
    """The store itself, written once for both clients."""

    def __init__(self, port: ArchivePort, archive: str, contention: Contention) -> None:
        self._port = port
        self._contention = contention
        self._archive = archive
        self._named = NamedNodes(port, archive)

    async def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does all operations: first the reads, then all writes in one commit; of two to one key the last counts."""
        every = list(ops)
        for op in every:
            validate_op_namespace(op)
        results: list[Result] = [None] * len(every)
        gets = {number: _item_name(op.namespace, op.key) for number, op in enumerate(every) if isinstance(op, GetOp)}
        names = list(dict.fromkeys(gets.values()))
        found = dict(zip(names, await self._named.find(names), strict=True))
        puts: dict[Name, PutOp] = {}
        for number, op in enumerate(every):
            match op:
                case GetOp():
                    node = found[gets[number]]
                    results[number] = to_item(node) if node and is_item(node) else None
                case SearchOp():
                    results[number] = await self._search(op)
                case ListNamespacesOp():
                    results[number] = await self._list_namespaces(op)
                case PutOp():
                    puts[_item_name(op.namespace, op.key)] = op
                case _:
                    raise ValueError(f"Unknown operation type: {type(op)}")
        if puts:
            await self._write(puts)
        return results

    # --- Writing ---

    async def _write(self, puts: _Puts) -> None:
        """Makes one commit of all writes, based on what was last seen; if that was wrong, looks and tries again."""
        unseen = [name for name, op in puts.items() if op.value is None and not self._named.last_seen(name).is_alive]
        await self._named.find(unseen)
        looked_at: list[Name] = []

        async def attempt() -> None:
            await self._named.find(looked_at)  # none before the first attempt
            staged, places = self._changes(puts)
            looked_at[:] = places
            if staged:
                await self._port.change(staged, _message(list(puts.values())))
            for name, place in places.items():
                self._named.remember(name, place)

        await self._contention.outlast(attempt, "the items")

    def _changes(self, puts: _Puts) -> tuple[list[Change], dict[Name, Place]]:
        """The changes, and where each name stands after them."""
        staged: list[Change] = []
        places: dict[Name, Place] = {}
        for name, op in puts.items():
            place = self._named.last_seen(name)
            if op.value is None:
                if place.is_alive:
                    staged.append(changes.delete(place.node_id))
                    places[name] = Place(place.node_id, is_alive=False)
                continue
            parent_id = ""
            for depth in range(1, len(op.namespace) + 1):
                namespace = op.namespace[:depth]
                above = _namespace_name(namespace)
                there = places.get(above) or self._named.last_seen(above)
                if not there.is_alive:
                    staged.append(namespace_change(namespace, there, parent_id, self._archive))
                places[above] = Place(there.node_id, is_alive=True)
                parent_id = there.node_id
            staged.append(put_change(op, place, parent_id, self._archive))
            places[name] = Place(place.node_id, is_alive=True)
        return staged, places

    # --- Reading ---

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        """The items that match the query, best first; then, for a filter, the others that pass it, without a score."""
        wanted = op.offset + op.limit
        found = await self._by_text(op, op.query) if op.query else []
        if len(found) >= wanted or (op.query and not op.filter):
            return found[op.offset : wanted]
        known = {(item.namespace, item.key) for item in found}
        async for node in self._walk(op.namespace_prefix, page_size=max(_PAGE, min(wanted, _MOST_FOUND))):
            item = to_search_item(node)
            if passes(item.value, op.filter) and (item.namespace, item.key) not in known:
                found.append(item)
                if len(found) >= wanted:
                    break
        return found[op.offset : wanted]

    async def _by_text(self, op: SearchOp, query: str) -> list[SearchItem]:
        """The best items by words and meaning; asks for more of them while a filter leaves too few."""
        limit = min(op.offset + op.limit, _MOST_FOUND)
        while True:
            try:
                nodes = await self._recall(op.namespace_prefix, query, limit)
            except NotFoundError as error:
                if is_absent(error):
                    return []
                raise
            items = [to_search_item(hit.node, hit.score) for hit in nodes if is_item(hit.node) and is_indexed(hit.node)]
            kept = [item for item in items if passes(item.value, op.filter)]
            if len(kept) >= op.offset + op.limit or len(nodes) < limit or limit == _MOST_FOUND:
                return kept
            limit = min(4 * limit, _MOST_FOUND)

    async def _recall(self, prefix: Namespace, query: str, limit: int) -> Sequence[Any]:
        if not prefix:
            return await self._port.recall(query, under="", node_type=ITEM_TYPE, limit=limit)
        name = _namespace_name(prefix)
        try:
            place = self._named.last_seen(name)
            return await self._port.recall(query, under=place.node_id, node_type=ITEM_TYPE, limit=limit)
        except NotFoundError as error:
            node = (await self._named.find([name]))[0] if is_absent(error) else None
            if node is None:
                raise
        return await self._port.recall(query, under=node.id, node_type=ITEM_TYPE, limit=limit)

    async def _walk(self, prefix: Namespace, *, page_size: int) -> AsyncIterator[Node]:
        """Every item below a prefix: those of a namespace in the order of their creation, then those below it."""
        waiting = [await self._top(prefix)]
        while waiting:
            top = waiting.pop()
            if top is None:
                continue
            below: list[str] = []
            async for node in self._port.children(top, with_content=True, page_size=page_size):
                if is_namespace(node):
                    below.append(node.id)
                elif is_item(node):
                    yield node
            waiting += reversed(below)

    async def _top(self, prefix: Namespace) -> str | None:
        """The id of the node of a prefix; "" for the whole archive, ``None`` if it is not there."""
        if not prefix:
            return ""
        node = (await self._named.find([_namespace_name(prefix)]))[0]
        return node.id if node else None

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = [each async for each in self._namespaces(_common_prefix(op))]
        found = [each for each in found if all(matches(condition, each) for condition in conditions)]
        cut = {each[: op.max_depth] for each in found} if op.max_depth is not None else set(found)
        return sorted(cut)[op.offset : op.offset + op.limit]

    async def _namespaces(self, prefix: Namespace) -> AsyncIterator[Namespace]:
        """The namespaces with items below a prefix; stops at the first item of each, which comes after namespaces."""
        top = await self._top(prefix)
        waiting = [] if top is None else [(top, prefix)]
        while waiting:
            node_id, namespace = waiting.pop()
            async for node in self._port.children(node_id, with_content=False, page_size=_PAGE):
                if is_namespace(node):
                    waiting.append((node.id, namespace_of(node)))
                elif is_item(node):
                    yield namespace
                    break


def _common_prefix(op: ListNamespacesOp) -> Namespace:
    """The labels that every wanted namespace begins with."""
    path: Namespace = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            labels = [str(label) for label in condition.path]
            given = tuple(labels[: labels.index("*")] if "*" in labels else labels)
            path = max(path, given, key=len)
    return path


def _message(puts: Sequence[PutOp]) -> str:
    """The subject of a commit."""
    first = puts[0]
    did = "Delete" if first.value is None else "Put"
    if len(puts) == 1:
        return one_line(f"{did} {'.'.join(first.namespace)}: {first.key}" if first.namespace else f"{did} {first.key}")
    if len({op.value is None for op in puts}) > 1:
        did = "Put and delete"
    places = list(dict.fromkeys(".".join(op.namespace) or "the root" for op in puts))
    return one_line(f"{did} {len(puts)} items: {', '.join(places[:5])}")


class MemoTreeStore(BaseStore):
    """A store over the blocking client; its asynchronous methods work in a thread.

    Args:
        workspace: The workspace that holds the items; it must exist.
        archive: The archive that holds them; the first put creates it.
        agent: The author of the commits.
    """

    __slots__ = ("_items",)

    supports_ttl = True

    def __init__(self, workspace: Workspace, *, archive: str = "langgraph", agent: str = "langgraph") -> None:
        self._items = _Items(ArchivePort(workspace, archive, agent), archive, Contention(block))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does all operations: first the reads, then all writes in one commit."""
        return run(self._items.batch(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Does the same in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))


class AsyncMemoTreeStore(AsyncBatchedBaseStore):
    """A store over the asynchronous client; belongs to the running event loop.

    Operations that are called at the same time are one batch, so many puts are one commit.

    Args:
        workspace: The workspace that holds the items; it must exist.
        archive: The archive that holds them; the first put creates it.
        agent: The author of the commits.
    """

    __slots__ = ("_items",)

    supports_ttl = True

    def __init__(self, workspace: AsyncWorkspace, *, archive: str = "langgraph", agent: str = "langgraph") -> None:
        super().__init__()
        self._items = _Items(ArchivePort(workspace, archive, agent), archive, Contention())

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does all operations from another thread than that of the event loop, and waits for them."""
        return asyncio.run_coroutine_threadsafe(self.abatch(list(ops)), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Does all operations: first the reads, then all writes in one commit."""
        return await self._items.batch(ops)
