"""Measures what a call costs when what it does not touch grows: archives, forks, open sessions, levels."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.position import many_between

from bench.table import Row, paired, timed
from bench.worlds import World
from memotree.v1 import (
    history_service_pb2,
    node_service_pb2,
    session_service_pb2,
    workspace_service_pb2,
)

Call = Callable[[], Awaitable[object]]

_PAUSE: Final = 0.001
"""How often the event loop is asked whether it answers, in seconds."""


async def run(
    place: World, *, archives: int, forks: int, nested: int, sessions: int, changes: int, rounds: int
) -> list[Row]:
    """Measure calls in a small workspace and in grown ones.

    Args:
        place: An empty workspace.
        archives: How many archives there are in the end, with a node each.
        forks: How many branches fork from the default branch, each before it goes on.
        nested: How many branches are made from each other in turn.
        sessions: How many sessions are open.
        changes: How many changes one commit has.
        rounds: Calls of each kind.
    """
    rows = await _archives(await _workspace(place, "archives"), archives, rounds)
    rows += await _forks(await _workspace(place, "forks"), forks, rounds)
    rows += await _nested(await _workspace(place, "nested"), nested, rounds)
    rows += await _sessions(await _workspace(place, "sessions"), await _workspace(place, "few"), sessions, rounds)
    rows += await _chain(await _workspace(place, "chain"), rounds)
    rows += await _blocking(await _workspace(place, "blocking"), changes)
    return rows


async def _workspace(place: World, name: str) -> World:
    made = await place.workspaces.create_workspace(workspace_service_pb2.CreateWorkspaceRequest(name=name))
    return replace(place, workspace_id=made.workspace.id)


def _tree(archive: Archive, count: int) -> list[Entry]:
    """An archive with roots of a few words."""
    places = many_between(None, None, count)
    nodes = [
        Node(new_id(), archive.id, None, place, "note", f"Note {number}", "", "", f"What note {number} says.")
        for number, place in enumerate(places)
    ]
    return [archive, *nodes]


async def _archives(place: World, count: int, rounds: int) -> list[Row]:
    few = [entry for number in range(10) for entry in _tree(Archive(new_id(), f"archive {number}"), 1)]
    await _commit(place, few)
    opened = await _open(place)
    node = next(entry for entry in few if isinstance(entry, Node))
    calls: dict[str, Call] = {
        "CreateNode": lambda: place.nodes.create_node(
            node_service_pb2.CreateNodeRequest(
                workspace=place.workspace_id,
                session_id=opened,
                archive_id=node.archive_id,
                title="New",
                content="Text.",
            )
        ),
        "GetArchive": lambda: place.workspaces.get_archive(
            workspace_service_pb2.GetArchiveRequest(workspace=place.workspace_id, archive=node.archive_id)
        ),
        "ListArchives, 10 a page": lambda: place.workspaces.list_archives(
            workspace_service_pb2.ListArchivesRequest(workspace=place.workspace_id, page_size=10)
        ),
        "ExpandNode": lambda: place.nodes.expand_node(
            node_service_pb2.ExpandNodeRequest(workspace=place.workspace_id, node_id=node.id)
        ),
    }
    small = {name: await timed(call, rounds) for name, call in calls.items()}
    many = [entry for number in range(10, count) for entry in _tree(Archive(new_id(), f"archive {number}"), 1)]
    await _commit(place, many)
    opened = await _open(place)
    return [
        Row.of_times(
            f"{name}, {count:,} archives", await timed(call, rounds), "with 10 archives", small[name], most=1.5
        )
        for name, call in calls.items()
    ]


async def _forks(place: World, count: int, rounds: int) -> list[Row]:
    archive = Archive(new_id(), "notes")
    entries = _tree(archive, 200)
    await _commit(place, entries)
    node = entries[1]
    calls: dict[str, Call] = {
        "ListChildren": lambda: place.nodes.list_children(
            node_service_pb2.ListChildrenRequest(workspace=place.workspace_id, archive=archive.id)
        ),
        "GetTree": lambda: place.nodes.get_tree(
            node_service_pb2.GetTreeRequest(workspace=place.workspace_id, archive=archive.id)
        ),
        "search": lambda: place.nodes.search_nodes(
            node_service_pb2.SearchNodesRequest(workspace=place.workspace_id, query="note 17")
        ),
        "a commit": lambda: _change(place, node, ""),
    }
    small = {name: await timed(call, rounds) for name, call in calls.items()}
    for number in range(count):
        name = f"fork-{number}"
        await place.history.create_branch(
            history_service_pb2.CreateBranchRequest(workspace=place.workspace_id, name=name, revision="main")
        )
        await _change(place, node, name)
        await _change(place, node, "")
    return [
        Row.of_times(
            f"{name} on main, {count} forks", await timed(call, rounds), "without forks", small[name], most=1.5
        )
        for name, call in calls.items()
    ]


async def _nested(place: World, depth: int, rounds: int) -> list[Row]:
    """Reads on a branch that was made from a branch, which was made from a branch and so on, beside the default one."""
    archive = Archive(new_id(), "notes")
    entries = _tree(archive, 200)
    await _commit(place, entries)
    branch = ""
    for number in range(depth):
        made = await place.history.create_branch(
            history_service_pb2.CreateBranchRequest(
                workspace=place.workspace_id, name=f"nested-{number}", revision=branch
            )
        )
        branch = made.branch.name
        await _change(place, entries[1], branch)
    calls = {
        "ListChildren": lambda at: place.nodes.list_children(
            node_service_pb2.ListChildrenRequest(workspace=place.workspace_id, archive=archive.id, revision=at)
        ),
        "GetTree": lambda at: place.nodes.get_tree(
            node_service_pb2.GetTreeRequest(workspace=place.workspace_id, archive=archive.id, revision=at)
        ),
        "search": lambda at: place.nodes.search_nodes(
            node_service_pb2.SearchNodesRequest(workspace=place.workspace_id, query="note 17", revision=at)
        ),
    }
    rows = []
    for name, call in calls.items():
        large, small = await paired(partial(call, branch), partial(call, "main"), rounds)
        rows.append(Row.of_times(f"{name}, a branch {depth} branches away", large, "the default branch", small))
    return rows


async def _sessions(many: World, few: World, count: int, rounds: int) -> list[Row]:
    """A workspace with many open sessions beside one with few; alternately, since most of the time is the disk's."""
    calls: dict[str, list[Call]] = {"a commit": [], "OpenSession": []}
    for place in (many, few):
        entries = _tree(Archive(new_id(), "notes"), 20)
        await _commit(place, entries)
        calls["a commit"].append(partial(_change, place, entries[1], ""))
        calls["OpenSession"].append(partial(_open, place))
    for _ in range(count):
        await _open(many)
    rows = []
    for name, (large, small) in calls.items():
        ours, theirs = await paired(large, small, rounds)
        work = f"{name}, {count:,} open sessions"
        rows.append(Row.of_times(work, ours, "in a workspace with few", theirs, most=1.2))
    return rows


async def _chain(place: World, rounds: int) -> list[Row]:
    """A chain as deep as the limit allows, beside as many roots."""
    depth = place.settings.max_depth
    flat, deep = Archive(new_id(), "flat"), Archive(new_id(), "deep")
    roots = _tree(flat, depth)
    chain: list[Entry] = [deep]
    parent = None
    for number in range(depth):
        node = Node(new_id(), deep.id, parent, "a0", "note", f"Level {number}", "", "", f"What level {number} says.")
        chain.append(node)
        parent = node.id
    await _commit(place, [*roots, *chain])
    rows = []
    for name, call in {
        "GetTree": lambda archive, _: place.nodes.get_tree(
            node_service_pb2.GetTreeRequest(workspace=place.workspace_id, archive=archive, max_nodes=1000)
        ),
        "GetNode": lambda _, node: place.nodes.get_node(
            node_service_pb2.GetNodeRequest(workspace=place.workspace_id, node_id=node)
        ),
        "search": lambda archive, _: place.nodes.search_nodes(
            node_service_pb2.SearchNodesRequest(workspace=place.workspace_id, query="says", archives=[archive])
        ),
    }.items():
        small = await timed(partial(call, flat.id, roots[-1].id), rounds)
        large = await timed(partial(call, deep.id, chain[-1].id), rounds)
        rows.append(Row.of_times(f"{name}, a chain of {depth}", large, f"{depth} roots", small))
    return rows


async def _blocking(place: World, changes: int) -> list[Row]:
    """How long other calls wait for the event loop while one commit of many changes is made."""
    archive = Archive(new_id(), "notes")
    entries = _tree(archive, changes)
    await _commit(place, entries)
    opened = await _open(place)
    nodes = [entry for entry in entries if isinstance(entry, Node)]
    for start in range(0, changes, 500):
        await place.nodes.batch_change_nodes(
            node_service_pb2.BatchChangeNodesRequest(
                workspace=place.workspace_id,
                session_id=opened,
                changes=[
                    node_service_pb2.NodeChange(
                        update=node_service_pb2.UpdateNodeRequest(node_id=node.id, title=f"{node.title} again")
                    )
                    for node in nodes[start : start + 500]
                ],
            )
        )
    # The branch moves, so that every change is merged.
    await _commit(place, [replace(node, content=node.content + " More.") for node in nodes])
    waits: list[float] = []
    ended = asyncio.Event()

    async def listen() -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            await asyncio.sleep(_PAUSE)
            waits.append(time.perf_counter() - begun - _PAUSE)

    listening = asyncio.create_task(listen())
    begun = time.perf_counter()
    await place.sessions.commit_changes(
        session_service_pb2.CommitChangesRequest(
            workspace=place.workspace_id, session_id=opened, message="Retitle everything"
        )
    )
    seconds = time.perf_counter() - begun
    ended.set()
    await listening
    longest = max(waits) * 1000
    return [
        Row(f"a commit of {changes:,} merged changes", seconds * 1000, "ms"),
        Row(
            f"longest wait of others beside a commit of {changes:,} changes",
            longest,
            "ms",
            budget="≤ 50 ms",
            met=longest <= 50,
        ),
    ]


async def _commit(place: World, entries: list[Entry]) -> None:
    await commit_entries(place.store, place.workspace_id, "main", entries, "Import")
    await place.store.indexer.current(place.workspace_id)
    async with place.store.database.connection() as conn:  # as autovacuum does soon after such a commit
        await conn.execute("analyze mirror.version")
        await conn.execute("analyze mirror.placement")


async def _open(place: World, branch: str = "") -> str:
    request = session_service_pb2.OpenSessionRequest(workspace=place.workspace_id, branch=branch)
    return (await place.sessions.open_session(request)).session.id


async def _change(place: World, node: Entry, branch: str) -> None:
    """Change a node on a branch: a session, an edit, a commit."""
    opened = await _open(place, branch)
    await place.nodes.update_node(
        node_service_pb2.UpdateNodeRequest(
            workspace=place.workspace_id, session_id=opened, node_id=node.id, title=f"Title {time.time_ns()}"
        )
    )
    await place.sessions.commit_changes(
        session_service_pb2.CommitChangesRequest(workspace=place.workspace_id, session_id=opened, message="Change")
    )
    await place.sessions.discard_session(
        session_service_pb2.DiscardSessionRequest(workspace=place.workspace_id, session_id=opened)
    )
