"""Trees that git breaks: a merge without conflicts deletes a parent here and adds a child there."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.clones import Clone
from integration.damage import differences
from integration.pushes import push, push_files
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.postgres import misplaced, views
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.views import ViewKey
from memotree_storage.verify import trees

from memotree.canvas import NodeOperations, view_rendering
from memotree.maintenance import MaintenanceOperations
from memotree.request.lookup import ArchiveNotFoundError
from memotree.v1 import maintenance_service_pb2 as maintenance_pb
from memotree.v1 import node_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("STORE-4", "STORE-8"), pytest.mark.own_store]


async def pushed(world: World, *entries: Entry, files: Mapping[str, bytes | None] | None = None) -> None:
    """Push entries, or files by their paths."""
    if entries:
        push(world, "main", *entries)
    if files:
        push_files(world, files)
    await world.store.catch_up(world.workspace)


def nodes_of(world: World) -> NodeOperations:
    return NodeOperations(world.store, world.pages, world.limits)


async def roots(world: World, archive: str = "", revision: str = "") -> list[str]:
    """The roots of an archive, the one of the world if none is given."""
    request = node_service_pb2.ListChildrenRequest(
        workspace=world.workspace, revision=revision, archive=archive or world.archive.id
    )
    return [node.id for node in (await nodes_of(world).list_children(request)).nodes]


async def listed_faults(world: World, **fields: Any) -> maintenance_pb.ListFaultsResponse:
    """The answer of ListFaults."""
    request = maintenance_pb.ListFaultsRequest(workspace=world.workspace, **fields)
    return await MaintenanceOperations(world.store, world.pages, world.limits).list_faults(request)


async def move(world: World, **fields: Any) -> None:
    """Move a node in a session of its own, and commit."""
    session_id = await world.open()
    request = node_service_pb2.MoveNodeRequest(workspace=world.workspace, session_id=session_id, **fields)
    await nodes_of(world).move_node(request)
    await world.commit(session_id)


async def test_a_child_whose_parent_a_merge_deleted_is_named_and_can_be_moved(world: World, tmp_path: Path) -> None:
    parent = world.node("Parent")
    child = world.node("Child", parent=parent)
    start = await world.put(parent)
    clone = Clone(tmp_path / "clone", world.repository.path)
    clone.run("checkout", "-q", "-b", "side", start)
    clone.commit(child)
    clone.run("checkout", "-q", "main")
    clone.run("rm", "-q", entry_path(parent))
    clone.run("commit", "-q", "-m", "Delete the parent")
    clone.run("merge", "-q", "--no-edit", "side")
    clone.run("push", "-q", "origin", "main")
    await world.store.catch_up(world.workspace)

    (found,) = await differences(world)
    assert (found.store, found.what, found.node_id, found.commit_id) == ("git", "tree", child.id, await world.head())
    assert f"stands below {parent.id}" in found.description
    assert f"({entry_path(child)}:4)" in found.description
    assert "MoveNode" in found.description
    assert await roots(world) == [child.id], "it is shown until somebody mends it"
    (listed,) = (await listed_faults(world)).faults
    assert (listed.kind, listed.node_id, listed.title) == (maintenance_pb.FAULT_KIND_ORPHAN, child.id, "Child")
    assert (listed.path, listed.line) == (entry_path(child), 4)
    assert listed.description == f"The node stands below {parent.id}, which is deleted or was never there."
    assert "MoveNode" in listed.way_out
    status = await MaintenanceOperations(world.store, world.pages, world.limits).get_status(
        maintenance_pb.GetStatusRequest()
    )
    assert [(each.workspace_id, each.count) for each in status.faults] == [(world.workspace, 1)]
    broken = await world.head()
    await move(world, node_id=child.id, parent_id="", archive_id=world.archive.id)
    assert await differences(world) == []
    assert not (await listed_faults(world)).faults
    assert (await listed_faults(world, revision=broken)).faults, "of another commit"


async def test_a_new_child_below_a_node_without_its_parent_stands_where_that_is_shown(world: World) -> None:
    orphan = world.node("Orphan", parent=world.node("Never there"))
    await pushed(world, orphan)
    session_id = await world.open()
    nodes = nodes_of(world)
    request = node_service_pb2.CreateNodeRequest(
        workspace=world.workspace, session_id=session_id, parent_id=orphan.id, title="Child"
    )
    made = (await nodes.create_node(request)).node
    await world.commit(session_id)
    seen = (await nodes.get_node(node_service_pb2.GetNodeRequest(workspace=world.workspace, node_id=made.id))).node
    assert list(seen.path) == [orphan.id], "what is gone is in no path"
    assert orphan.id in await roots(world)
    assert [each.node_id for each in await differences(world)] == [orphan.id]
    assert [each.node_id for each in (await listed_faults(world)).faults] == [orphan.id]
    await move(world, node_id=orphan.id, archive_id=world.archive.id)
    assert await differences(world) == []


async def test_what_stands_nowhere_can_be_edited_before_it_is_moved(world: World) -> None:
    """Its text has nothing to do with its place; and what a commit breaks itself is still refused."""
    gone = Archive(new_id(), "gone")
    parent = world.node("Parent")
    child = world.node("Child", parent=parent)
    orphan, lost = world.node("Orphan", parent=world.node("Never there")), world.node("Lost", archive_id=gone.id)
    elsewhere = replace(world.node("Elsewhere", parent=parent), archive_id=gone.id)
    await pushed(world, parent, child, orphan, lost, elsewhere)
    told = await differences(world)
    assert {each.node_id for each in told} == {orphan.id, lost.id, elsewhere.id}
    edited = [replace(node, content="Edited.") for node in (orphan, lost, elsewhere)]
    await world.put(*edited)
    assert {each.node_id for each in await differences(world)} == {orphan.id, lost.id, elsewhere.id}
    await move(world, node_id=lost.id, position=0)
    await move(world, node_id=orphan.id, position=0)
    assert (await roots(world))[:2] == [orphan.id, lost.id]
    assert {each.node_id for each in await differences(world)} == {elsewhere.id}
    session_id = await world.open()
    await world.stage(session_id, replace(child, content="Edited."), delete=[parent])
    with pytest.raises(ConflictError):
        await world.commit(session_id)


async def test_each_kind_of_fault_is_named_once_with_its_line_and_a_way_out(world: World) -> None:
    one, two, below, lost, astray = (world.node(title) for title in ("One", "Two", "Below", "Lost", "Astray"))
    other = Archive(new_id(), "others")
    await world.put(one, two, below, lost, astray, other)
    await pushed(
        world,
        replace(one, parent_id=two.id),
        replace(two, parent_id=one.id),
        replace(below, parent_id=two.id),
        replace(lost, archive_id=new_id()),
        replace(astray, archive_id=other.id, parent_id=lost.id),
        Archive(new_id(), other.name),
    )
    told: dict[str, list[str]] = {}
    for found in await differences(world):
        told.setdefault(found.node_id, []).append(found.description)
    assert all(len(sentences) == 1 for sentences in told.values())
    said = {node.title: told[node.id][0] for node in (one, two, below, lost, astray)}
    assert all("in a cycle" in said[title] for title in ("One", "Two", "Below"))
    assert "is deleted or was never there" in said["Lost"]
    assert "in another archive than the node above it" in said["Astray"]
    assert sum("has the name of another archive" in sentence for (sentence,) in told.values()) == 2
    assert all(".md:" in sentence for (sentence,) in told.values())
    listed = (await listed_faults(world)).faults
    assert {fault.node_id for fault in listed} <= told.keys(), "of a cycle, only the node that is shown as a root"
    taken = [fault for fault in listed if fault.kind == maintenance_pb.FAULT_KIND_NAME_TAKEN]
    assert [fault.title for fault in taken] == [other.name] * 2


async def test_a_fault_of_two_branches_at_one_commit_is_told_once(world: World) -> None:
    await pushed(world, world.node(parent=new_id()))
    assert world.repository.move_ref("refs/heads/side", None, await world.head())
    await world.store.catch_up(world.workspace)
    (found,) = await differences(world)
    assert "on main, side" in found.description


async def test_a_node_whose_archive_was_taken_stands_in_the_first_one_or_in_the_next_that_is_made(world: World) -> None:
    other = Archive(new_id(), "zebra")
    await world.put(other)
    lost = world.node("Lost", archive_id=other.id)
    await pushed(world, files={entry_path(lost): encode_entry(lost), entry_path(other): None})
    assert await roots(world) == [lost.id]
    (listed,) = (await listed_faults(world)).faults
    assert listed.kind == maintenance_pb.FAULT_KIND_NO_ARCHIVE
    await move(world, node_id=lost.id, parent_id="", archive_id=world.archive.id)
    assert not (await listed_faults(world)).faults
    assert await roots(world) == [lost.id]
    await pushed(world, files={entry_path(world.archive): None})
    (listed,) = (await listed_faults(world)).faults
    assert (listed.kind, listed.node_id) == (maintenance_pb.FAULT_KIND_NO_ARCHIVE, lost.id)
    with pytest.raises(ArchiveNotFoundError):
        await move(world, node_id=lost.id, parent_id="")
    await world.put(made := Archive(new_id(), "made"))
    assert await roots(world, made.id) == [lost.id], "it stands in the next one that is made"
    await move(world, node_id=lost.id, parent_id="")
    assert not (await listed_faults(world)).faults
    assert await roots(world, made.id) == [lost.id]


async def test_an_archive_is_deleted_without_the_nodes_of_others_that_are_shown_in_it(world: World) -> None:
    other, last = Archive(new_id(), "zebra"), Archive(new_id(), "zulu")
    own = world.node("Own")
    await world.put(other, last, own)
    lost = world.node("Lost", archive_id=other.id)
    below = world.node("Below", parent=lost, archive_id=other.id)
    await pushed(
        world, files={entry_path(each): encode_entry(each) for each in (lost, below)} | {entry_path(other): None}
    )
    assert sorted(await roots(world)) == sorted([own.id, lost.id])
    session_id = await world.open()
    request = workspace_service_pb2.DeleteArchiveRequest(
        workspace=world.workspace, session_id=session_id, archive=world.archive.id
    )
    deleted = await WorkspaceOperations(world.store, world.pages, world.limits).delete_archive(request)
    assert deleted.deleted_nodes == 1
    assert any("stay" in warning and lost.id in warning for warning in deleted.warnings)
    await world.commit(session_id)
    assert await roots(world, last.id) == [lost.id]
    assert {lost.id, below.id} <= (await world.alive(await world.head())).keys()


async def test_a_view_shows_what_stands_nowhere_where_listings_have_it(world: World) -> None:
    """By the archive that a root is shown in, whatever the files of the nodes below it say."""
    gone, other = Archive(new_id(), "gone"), Archive(new_id(), "zebra")
    await world.put(gone, other)
    lost = world.node("Lost", archive_id=gone.id)
    below = world.node("Below", archive_id=gone.id, parent=lost)
    astray = world.node("Astray", archive_id=other.id, parent=below)
    files = {entry_path(node): encode_entry(node) for node in (lost, below, astray)}
    await pushed(world, files={**files, entry_path(gone): None})
    key = ViewKey(world.workspace, "main", "default")
    for archive, titles in (("", ["Lost", "Below", "Astray"]), ("notes", ["Lost", "Below", "Astray"]), ("zebra", [])):
        async with world.store.database.transaction() as conn:
            snapshot = Snapshot(conn, State(world.workspace, await world.head()))
            await views.set_levels(conn, key, {node.id: 2 for node in (below, astray)})
            shown = await view_rendering.shown(snapshot, key, archive)
        assert [node.version.title for node in shown.nodes] == titles
        assert [node.depth for node in shown.nodes] == list(range(len(titles)))
        assert shown.gone == []


async def test_of_a_cycle_one_node_is_shown_as_a_root_and_ends_it_when_it_is_moved(
    world: World,
) -> None:
    one, two, three = sorted(world.nodes(3), key=lambda node: node.id)
    await world.put(one, two, three)
    await pushed(
        world, replace(one, parent_id=three.id), replace(two, parent_id=one.id), replace(three, parent_id=two.id)
    )
    assert await roots(world) == [one.id]
    assert [fault.node_id for fault in (await listed_faults(world)).faults] == [one.id]
    session_id = await world.open()
    await world.stage(session_id, replace(one, parent_id=three.id, title="Edited, and where it was"))
    assert await roots(world, revision=session_id) == [one.id], "an edit alone takes it nowhere"
    await world.store.rebuild(world.workspace)
    assert await roots(world) == [one.id]
    assert {found.node_id for found in await differences(world)} == {one.id, two.id, three.id}
    await move(world, node_id=one.id, parent_id="", archive_id=world.archive.id)
    assert await differences(world) == []


async def test_files_that_cannot_be_read_are_listed_as_long_as_they_are_there(world: World) -> None:
    node, whole = world.nodes(2)
    await world.put(node, whole)
    never = sorted(f"nodes/{each[:2]}/{each[2:4]}/{each}.md" for each in (new_id() for _ in range(3)))
    for path in never:
        push_files(world, {path: b"no node"})
    await pushed(world, files={entry_path(node): b"---\nid: [\n---\n"})
    listed: list[maintenance_pb.Fault] = []
    token = ""
    while not listed or token:
        page = await listed_faults(world, page_size=2, page_token=token)
        listed += page.faults
        token = page.next_page_token
    assert {fault.kind for fault in listed} == {maintenance_pb.FAULT_KIND_UNREADABLE}
    assert [fault.path for fault in listed] == sorted([entry_path(node), *never])
    await pushed(world, node)
    await pushed(world, files={never[1]: None})
    assert [fault.path for fault in (await listed_faults(world)).faults] == [never[0], never[2]]


async def test_a_commit_looks_only_at_those_that_depend_on_it(world: World) -> None:
    parent, whole = world.node("Parent"), world.node("Whole")
    await world.put(parent, whole)
    orphans = [replace(node, parent_id=new_id()) for node in world.nodes(20)]
    ours = world.node("Ours", parent=parent)
    await pushed(
        world, files={entry_path(parent): None} | {entry_path(node): encode_entry(node) for node in [ours, *orphans]}
    )
    state = State(world.workspace, await world.head())
    async with world.store.database.connection() as conn:
        assert await misplaced.dependent(conn, state, [whole.id], archives=False) == set()
        assert await misplaced.dependent(conn, state, [parent.id], archives=False) == {ours.id}
        assert len(await misplaced.dependent(conn, state, [], archives=True)) == 21
    await world.put(parent)
    assert await roots(world) == [
        node.id for node in sorted([whole, parent, *orphans], key=lambda n: (n.position, n.id))
    ]
    listed = await listed_faults(world, page_size=1000)
    assert {fault.node_id for fault in listed.faults} == {node.id for node in orphans}
    assert {found.node_id for found in await differences(world)} == {node.id for node in orphans}


@pytest.mark.requirement("STORE-6")
async def test_no_hash_table_is_made_for_the_rows_that_postgresql_expects_of_a_recursion(world: World) -> None:
    """It expects trillions of some thousand nodes, and a table with room for them takes minutes to make."""
    await commit_entries(world.store, world.workspace, "main", world.nodes(3000), "Import")
    async with world.store.database.connection() as conn:
        await conn.execute("analyze mirror.version")
        arguments = {"workspace": world.workspace, "commit": await world.head(), "session": None, "limit": 10}
        row = await (await conn.execute(f"explain (format json) {trees._FAULTS}", arguments)).fetchone()
    assert row is not None
    hashed = [node["Plan Rows"] for node in _plan_nodes(row[0][0]["Plan"]) if node["Node Type"] == "Hash"]
    assert all(rows < 10_000_000 for rows in hashed)


def _plan_nodes(node: Any) -> Iterator[Any]:
    yield node
    for below in node.get("Plans", ()):
        yield from _plan_nodes(below)
