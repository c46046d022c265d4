"""What a revision names is known without a statement while its workspace does not change, and never out of date."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import memotree_storage
import pytest
from integration.histories import branch, delete_branch
from integration.pushes import push_files
from integration.statements import recorded
from integration.worlds import World
from memotree_storage.concurrency.locks import WatchedLocks
from memotree_storage.errors import NotFoundError
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.paths import entry_path
from memotree_storage.postgres import projector, refs, registry

from memotree.canvas import NodeOperations
from memotree.history import HistoryOperations
from memotree.memory import MemoryOperations
from memotree.v1 import history_service_pb2, memory_service_pb2, node_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("STORE-9", "STORE-2"), pytest.mark.own_store]

WRITERS: Final = (
    *((refs, name) for name in ("put_ref", "delete_ref", "set_refs")),
    *((registry, "put_workspace"), (projector, "project"), (projector, "forget")),
)
"""All functions that write the rows of workspaces and refs, as `test_only_these_functions_write_refs` says."""


class Nodes(NodeOperations):
    """The node tools, and the name of the workspace."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store, world.pages, world.limits)
        self.name = world.store.repositories.describe(world.workspace).name


@pytest.fixture
def nodes(world: World) -> Nodes:
    return Nodes(world)


async def title(nodes: Nodes, node_id: str, revision: str = "", workspace: str = "") -> str:
    request = node_service_pb2.GetNodeRequest(workspace=workspace or nodes.name, node_id=node_id, revision=revision)
    return (await nodes.get_node(request)).node.title


async def change(world: World, node: Any, text: str) -> str:
    return await world.put(replace(node, title=text))


async def test_a_node_that_was_read_before_takes_no_statement(world: World, nodes: Nodes) -> None:
    for revision in ("", "main", "refs/heads/main"):
        first, second = world.nodes(2)
        await world.put(first, second)
        assert await title(nodes, first.id, revision) == "Node 0"
        with recorded() as sent:
            assert await title(nodes, first.id, revision) == "Node 0"
        assert sent == [], revision
        with recorded() as sent:
            assert await title(nodes, second.id, revision) == "Node 1"
        assert len(sent) == 1, revision


async def test_a_read_after_a_commit_or_a_push_shows_it(world: World, nodes: Nodes) -> None:
    node = world.node("before")
    await world.put(node)
    assert await title(nodes, node.id) == "before"
    for number in range(3):
        await change(world, node, f"after {number}")
        assert await title(nodes, node.id) == f"after {number}"
        assert await title(nodes, node.id, "main", world.workspace) == f"after {number}"
    push_files(world, {entry_path(replace(node, title="after 2")): encode_entry(replace(node, title="pushed"))})
    await world.store.catch_up(world.workspace)
    assert await title(nodes, node.id) == "pushed"


async def test_a_read_during_a_commit_is_not_kept(world: World, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    node = world.node("before")
    await world.put(node)
    resolve = registry.resolve

    async def resolve_then_commit(*args: Any, **fields: Any) -> Any:
        found = await resolve(*args, **fields)
        monkeypatch.setattr(registry, "resolve", resolve)
        await change(world, node, "after")
        return found

    monkeypatch.setattr(registry, "resolve", resolve_then_commit)
    assert await title(nodes, node.id) == "before"
    assert await title(nodes, node.id) == "after"


async def test_while_a_workspace_is_held_its_branches_are_looked_up(world: World, nodes: Nodes) -> None:
    node = world.node("first")
    await world.put(node)
    await title(nodes, node.id)
    for _ in range(2):
        async with world.store.locks.workspaces.of(world.workspace):
            with recorded() as sent:
                await title(nodes, node.id)
        assert len(sent) == 1
    await title(nodes, node.id)
    with recorded() as sent:
        await title(nodes, node.id)
    assert sent == [], "another workspace may be held"


async def test_what_is_deleted_or_renamed_is_not_found(world: World, nodes: Nodes, history: HistoryOperations) -> None:
    node = world.node("first")
    commit_id = await world.put(node)
    workspaces = WorkspaceOperations(world.store, world.pages, world.limits)
    await branch(history, world, "side")
    for revision in ("side", commit_id, commit_id[:12]):
        assert [await title(nodes, node.id, revision) for _ in range(2)] == ["first", "first"]
    await delete_branch(history, world, "side")
    with pytest.raises(NotFoundError):
        await title(nodes, node.id, "side")
    assert await title(nodes, node.id) == "first"
    await workspaces.update_workspace(
        workspace_service_pb2.UpdateWorkspaceRequest(workspace=world.workspace, name="park")
    )
    with pytest.raises(NotFoundError):
        await title(nodes, node.id)
    assert [await title(nodes, node.id, workspace="park") for _ in range(2)] == ["first", "first"]
    await workspaces.delete_workspace(
        workspace_service_pb2.DeleteWorkspaceRequest(workspace="park", confirm_name="park")
    )
    with pytest.raises(NotFoundError):
        await title(nodes, node.id, workspace="park")


async def test_a_session_is_looked_up_each_time(world: World, nodes: Nodes) -> None:
    node = world.node("first")
    await world.put(node)
    session = await world.open()
    for text in ("first", "second", "third"):
        if text != "first":
            await world.stage(session, replace(node, title=text))
        assert await title(nodes, node.id, session) == text
    assert await title(nodes, node.id) == "first"


async def test_rows_of_a_workspace_are_written_only_while_it_is_held(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that moves a branch, or changes a workspace, holds its lock meanwhile."""
    locks, written = world.store.locks.workspaces, list[str]()
    for module, name in WRITERS:
        writer = getattr(module, name)

        async def watched(conn: Any, subject: Any, *args: Any, run: Any = writer, **fields: Any) -> Any:
            workspace_id = subject if isinstance(subject, str) else subject.workspace_id
            assert locks.of(workspace_id).locked(), run.__name__
            written.append(run.__name__)
            return await run(conn, subject, *args, **fields)

        monkeypatch.setattr(module, name, watched)
    node = world.node("first")
    await world.put(node)
    session = await world.open()
    await world.stage(session, world.node("second"))
    await world.commit(session)
    memory = MemoryOperations(world.store, world.limits)
    await memory.remember(memory_service_pb2.RememberRequest(workspace=world.workspace, text="A fact."))
    await branch(history, world, "side")
    await history.create_tag(history_service_pb2.CreateTagRequest(workspace=world.workspace, name="v1", message="One"))
    await history.delete_tag(history_service_pb2.DeleteTagRequest(workspace=world.workspace, name="v1"))
    await delete_branch(history, world, "side")
    push_files(world, {entry_path(node): None})
    await world.store.catch_up(world.workspace)
    await world.store.rebuild(world.workspace)
    await world.store.maintenance.tidy()
    workspaces = WorkspaceOperations(world.store, world.pages, world.limits)
    await workspaces.update_workspace(
        workspace_service_pb2.UpdateWorkspaceRequest(workspace=world.workspace, name="park")
    )
    await workspaces._register(world.workspace)
    await workspaces.delete_workspace(
        workspace_service_pb2.DeleteWorkspaceRequest(workspace="park", confirm_name="park")
    )
    await workspaces._forget(world.workspace)
    assert {name for _, name in WRITERS} == set(written)


def test_only_these_functions_write_refs() -> None:
    """And only these make, rename and delete workspaces; counts of rows, which others write, name nothing."""
    statement = re.compile(r"(insert into|update|delete from) mirror\.(ref|workspace)\b(?! set)")
    found = set[tuple[str, str]]()
    for file in Path(memotree_storage.__file__).parent.rglob("*.py"):
        found |= {(file.stem, match[0]) for match in statement.finditer(file.read_text(encoding="utf-8"))}
    assert found == {
        ("refs", "insert into mirror.ref"),
        ("projector", "insert into mirror.ref"),
        ("refs", "delete from mirror.ref"),
        ("registry", "insert into mirror.workspace"),
        ("projector", "delete from mirror.workspace"),
    }


async def test_a_watched_lock_tells_of_everybody_who_has_held_it() -> None:
    locks = WatchedLocks()

    async def hold() -> None:
        async with locks.of("a"):
            assert not locks.is_unchanged("a", locks.moment)

    before = locks.moment
    assert locks.is_unchanged("a", before)
    await hold()
    assert not locks.is_unchanged("a", before)
    assert locks.is_unchanged("a", locks.moment)
    assert locks.is_unchanged("b", before)
    during = list[int]()
    async with locks.of("a"):
        during.append(locks.moment)
        waiting = asyncio.create_task(hold())
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not locks.is_unchanged("a", during[0]), "what was read while it was held is not certain"
