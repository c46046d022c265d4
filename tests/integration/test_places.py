"""Sessions, archives and workspaces: created, read, listed, closed."""

from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from integration.wires import Wire, family
from memotree_storage.model.node import new_id

from memotree.server.app import Server
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2


@pytest.mark.requirement("CANVAS-15", "STORE-5")
async def test_staged_changes_are_seen_in_their_session_alone(wire: Wire) -> None:
    node = await wire.create("Secret", content="zebra")
    other = await wire.other()
    for revision in ("", other.session):
        assert (await wire.refused("GetNode", node_id=node.id, revision=revision)).code == "NOT_FOUND"
        assert await wire.search("zebra", revision) == []
        assert await wire.children(revision=revision) == []
    assert (await wire.get(node.id)).title == "Secret"


@pytest.mark.requirement("CANVAS-15")
async def test_a_session_lists_its_changes(wire: Wire) -> None:
    kept, gone = await wire.create("Kept", content="c"), await wire.create("Gone")
    await wire.commit()
    await wire("UpdateNode", node_id=kept.id, title="Renamed", commit_message="first")
    await wire("MoveNode", node_id=kept.id, position=1, commit_message="second")
    await wire("DeleteNode", node_id=gone.id)
    new = await wire.create("New")
    changes = {change.node_id: change for change in (await wire("ListChanges")).changes}
    assert {key: change.kind for key, change in changes.items()} == {
        kept.id: types_pb2.CHANGE_KIND_UPDATED,
        gone.id: types_pb2.CHANGE_KIND_DELETED,
        new.id: types_pb2.CHANGE_KIND_CREATED,
    }
    assert list(changes[kept.id].fields) == ["title", "position"]
    assert list(changes[kept.id].commit_messages) == ["first", "second"]
    assert list(changes[kept.id].tools) == ["MoveNode", "UpdateNode"]
    assert changes[gone.id].title == "Gone"
    assert (await wire("GetSession")).session.change_count == 3
    first = await wire("ListChanges", page_size=2)
    rest = await wire("ListChanges", page_size=2, page_token=first.next_page_token)
    assert [change.node_id for change in [*first.changes, *rest.changes]] == sorted(changes)
    assert not rest.next_page_token


@pytest.mark.requirement("CANVAS-15")
async def test_some_changes_can_be_discarded_when_the_others_do_not_need_them(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    refusal = await wire.refused("DiscardChanges", node_ids=[child.id])
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "INCOMPLETE_CHOICE")
    assert [node.id for node in refusal.nodes] == [leaf.id], "what must be discarded too"
    refusal = await wire.refused("DiscardChanges", node_ids=[root.id])
    assert [node.id for node in refusal.nodes] == sorted([child.id, leaf.id]), "also what these are needed by"
    refusal = await wire.refused("DiscardChanges", node_ids=[new_id()])
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "CHANGE_NOT_FOUND")
    found = await wire("DiscardChanges", node_ids=[child.id, leaf.id])
    assert found.session.change_count == 1
    assert await wire.children() == [root.id]


@pytest.mark.requirement("CANVAS-15")
async def test_a_refused_discard_names_the_archive_that_took_a_name_and_the_deletion_above(wire: Wire) -> None:
    archive = (await wire("CreateArchive", name="a")).archive
    top = await wire.create("Top")
    child = await wire.create("Child", parent_id=top.id)
    await wire.commit()
    await wire("UpdateArchive", archive="a", name="b")
    other = (await wire("CreateArchive", name="a")).archive
    refusal = await wire.refused("DiscardChanges", node_ids=[archive.id])
    assert [node.id for node in refusal.nodes] == [other.id]
    await wire("MoveNode", node_id=child.id, parent_id="", archive_id="notes")
    await wire("DeleteNode", node_id=top.id)
    refusal = await wire.refused("DiscardChanges", node_ids=[child.id])
    assert [node.id for node in refusal.nodes] == [top.id]
    found = await wire("DiscardChanges", node_ids=[archive.id, child.id, other.id, top.id])
    assert found.session.change_count == 0


@pytest.mark.requirement("CANVAS-15")
async def test_a_discarded_session_drops_its_changes_and_accepts_no_new_ones(wire: Wire) -> None:
    await wire.create("Node")
    found = await wire("DiscardSession")
    assert found.session.state == session_service_pb2.SESSION_STATE_DISCARDED
    assert found.session.change_count == 0
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Late")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "SESSION_CLOSED")
    assert (await wire.refused("CommitChanges", message="Late")).reason == "SESSION_CLOSED"
    assert wire.session not in [one.id for one in (await wire("ListSessions")).sessions]
    assert wire.session in [one.id for one in (await wire("ListSessions", include_closed=True)).sessions]


@pytest.mark.requirement("CANVAS-15")
async def test_an_idle_session_expires_and_use_keeps_it_alive(wire: Wire) -> None:
    await wire.open(ttl=Duration(nanos=1_000_000))
    found = (await wire("GetSession")).session
    while found.state != session_service_pb2.SESSION_STATE_EXPIRED:
        found = (await wire("GetSession")).session
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Late")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "SESSION_CLOSED")
    assert "expired" in refusal.message
    await wire.open(ttl=Duration(seconds=1000))
    before = (await wire("GetSession")).session
    await wire.create()
    after = (await wire("GetSession")).session
    assert after.expire_time.ToDatetime() > before.expire_time.ToDatetime()
    assert (await wire.refused("OpenSession", ttl=Duration(seconds=0))).fields == ("ttl",)


@pytest.mark.requirement("CANVAS-15")
async def test_archives_are_created_read_renamed_and_deleted_with_their_nodes(wire: Wire) -> None:
    made = (await wire("CreateArchive", name="plans", model_id="model", description="What is to come.")).archive
    assert (await wire("GetArchive", revision=wire.session, archive=made.id[:5])).archive == made
    assert (await wire("GetArchive", revision=wire.session, archive="plans")).archive == made
    refusal = await wire.refused("CreateArchive", name="plans")
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "ARCHIVE_EXISTS")
    root = (await wire("CreateNode", archive_id="plans", title="Root")).node
    await wire("CreateNode", parent_id=root.id, title="Child")
    renamed = (await wire("UpdateArchive", archive="plans", name="ideas")).archive
    assert (renamed.id, renamed.name, renamed.model_id) == (made.id, "ideas", "model")
    refusal = await wire.refused("UpdateArchive", archive="ideas", name="notes")
    assert refusal.reason == "ARCHIVE_EXISTS"
    refusal = await wire.refused("UpdateArchive", archive="ideas", description="d", etag=made.etag)
    assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
    await wire.commit("Ideas")
    assert [archive.name for archive in (await wire("ListArchives")).archives] == ["ideas", "notes"]
    assert (await wire("DeleteArchive", archive="ideas")).deleted_nodes == 2
    await wire.commit("No ideas")
    assert [archive.name for archive in (await wire("ListArchives")).archives] == ["notes"]
    assert (await wire.refused("GetNode", node_id=root.id)).code == "NOT_FOUND"


@pytest.mark.requirement("CANVAS-15")
async def test_workspaces_are_read_renamed_and_deleted_into_the_trash(wire: Wire, wire_server: Server) -> None:
    node = await wire.create("Node")
    await wire.commit()
    found = (await wire("GetWorkspace")).workspace
    assert (found.name, found.default_branch) == (wire.workspace, "main")
    assert wire.workspace in [one.name for one in (await wire("ListWorkspaces", page_size=1000)).workspaces]
    renamed = f"{wire.workspace}-2"
    await wire("UpdateWorkspace", name=renamed, description="Renamed.")
    assert (await wire.refused("GetWorkspace")).reason == "WORKSPACE_NOT_FOUND"
    again = (await wire("GetWorkspace", workspace=found.id)).workspace
    assert (again.id, again.name, again.description) == (found.id, renamed, "Renamed.")
    wire.workspace = renamed
    assert (await wire.get(node.id)).title == "Node"
    refusal = await wire.refused("DeleteWorkspace", confirm_name="something else")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NOT_CONFIRMED")
    trash = (await wire("DeleteWorkspace", confirm_name=renamed)).trash
    assert (Path(wire_server._settings.data_folder) / trash / "HEAD").is_file()
    assert (await wire.refused("GetNode", node_id=node.id)).code == "NOT_FOUND"


@pytest.mark.requirement("CANVAS-7")
async def test_the_content_of_a_summary_node_is_derived_and_cannot_be_edited(wire: Wire) -> None:
    node, note = await wire.create("Parent", type="summary_node"), await wire.create("Note", content="Mine.")
    for method, fields in (
        ("UpdateNode", {"node_id": note.id, "type": "summary_node"}),
        ("UpdateNode", {"node_id": node.id, "content": "mine"}),
        ("CreateNode", {"archive_id": "notes", "title": "x", "type": "summary_node", "content": "mine"}),
        ("SplitNode", {"node_id": node.id, "parts": [pb.SplitPart(title="a"), pb.SplitPart(title="b")]}),
    ):
        refusal = await wire.refused(method, **fields)
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "DERIVED_CONTENT")
