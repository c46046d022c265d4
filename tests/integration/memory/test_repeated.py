"""A call with a request id that was used before: the first answer, or a refusal, and never a change that is lost."""

import asyncio
from typing import Any

import pytest
from by_hand import file_changes
from integration.memory.conftest import Memory
from memotree_storage.model import trailers
from memotree_storage.model.node import derived_id
from memotree_storage.model.trailers import with_trailers
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft, IndexUnavailableError
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2
from memotree.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-1")


async def test_a_repeated_revision_is_answered_although_its_query_finds_the_note_no_longer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the index does not answer."""

    async def refuse(*_: object) -> None:
        raise IndexUnavailableError("connection refused")

    await memory.remember("Deploys happen on Tuesday only.", title="Deploy window")
    await memory.remember("Ann leads the team.", title="Ann")
    query = {"query": "deploys on Tuesday", "title": "Release day", "text": "Ship on Friday only."}
    first = await memory.revise(**query, request_id="r")
    assert await memory.revise(**query, request_id="r") == first
    batch = pb.MemoryChange(revise=pb.ReviseRequest(query="ship on Friday", title="Release", text="Never."))
    changed = await memory.change(batch, request_id="b")
    assert await memory.change(batch, request_id="b") == changed
    for _ in range(2):
        await memory.remember("Lunch is at noon.", title="Lunch", find_similar=False)
    gone = await memory.forget(query="lunch at noon", request_id="f")
    monkeypatch.setattr(memory.store.search, "find", refuse)
    assert await memory.revise(**query, request_id="r") == first
    assert await memory.forget(query="lunch at noon", request_id="f") == gone


async def test_a_call_whose_first_one_ends_meanwhile_gets_its_answer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.remember("Deploys happen on Tuesday only.", title="Deploy window")
    find = memory.store.search.find
    query = {"query": "deploys on Tuesday", "title": "Release day", "text": "Ship on Friday only.", "request_id": "r"}
    first = []

    async def find_after_the_first_call(*arguments: object) -> object:
        monkeypatch.setattr(memory.store.search, "find", find)
        first.append(await memory.revise(**query))
        return await find(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(memory.store.search, "find", find_after_the_first_call)
    assert await memory.revise(**query) == first[0]


async def test_a_repeated_call_is_answered_although_its_branch_is_gone(
    memory: Memory, history: HistoryOperations
) -> None:
    named: dict[str, Any] = {"workspace": memory.world.workspace, "name": "trial"}
    await history.create_branch(history_service_pb2.CreateBranchRequest(**named))
    first = await memory.remember("Only here.", branch="trial", request_id="r")
    await history.delete_branch(history_service_pb2.DeleteBranchRequest(**named))
    assert await memory.remember("Only here.", branch="trial", request_id="r") == first


async def test_a_request_id_in_the_history_of_another_branch_swallows_nothing(memory: Memory) -> None:
    """Such a commit comes with a push from another workspace that used the same id."""
    secret = await memory.remember("A secret.")
    repository = memory.repository
    head = await memory.world.head()
    for tool in ("Forget", "Remember"):
        marked = with_trailers("From elsewhere", {trailers.TOOL: tool, trailers.REQUEST: f"nightly {tool}"})
        changes = file_changes(repository, head, {secret.node.id: None})
        pushed = repository.write_commit(CommitDraft(head, changes, marked, service_signature(), service_signature()))
        assert repository.move_ref(f"refs/heads/imported-{tool}", None, pushed.commit_id)
    await memory.store.catch_up(memory.world.workspace)
    kept = await memory.remember("A fact.", request_id="nightly Remember")
    assert kept.commit_id == await memory.world.head() != head
    forgotten = await memory.forget(secret.node.id, request_id="nightly Forget")
    assert list(forgotten.forgotten_ids) == [secret.node.id]
    assert secret.node.id not in await memory.world.alive(await memory.world.head())


async def test_a_request_id_that_was_used_long_ago_for_other_arguments_is_refused(memory: Memory) -> None:
    note = await memory.remember("A fact.", request_id="r")
    other = await memory.remember("Another one.")
    await memory.revise(node_id=note.node.id, text="Revised.", request_id="s")
    await memory.forget(other.node.id, request_id="t")
    head = await memory.world.head()
    async with memory.store.database.connection() as conn:  # as their retention does
        await conn.execute("delete from work.request where workspace_id = %s", (memory.world.workspace,))
    for call in (
        memory.remember("A different fact.", request_id="r"),
        memory.revise(node_id=note.node.id, text="Otherwise.", request_id="s"),
        memory.forget(note.node.id, request_id="t"),
    ):
        with pytest.raises(RequestIdReusedError):
            await call
    assert await memory.world.head() == head
    assert (await memory.remember("A fact.", request_id="r")).commit_id == note.commit_id
    await memory.world.put(memory.world.node("Taken", id=derived_id(memory.world.workspace, "u", 0)))
    with pytest.raises(RequestIdReusedError):
        await memory.remember("A fact.", request_id="u")


async def test_the_same_call_twice_at_once_takes_effect_once(memory: Memory) -> None:
    first, second = await asyncio.gather(
        memory.remember("Once only.", request_id="r"), memory.remember("Once only.", request_id="r")
    )
    assert first == second


async def test_a_query_whose_answer_was_lost_is_answered_from_its_commit(memory: Memory) -> None:
    for title in ("Lunch", "Lunch", "Tea", "Tea"):
        await memory.remember(f"{title} is at noon.", title=title, find_similar=False)
    parent = (await memory.remember("Rules of the house.", title="Rules")).node.id
    below = memory.world.node("No shoes", parent_id=parent, content="Shoes stay outside.")
    await memory.world.put(below)
    changed = [
        pb.MemoryChange(revise=pb.ReviseRequest(query="tea", text="Tea is at four.", find_similar=False)),
        pb.MemoryChange(forget=pb.ForgetRequest(query="rules of the house", recursive=True)),
        pb.MemoryChange(revise=pb.ReviseRequest(query="lunch", text="Lunch is at one.", find_similar=False)),
    ]
    first = await memory.change(*changed, request_id="r")
    async with memory.store.database.connection() as conn:
        await conn.execute("delete from work.request where workspace_id = %s", (memory.world.workspace,))
    again = await memory.change(*changed, request_id="r")
    assert again.commit_id == first.commit_id
    assert [sorted(result.node_ids) for result in again.results] == [sorted(one.node_ids) for one in first.results]
    assert list(again.results[1].node_ids) == [parent, below.id]
