"""Remember, Revise, Forget and Restore: one call each, one commit each, and nothing left behind when one fails."""

import asyncio
from typing import Any

import pytest
from integration.memory.conftest import Memory
from integration.pushes import differences
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.trailers import trailers_of
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.registry import WorkspaceNotFoundError
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas.edits import HasChildrenError
from memotree.memory.asked import UnclearQueryError
from memotree.memory.restoring import HomeGoneError, NothingToRestoreError
from memotree.request.lookup import NodeNotFoundError
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError
from memotree.sessions.editing import StaleEtagError
from memotree.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-1")


async def content(memory: Memory, node_id: str, commit_id: str = "") -> str | None:
    state = State(memory.world.workspace, commit_id or await memory.world.head())
    async with memory.store.database.connection() as conn:
        version = (await tree.versions(Snapshot(conn, state), [node_id])).get(node_id)
    return None if version is None else (await memory.store.entries.node(memory.world.workspace, version)).content


async def test_one_call_makes_archive_note_and_commit(memory: Memory) -> None:
    made = await memory.remember(
        "The API retries at most five times.", tags=["api"], archive="facts", agent="planner", valid_from="2026-01-01"
    )
    assert made.node.title == "The API retries at most five times"
    assert made.node.commit_id == made.commit_id == await memory.world.head()
    assert made.branch == "main"
    assert list(made.node.tags) == ["api"]
    assert made.node.attributes["valid_from"] == "2026-01-01"
    assert made.node.summary == "The API retries at most five times."
    async with memory.store.database.connection() as conn:
        archive = await tree.archive_named(Snapshot(conn, State(memory.world.workspace, made.commit_id)), "facts")
    assert archive is not None
    assert archive.entry_id == made.node.archive_id
    assert await content(memory, made.node.id) == "The API retries at most five times."
    info = memory.repository.commit_info(made.commit_id)
    assert info.author.name == "planner"
    assert info.message.split("\n", 1)[0] == "Remember: The API retries at most five times"
    assert trailers_of(info.message) == {"MemoTree-Agent": "planner", "MemoTree-Tool": "Remember"}
    assert await memory.open_sessions() == 1  # of the world itself, closed
    assert await differences(memory.store, memory.world.workspace) == []


async def test_the_next_note_goes_into_the_same_archive(memory: Memory) -> None:
    first, second = await memory.remember("Tea is green."), await memory.remember("Coffee is black.")
    assert first.node.archive_id == second.node.archive_id == memory.world.archive.id  # it is called "notes"


async def test_a_note_may_say_what_it_is_about_and_what_it_supersedes(memory: Memory) -> None:
    ann = await memory.remember("Ann leads the team.", title="Ann")
    old = await memory.remember("The budget is 40k.", title="Budget")
    new = await memory.remember("The budget is 45k.", title="Budget", about=[ann.node.id[:8]], supersedes=[old.node.id])
    found = {(relation.type, relation.target_id) for relation in new.node.relations}
    assert {target for _, target in found} == {ann.node.id, old.node.id}
    with pytest.raises(NodeNotFoundError):
        await memory.remember("Of nobody.", about=["zzzzzzzzzzzzzzzz"])


async def test_similar_notes_are_told_and_nothing_is_merged(memory: Memory) -> None:
    first = await memory.remember("The billing API allows 100 requests per minute.")
    await memory.remember("Ann's birthday is on 12 May.")
    same = await memory.remember("The billing API allows 100 requests per minute")
    (told,) = same.similar
    assert (told.node.id, told.similarity) == (first.node.id, pb.SIMILARITY_DUPLICATE)
    assert told.score > 0.99
    other = await memory.remember("The billing API allows 250 requests per minute.", find_similar=True)
    assert {one.node.id for one in other.similar} == {first.node.id, same.node.id}
    assert {one.similarity for one in other.similar} == {pb.SIMILARITY_SUPERSEDED}
    assert not (await memory.remember("The cat sleeps on the sofa.")).similar
    assert not (await memory.remember("The cat sleeps on the sofa.", find_similar=False)).similar
    assert await content(memory, first.node.id) == "The billing API allows 100 requests per minute."


async def test_a_revision_replaces_the_text_and_keeps_the_id(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k a year.")
    revised = await memory.revise(node_id=made.node.id, text="The budget is 45k a year.", agent="ann")
    assert revised.node.id == made.node.id
    assert revised.node.title == "The budget is 45k a year"  # it was made from the text, so it follows
    assert revised.node.summary == "The budget is 45k a year."
    assert await content(memory, made.node.id) == "The budget is 45k a year."
    assert await content(memory, made.node.id, made.commit_id) == "The budget is 40k a year."
    assert await memory.subject() == "Revise: The budget is 45k a year"
    kept = await memory.revise(node_id=(await memory.remember("Ten seconds.", title="Timeout")).node.id, text="Nine.")
    assert kept.node.title == "Timeout"


async def test_a_revision_may_find_its_note_by_a_query(memory: Memory) -> None:
    made = await memory.remember("The budget of the team is 40k a year.", title="Budget")
    await memory.remember("The office is in Lisbon.", title="Office")
    by_title = await memory.revise(query="budget", text="The budget of the team is 45k a year.")
    assert by_title.node.id == made.node.id
    by_text = await memory.revise(query="budget of the team is 45k", text="The budget of the team is 50k a year.")
    assert by_text.node.id == made.node.id


async def test_a_query_that_may_mean_several_notes_is_refused_with_the_candidates(memory: Memory) -> None:
    names = ["Nora", "Pavel", "Quentin"]
    made = [(await memory.remember(f"0151 {n}", title=f"Phone number of {name}")).node for n, name in enumerate(names)]
    head = await memory.world.head()
    with pytest.raises(UnclearQueryError) as refused:
        await memory.revise(query="phone number", text="0152")
    assert {node.entry_id for node in refused.value.nodes} == {node.id for node in made}
    with pytest.raises(UnclearQueryError):
        await memory.revise(query="the capital of France", text="Paris")
    assert await memory.world.head() == head
    assert (await memory.revise(query="Phone number of Pavel", text="0152")).node.id == made[1].id


async def test_a_forgotten_note_comes_back_with_its_id_and_all_below_it(memory: Memory) -> None:
    top = memory.world.node("Top")
    below = memory.world.node("Below", parent=top)
    lowest = memory.world.node("Lowest", parent=below)
    await memory.world.put(top, below, lowest)
    before = await memory.world.alive(await memory.world.head())
    with pytest.raises(HasChildrenError):
        await memory.forget(top.id)
    gone = await memory.forget(top.id, recursive=True)
    assert gone.node.title == "Top"
    assert list(gone.forgotten_ids) == [top.id, below.id, lowest.id]
    assert top.id not in await memory.world.alive(gone.commit_id)
    back = await memory.restore(top.id)
    assert list(back.restored_ids) == [top.id, below.id, lowest.id]
    assert await memory.world.alive(back.commit_id) == before
    assert await memory.subject() == "Restore: Top"
    assert await differences(memory.store, memory.world.workspace) == []


@pytest.mark.requirement("USE-10")
async def test_a_forgotten_note_comes_back_by_the_title_that_it_had_last(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.", title="Budget")
    await memory.revise(node_id=made.node.id, title="Costs")
    await memory.forget(made.node.id)
    with pytest.raises(NoNodeNamedError, match="'Budget'"):
        await memory.restore("Budget")
    back = await memory.restore("Costs")
    assert back.node.id == made.node.id
    with pytest.raises(NothingToRestoreError, match="not forgotten"):
        await memory.restore("Costs")
    back = await memory.restore("Costs", revision=made.commit_id)
    assert (back.node.id, back.node.title) == (made.node.id, "Budget")


@pytest.mark.requirement("USE-10")
async def test_a_title_that_several_forgotten_notes_had_lists_them_with_their_ids(memory: Memory) -> None:
    made = [(await memory.remember(f"It is {number}.", title="Budget")).node.id for number in range(2)]
    for node_id in made:
        await memory.forget(node_id)
    with pytest.raises(AmbiguousNodeNameError) as refused:
        await memory.restore("Budget")
    assert sorted(node.entry_id for node in refused.value.nodes) == sorted(made)
    assert all(f"{node_id} (forgotten)" in refused.value.message for node_id in made)
    await memory.restore(made[0])
    assert (await memory.restore("Budget")).node.id == made[1]


async def test_a_note_is_set_back_to_a_revision_at_its_present_place(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.", title="Budget", tags=["money"])
    await memory.revise(node_id=made.node.id, text="The budget is 45k.", title="Costs")
    back = await memory.restore(made.node.id, revision=made.commit_id)
    assert (back.node.title, list(back.node.tags)) == ("Budget", ["money"])
    assert await content(memory, made.node.id) == "The budget is 40k."
    with pytest.raises(NothingToRestoreError):
        await memory.restore(made.node.id, revision=made.commit_id)
    with pytest.raises(NothingToRestoreError):
        await memory.restore(made.node.id)


async def test_what_stood_below_a_forgotten_note_asks_for_that_one_first(memory: Memory) -> None:
    top = memory.world.node("Top")
    below = memory.world.node("Below", parent=top)
    await memory.world.put(top, below)
    await memory.forget(below.id)
    await memory.forget(top.id)
    with pytest.raises(HomeGoneError, match=top.id):
        await memory.restore(below.id)
    await memory.restore(top.id)
    await memory.restore(below.id[:6])
    assert await content(memory, below.id) == below.content


async def test_a_deleted_archive_comes_back_with_the_note(memory: Memory) -> None:
    made = await memory.remember("It was here.", archive="attic")
    session = await memory.world.open()
    await memory.world.stage(session, delete=[made.node.id, made.node.archive_id])
    await memory.world.commit(session)
    back = await memory.restore(made.node.id)
    assert back.node.archive_id == made.node.archive_id
    assert any("attic" in warning for warning in back.warnings)
    assert (await memory.remember("And this.", archive="attic")).node.archive_id == made.node.archive_id


async def test_several_changes_make_one_commit_in_their_order(memory: Memory) -> None:
    old = await memory.remember("The budget is 40k.", title="Budget")
    wrong = await memory.remember("The sky is green.")
    made = await memory.change(
        pb.MemoryChange(remember=pb.RememberRequest(text="Ann leads the team.")),
        pb.MemoryChange(remember=pb.RememberRequest(text="ann leads   the team.")),
        pb.MemoryChange(revise=pb.ReviseRequest(node_id=old.node.id, text="The budget is 45k.")),
        pb.MemoryChange(forget=pb.ForgetRequest(node_id=wrong.node.id)),
        pb.MemoryChange(restore=pb.RestoreRequest(node_id=wrong.node.id)),
        agent="planner",
    )
    ann, twin, budget, gone, back = made.results
    assert memory.repository.commit_info(made.commit_id).parents == (wrong.commit_id,)
    assert ann.node.id != twin.node.id
    assert [(one.node.id, one.similarity) for one in twin.similar] == [(ann.node.id, pb.SIMILARITY_DUPLICATE)]
    assert budget.node.commit_id == made.commit_id
    assert gone.node.id == back.node.id == wrong.node.id
    assert await content(memory, wrong.node.id) == "The sky is green."
    assert (await memory.subject()).startswith("Change 5 notes: Ann leads the team")


async def test_one_bad_change_stops_the_batch_and_is_named(memory: Memory) -> None:
    head = await memory.world.head()
    good = pb.MemoryChange(remember=pb.RememberRequest(text="Kept only with the others."))
    for bad, field in (
        (pb.MemoryChange(remember=pb.RememberRequest(text="  ")), "changes[1].remember.text"),
        (pb.MemoryChange(remember=pb.RememberRequest(text="x", valid_from="soon")), "changes[1].remember.valid_from"),
        (pb.MemoryChange(revise=pb.ReviseRequest(text="x")), "changes[1].revise.node_id"),
        (pb.MemoryChange(forget=pb.ForgetRequest(node_id="?")), "changes[1].forget.node_id"),
        (pb.MemoryChange(remember=pb.RememberRequest(text="x", branch="b")), "changes[1].remember.branch"),
        (pb.MemoryChange(), "changes[1]"),
    ):
        with pytest.raises(InvalidInputError) as refused:
            await memory.change(good, bad)
        assert [fault.field for fault in refused.value.violations] == [field]
        assert refused.value.message.startswith("changes[1]")
    assert await memory.world.head() == head
    assert await memory.open_sessions() == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": "x" * 2, "title": "two\nlines"}, "title"),
        ({"text": "x", "archive": "a\nb"}, "archive"),
        ({"text": "x", "valid_from": "2026-01-02", "valid_to": "2026-01-01"}, "valid_to"),
        ({"text": "x\x00"}, "text"),
        ({"text": "x", "agent": "<a>"}, "agent"),
        ({"text": "x", "tags": ["", "b"]}, "tags[0]"),
        ({"text": "x", "request_id": "r" * 200}, "request_id"),
    ],
)
async def test_wrong_fields_are_named_as_the_request_names_them(
    memory: Memory, fields: dict[str, Any], field: str
) -> None:
    head = await memory.world.head()
    with pytest.raises(InvalidInputError) as refused:
        await memory.remember(**fields)
    assert [fault.field for fault in refused.value.violations] == [field]
    assert await memory.world.head() == head


async def test_a_stale_etag_refuses_the_change(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.")
    await memory.revise(node_id=made.node.id, text="The budget is 45k.")
    with pytest.raises(StaleEtagError):
        await memory.revise(node_id=made.node.id, text="The budget is 50k.", etag=made.node.etag)
    with pytest.raises(StaleEtagError):
        await memory.forget(made.node.id, etag=made.node.etag)


async def test_unknown_places_are_not_found(memory: Memory) -> None:
    with pytest.raises(BranchNotFoundError):
        await memory.remember("x", branch="nowhere")
    with pytest.raises(WorkspaceNotFoundError):
        await memory.operations.remember(pb.RememberRequest(workspace="nowhere", text="x"))
    with pytest.raises(NodeNotFoundError):
        await memory.restore("zzzzzzzzzzzzzzzz")


async def test_a_repeated_call_gets_the_first_answer(memory: Memory) -> None:
    first = await memory.remember("Once only.", request_id="r1")
    assert await memory.remember("Once only.", request_id="r1") == first
    assert len([c for c in await memory.world.alive(await memory.world.head()) if c == first.node.id]) == 1
    with pytest.raises(InvalidInputError):
        await memory.remember("Another.", request_id="r1")


async def test_a_call_whose_answer_was_lost_after_the_commit_is_answered_from_it(memory: Memory) -> None:
    """PostgreSQL forgets the request, as when the server stops after Git has moved and before its transaction ends."""
    other = await memory.remember("The budget is 40k.", title="Budget")
    calls: list[Any] = [
        lambda: memory.remember("Once only.", request_id="a"),
        lambda: memory.revise(query="Budget", text="The budget is 45k.", request_id="b"),
        lambda: memory.forget(other.node.id[:8], request_id="c"),
        lambda: memory.restore(other.node.id, request_id="d"),
        lambda: memory.change(
            pb.MemoryChange(remember=pb.RememberRequest(text="One of two.")),
            pb.MemoryChange(forget=pb.ForgetRequest(node_id=other.node.id)),
            request_id="e",
        ),
    ]
    for call in calls:
        first = await call()
        async with memory.store.database.connection() as conn:
            await conn.execute("delete from work.request")
        again = await call()
        for answer in (first, again):
            answer.ClearField("similar") if "similar" in answer.DESCRIPTOR.fields_by_name else None
        assert again == first


async def test_many_at_once_are_all_kept(memory: Memory) -> None:
    made = await asyncio.gather(*(memory.remember(f"Fact number {n}.", find_similar=False) for n in range(20)))
    alive = await memory.world.alive(await memory.world.head())
    assert {one.node.id for one in made} <= alive.keys()
    async with memory.store.database.connection() as conn:
        state = State(memory.world.workspace, await memory.world.head())
        page = await history.list_commits(Snapshot(conn, state), history.CommitFilter(), limit=100)
    assert len({one.commit_id for one in made}) == 20
    assert {one.commit_id for one in made} <= {commit.commit_id for commit in page}
    assert await memory.open_sessions() == 1


async def test_a_call_sees_what_was_pushed_a_moment_ago(memory: Memory) -> None:
    from integration.pushes import push  # noqa: PLC0415

    pushed = memory.world.node("Pushed")
    push(memory.world, "main", pushed)
    made = await memory.revise(node_id=pushed.id, text="Revised after the push.")
    assert await content(memory, pushed.id) == "Revised after the push."
    assert made.node.title == "Pushed"


async def test_an_archive_is_found_by_name_whatever_their_number(memory: Memory) -> None:
    """The plan reads the archives of that name and no others."""
    async with memory.store.database.connection() as conn:
        state = State(memory.world.workspace, await memory.world.head())
        await conn.execute("set local enable_seqscan = off")
        statement = tree._ARCHIVE_NAMED
        cursor = await conn.execute("explain " + statement, state.arguments(name="notes"))
        plan = "\n".join(row[0] for row in await cursor.fetchall())
    assert "Index Cond: ((v" in plan or "Index Cond" in plan
    assert "title = 'notes'" in plan


async def test_what_one_batch_forgets_restores_and_forgets_again_is_gone(memory: Memory) -> None:
    made = await memory.remember("Tea is green.")
    change, back = pb.ForgetRequest(node_id=made.node.id), pb.RestoreRequest(node_id=made.node.id)
    done = await memory.change(
        pb.MemoryChange(forget=change), pb.MemoryChange(restore=back), pb.MemoryChange(forget=change)
    )
    assert made.node.id not in await memory.world.alive(done.commit_id)
