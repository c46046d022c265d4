"""The details of a FAILED_PRECONDITION error, as the page of errors promises."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # the package ships no types
from integration.wires import Wire, family

from memotree.v1 import node_service_pb2 as pb


async def obstacle(wire: Wire, method: str, **fields: Any) -> tuple[str, str]:
    """The reason and subject of the only violation of a call that the state does not allow."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire(method, **fields)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    status = status_pb2.Status.FromString(dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"])
    failure = error_details_pb2.PreconditionFailure()
    assert [detail.Unpack(failure) for detail in status.details].count(True) == 1
    (only,) = failure.violations
    assert only.description in str(caught.value.details())
    return only.type, only.subject


@pytest.mark.requirement("CANVAS-6", "CANVAS-7", "SERVE-2")
async def test_a_failed_precondition_names_its_cause(wire: Wire) -> None:
    assert await obstacle(wire, "CommitChanges", message="Nothing") == ("NOTHING_TO_COMMIT", "")
    root, child, _ = await family(wire)
    assert await obstacle(wire, "DeleteNode", node_id=root.id) == ("HAS_CHILDREN", root.id)
    change = pb.NodeChange(delete=pb.DeleteNodeRequest(node_id=root.id))
    assert await obstacle(wire, "BatchChangeNodes", changes=[change]) == ("HAS_CHILDREN", root.id)
    chosen = {"message": "Half", "specific_nodes": [child.id]}
    assert await obstacle(wire, "CommitChanges", **chosen) == ("INCOMPLETE_CHOICE", "")
    made = await wire.create("Derived", type="summary_node")
    assert await obstacle(wire, "UpdateNode", node_id=made.id, content="x") == ("DERIVED_CONTENT", made.id)
    head = await wire.commit(create_tag=True, tag_name="release/one")
    await wire("CreateBranch", name="a/b")
    assert await obstacle(wire, "CreateBranch", name="a") == ("REF_NAME_TAKEN", "")
    await wire.create("Not committed")
    for name in ("release", "release/one/more"):  # git stores a ref as a file, so this would be a file and a folder
        tagged = {"message": "Tag it", "create_tag": True, "tag_name": name}
        assert await obstacle(wire, "CommitChanges", **tagged) == ("REF_NAME_TAKEN", "")
    assert (await wire("ListCommits", page_size=1)).commits[0].id == head
    assert (await wire("GetSession")).session.change_count == 1
