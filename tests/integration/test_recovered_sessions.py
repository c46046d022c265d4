"""A session whose commit lost PostgreSQL after its branch had moved goes on as if the commit had ended."""

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from integration.pushes import OpenAgain
from integration.sides import changes
from integration.worlds import World
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import PendingCommits
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node
from memotree_storage.postgres import staging
from memotree_storage.postgres.database import DatabaseUnavailableError
from memotree_storage.postgres.projector import EntryChange

from memotree.canvas import NodeOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.sessions import SessionOperations
from memotree.v1 import node_service_pb2, session_service_pb2

pytestmark = [pytest.mark.requirement("CANVAS-8", "STORE-2"), pytest.mark.own_store]


async def commit_and_lose(world: World, session_id: str, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Commit a session; PostgreSQL is lost right after the branch has moved, and no repair runs in the background."""

    publish = PendingCommits.publish

    async def lost(pending: PendingCommits, transaction: WorkspaceTransaction) -> None:
        await publish(pending, transaction)
        raise DatabaseUnavailableError("gone")

    def later(work: Coroutine[Any, Any, object]) -> None:
        work.close()

    with monkeypatch.context() as patch:
        patch.setattr(PendingCommits, "publish", lost)
        patch.setattr(world.store.background, "start", later)
        with pytest.raises(DatabaseUnavailableError):
            await world.commit(session_id, **fields)


async def staged(world: World, session_id: str) -> list[str]:
    return [change.title for change in await changes(world, session_id)]


async def retitle(world: World, session_id: str, node: Node, title: str) -> None:
    request = node_service_pb2.UpdateNodeRequest(
        workspace=world.workspace, session_id=session_id, node_id=node.id, title=title
    )
    await NodeOperations(world.store, world.pages, world.limits).update_node(request)


async def merging_session(world: World) -> tuple[str, Node]:
    """A session that changed the title of a node whose content another session changed on the branch."""
    (node,) = world.nodes(1)
    await world.put(node)
    session_id = await world.open()
    await world.stage(session_id, replace(node, title="Ours"))
    await world.put(replace(node, content="Theirs."))
    return session_id, node


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_merged_change_is_settled_and_a_later_edit_does_not_conflict_with_it(
    world: World, again: OpenAgain, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    session_id, node = await merging_session(world)
    await commit_and_lose(world, session_id, monkeypatch)
    if restarted:
        await world.store.close()
        async with again() as store:
            await edited_again(world.on(store), session_id, node)
    else:
        await edited_again(world, session_id, node)


async def edited_again(world: World, session_id: str, node: Node) -> None:
    await retitle(world, session_id, node, "Ours again")
    assert await staged(world, session_id) == ["Ours again"]
    commit_id = await world.commit(session_id)
    assert await staged(world, session_id) == []
    blob = (await world.alive(commit_id))[node.id]
    text = world.repository.read_blob(blob).decode()
    assert "title: Ours again" in text
    assert "Theirs." in text


async def test_a_change_that_does_not_fit_a_recovered_commit_is_marked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, other = world.nodes(3)
    await world.put(one, two, other)
    session_id = await world.open()
    await world.stage(session_id, replace(one, parent_id=two.id), replace(other, title="Other"))
    await world.put(replace(two, parent_id=one.id))
    await commit_and_lose(world, session_id, monkeypatch, specific_nodes=[other.id])
    await world.store.catch_up(world.workspace)
    (change,) = await changes(world, session_id)
    assert change.node_id == one.id
    assert ["cycle" in found.description for found in change.conflicts] == [True]


async def test_changes_that_were_not_chosen_stay_and_are_carried_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.nodes(2)
    await world.put(first, second)
    session_id = await world.open()
    await world.stage(session_id, replace(first, title="First of ours"), replace(second, title="Second of ours"))
    await world.put(replace(first, content="Theirs."), replace(second, content="Theirs too."))
    await commit_and_lose(world, session_id, monkeypatch, specific_nodes=[first.id])
    await world.store.catch_up(world.workspace)
    assert await staged(world, session_id) == ["Second of ours"]
    commit_id = await world.commit(session_id)
    for node, content in ((first, "Theirs."), (second, "Theirs too.")):
        text = world.repository.read_blob((await world.alive(commit_id))[node.id]).decode()
        assert "of ours" in text
        assert content in text


async def test_a_repeated_commit_with_new_summaries_leaves_nothing_staged(world: World) -> None:
    """The summaries that belong to the commit are made before it is known that the request has its commit already."""
    top, below = world.node("Top"), world.node("Below")
    await world.put(top, replace(below, parent_id=top.id))
    session_id = await world.open()
    await world.stage(session_id, replace(below, parent_id=top.id, content="Another content."))
    request = session_service_pb2.CommitChangesRequest(
        workspace=world.workspace, session_id=session_id, message="Once", request_id="once"
    )

    class _Summaries:
        """Stages a title in the place of summaries, whenever it is asked."""

        async def renew_for_commit(self, *_: object, **__: object) -> list[str]:
            return ["renewed"]

        async def stage(self, _: Any, session: Any, renewed: list[str]) -> list[str]:
            assert renewed == ["renewed"]
            stages.append(session.session_id)
            return []

        def notice(self, *_: object) -> None:
            return

    stages: list[str] = []
    operations = SessionOperations(
        *(world.store, world.pages, world.limits, _Summaries()),  # type: ignore[arg-type]
        resolver=ConflictResolution(world.store, world.limits),
    )
    first = await operations.commit_changes(request)
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")
    assert (await operations.commit_changes(request)).commit_id == first.commit_id
    assert stages == [session_id]
    assert await staged(world, session_id) == []


async def test_settling_removes_only_what_the_commit_contains(world: World) -> None:
    """A row that was edited again stays, and counts as derived from the commit."""
    nodes = world.nodes(3)
    base = await world.put(*nodes)
    session_id = await world.open()
    for title in ("First", "Last"):
        await world.stage(session_id, *(replace(node, title=title) for node in nodes))
    committed = [replace(node, title=title) for node, title in zip(nodes, ("Last", "First", "Other"), strict=True)]
    blobs = {entry.id: staging.blob_id(encode_entry(entry)) for entry in committed}
    async with world.store.database.transaction() as conn:
        settled = [EntryChange(entry.id, blobs[entry.id], entry) for entry in committed]
        await staging.settle(conn, world.workspace, session_id, base, settled)
        rows = {row.entry_id: row for row in await staging.staged(conn, session_id)}
    _as_staged, edited_again, otherwise = nodes
    assert {key: row.version.title for key, row in rows.items()} == {edited_again.id: "Last", otherwise.id: "Last"}
    assert rows[edited_again.id].derived_blob == blobs[edited_again.id]
    assert rows[otherwise.id].derived_blob != blobs[otherwise.id]
