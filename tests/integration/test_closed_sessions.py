"""What can be done with a session whose branch was deleted, or that was not used for long, as the contract says."""

import pytest
from integration.wires import Wire
from integration.worlds import World

from memotree.v1 import session_service_pb2 as pb

pytestmark = [pytest.mark.requirement("CANVAS-15"), pytest.mark.own_store]


async def test_a_detached_session_is_read_and_discarded_as_a_whole_only(wire: Wire) -> None:
    await wire("CreateBranch", name="side")
    await wire.open(branch="side")
    node = await wire.create("Staged")
    await wire("DeleteBranch", name="side")
    assert (await wire("GetSession")).session.state == pb.SESSION_STATE_DETACHED
    assert [change.node_id for change in (await wire("ListChanges")).changes] == [node.id]
    assert (await wire.get(node.id)).title == "Staged"
    refused = [
        await wire.refused("DiscardChanges", node_ids=[node.id]),
        await wire.refused("RebaseSession"),
        await wire.refused("CommitChanges", message="m"),
        await wire.refused("CreateNode", archive_id="notes", title="More"),
    ]
    assert {(each.code, each.reason) for each in refused} == {("FAILED_PRECONDITION", "SESSION_CLOSED")}
    found = (await wire("DiscardSession")).session
    assert (found.state, found.change_count) == (pb.SESSION_STATE_DISCARDED, 0)


async def test_what_an_expired_session_staged_is_deleted_by_the_maintenance_or_by_discarding_it(world: World) -> None:
    named = {}
    for name in ("kept", "discarded"):
        named[name] = await world.open()
        await world.stage(named[name], world.node())
    async with world.store.database.transaction() as conn:
        await conn.execute("update work.session set used_at = now() - ttl * 2")
    requests = {
        name: pb.GetSessionRequest(workspace=world.workspace, session_id=session_id)
        for name, session_id in named.items()
    }
    for request in requests.values():
        found = (await world.sessions.get_session(request)).session
        assert (found.state, found.change_count) == (pb.SESSION_STATE_EXPIRED, 1)
    order = pb.DiscardSessionRequest(workspace=world.workspace, session_id=named["discarded"])
    assert (await world.sessions.discard_session(order)).session.state == pb.SESSION_STATE_DISCARDED
    await world.store.maintenance.tidy()
    found = (await world.sessions.get_session(requests["kept"])).session
    assert (found.state, found.change_count) == (pb.SESSION_STATE_EXPIRED, 0)
