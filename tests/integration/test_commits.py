"""Commits of a session: of all changes or some, at the same time as others, and once per request id."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from integration.wires import Refusal, Wire, family
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.node import new_id

from memotree.server.app import Server
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2


@pytest.mark.requirement("CANVAS-6", "GIT-2")
async def test_a_commit_has_author_time_message_reasons_trailers_and_tag(wire: Wire, wire_server: Server) -> None:
    node = await wire.create("The title", commit_message="I had an idea")
    await wire("UpdateNode", node_id=node.id, content="more", commit_message="It grew")
    when = datetime(2021, 5, 4, 3, 2, 1, tzinfo=UTC)
    stamp = Timestamp()
    stamp.FromDatetime(when)
    author = types_pb2.CommitAuthor(name="Ada", email="ada@example.org", timestamp=stamp)
    found = await wire(
        "CommitChanges",
        message="Say it\n\nIn more words.",
        author=author,
        create_tag=True,
        tag_name="v1",
        request_id="r-1",
    )
    assert (found.branch, found.tag_name, found.change_count, found.remaining_changes) == ("main", "v1", 1, 0)
    path = (await wire("GetWorkspace")).workspace.repository
    with GitRepository.open(Path(wire_server._settings.data_folder) / path) as git:
        info = git.commit_info(found.commit_id)
        assert (info.author.name, info.author.email, info.author.when) == ("Ada", "ada@example.org", when)
        assert info.committer.name == "MemoTree"
        subject, _, body = info.message.partition("\n")
        assert subject == "Say it"
        marks = (f"MemoTree-Session: {wire.session}\n", "MemoTree-Agent: tester\n", "MemoTree-Request: r-1\n")
        for part in ("In more words.", "The title", node.id, "I had an idea", "It grew", *marks):
            assert part in body
        tag = git.read_tag(git.refs()["refs/tags/v1"])
        assert tag is not None
        assert tag.name == "v1"
        assert git.refs()["refs/heads/main"] == found.commit_id
    assert (await wire.get(node.id, "v1")).commit_id == found.commit_id
    await wire.create()
    assert (await wire("GetCommit", revision=await wire.commit())).commit.author.name == "tester", "the session's agent"


@pytest.mark.requirement("CANVAS-6")
async def test_an_empty_session_and_an_existing_tag_are_refused(wire: Wire) -> None:
    refusal = await wire.refused("CommitChanges", message="Nothing")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NOTHING_TO_COMMIT")
    await wire.create()
    await wire.commit(create_tag=True, tag_name="v1")
    await wire.create()
    before = await wire.snapshot()
    refusal = await wire.refused("CommitChanges", message="Again", create_tag=True, tag_name="v1")
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "TAG_EXISTS")
    assert await wire.snapshot() == before
    node = await wire.create("Undone")
    await wire("DeleteNode", node_id=node.id)
    assert len((await wire("ListChanges")).changes) == 1, "what was made and unmade is no change"


@pytest.mark.requirement("CANVAS-6")
async def test_a_choice_of_nodes_is_committed_and_the_rest_stays_staged(wire: Wire) -> None:
    one, two = await wire.create("One"), await wire.create("Two")
    found = await wire("CommitChanges", message="One", specific_nodes=[one.id[:8]])
    assert (found.change_count, found.remaining_changes) == (1, 1)
    assert await wire.children(revision="") == [one.id]
    assert await wire.children() == [one.id, two.id]
    assert [change.node_id for change in (await wire("ListChanges")).changes] == [two.id]


@pytest.mark.requirement("CANVAS-6")
async def test_a_choice_that_would_leave_an_orphan_names_the_nodes_that_are_missing(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    refusal = await wire.refused("CommitChanges", message="Leaf", specific_nodes=[leaf.id])
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "INCOMPLETE_CHOICE")
    assert [(node.id, node.title) for node in refusal.nodes] == [(child.id, "Child")]
    await wire.commit()
    await wire("DeleteNode", node_id=root.id, recursive=True)
    refusal = await wire.refused("CommitChanges", message="Top only", specific_nodes=[root.id])
    assert (refusal.code, [node.id for node in refusal.nodes]) == ("FAILED_PRECONDITION", [child.id])
    refusal = await wire.refused("CommitChanges", message="Top only", specific_nodes=[root.id, child.id])
    assert [node.title for node in refusal.nodes] == ["Leaf"], "a deleted node is named by its last title"
    refusal = await wire.refused("CommitChanges", message="Unknown", specific_nodes=[new_id()])
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "CHANGE_NOT_FOUND")
    await wire.commit("All", specific_nodes=[root.id, child.id, leaf.id])
    assert await wire.tree("") == []


@pytest.mark.requirement("GIT-6", "STORE-2")
async def test_disjoint_edits_of_two_clients_at_once_are_both_committed(wire: Wire) -> None:
    node = await wire.create("Node", content="c")
    second = await wire.create("Second", content="It is red. It is small.")
    await wire.commit()
    other = await wire.other()
    await wire("UpdateNode", node_id=node.id, content="changed here")
    await wire("UpdateNode", node_id=second.id, content="It is blue. It is small.")
    await other("UpdateNode", node_id=node.id, title="Changed there")
    await other("UpdateNode", node_id=second.id, content="It is red. It is huge. Or not.")
    ids = await asyncio.gather(wire.commit("Here"), other.commit("There"))
    assert len(set(ids)) == 2
    found = await wire.get(node.id, "")
    assert (found.content, found.title) == ("changed here", "Changed there")
    assert (await wire.get(second.id, "")).content == "It is blue. It is huge. Or not."


@pytest.mark.requirement("STORE-2", "CANVAS-7")
async def test_edits_of_one_field_by_two_clients_at_once_conflict_without_losing_any(wire: Wire) -> None:
    node = await wire.create("Node", content="base")
    await wire.commit()
    other = await wire.other()
    await wire("UpdateNode", node_id=node.id, content="mine")
    await other("UpdateNode", node_id=node.id, content="yours")
    answers = await asyncio.gather(wire.commit("Mine"), other.commit("Yours"), return_exceptions=True)
    (error,) = (answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError))
    lost, first_won = Refusal.of(error), answers[1] is error
    assert (lost.code, lost.reason) == ("ABORTED", "CONFLICT")
    loser = other if first_won else wire
    conflict = lost.conflicts[0]
    assert (conflict.node_id, conflict.field, conflict.base_value.text) == (node.id, "content", "base")
    sides = [conflict.our_value.text, conflict.their_value.text]
    assert sides == (["yours", "mine"] if first_won else ["mine", "yours"])
    assert (await loser.get(node.id)).content == sides[0], "it is still staged"
    refusal = await loser.refused("RebaseSession")
    assert (refusal.code, len(refusal.conflicts)) == ("ABORTED", 1)
    await loser("DiscardChanges", node_ids=[node.id])
    await loser("RebaseSession")
    await loser("UpdateNode", node_id=node.id, content="both")
    await loser.commit("Both")
    assert (await wire.get(node.id, "")).content == "both"


@pytest.mark.requirement("STORE-2", "CANVAS-3")
async def test_a_repeated_change_with_its_request_id_happens_once(wire: Wire) -> None:
    fields: dict[str, Any] = {"archive_id": "notes", "title": "Once", "request_id": "a"}
    first, second = await asyncio.gather(wire("CreateNode", **fields), wire("CreateNode", **fields))
    assert first == second
    append = {"node_id": first.node.id, "mode": pb.UPDATE_MODE_APPEND, "content": "x", "request_id": "b"}
    for _ in range(3):
        await wire("UpdateNode", **append)
    assert (await wire.get(first.node.id)).content == "x"
    opened = [await wire("OpenSession", request_id="c") for _ in range(2)]
    assert opened[0] == opened[1]
