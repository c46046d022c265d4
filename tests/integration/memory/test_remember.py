"""Remember, Revise, Forget and Restore: one call each, one commit each, and nothing left behind when one fails."""

import asyncio
from typing import Any, Final

import pytest
from integration.memory.conftest import Memory
from integration.pushes import differences, push
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.errors import InvalidInputError
from memotree_storage.index.terms import words_of
from memotree_storage.model.trailers import trailers_of
from memotree_storage.ports import IndexUnavailableError
from memotree_storage.postgres import archive_versions
from memotree_storage.postgres.registry import WorkspaceNotFoundError
from memotree_storage.postgres.tree import Snapshot, State
from steps import sorted_marks

from memotree.memory import MemoryOperations, asked, changes, similar
from memotree.memory.asked import UnclearQueryError
from memotree.request.lookup import NodeNotFoundError
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError
from memotree.sessions.editing import StaleEtagError
from memotree.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-1")


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
        archive = await archive_versions.archive_named(
            Snapshot(conn, State(memory.world.workspace, made.commit_id)), "facts"
        )
    assert archive is not None
    assert archive.entry_id == made.node.archive_id
    assert await memory.content(made.node.id) == "The API retries at most five times."
    info = memory.repository.commit_info(made.commit_id)
    assert info.author.name == "planner"
    assert info.message.split("\n", 1)[0] == "Remember: The API retries at most five times"
    assert trailers_of(info.message) == {"MemoTree-Agent": "planner", "MemoTree-Tool": "Remember"}
    assert await memory.open_sessions() == 1  # of the world itself, closed
    first, second = await memory.remember("Tea is green."), await memory.remember("Coffee is black.")
    assert first.node.archive_id == second.node.archive_id == memory.world.archive.id  # it is called "notes"
    assert await differences(memory.store, memory.world.workspace) == []


async def test_a_note_may_say_what_it_is_about_and_what_it_supersedes(memory: Memory) -> None:
    ann = await memory.remember("Ann leads the team.", title="Ann")
    old = await memory.remember("The budget is 40k.", title="Budget")
    new = await memory.remember("The budget is 45k.", title="Budget", about=[ann.node.id[:8]], supersedes=[old.node.id])
    found = {(relation.type, relation.target_id) for relation in new.node.relations}
    assert {target for _, target in found} == {ann.node.id, old.node.id}
    with pytest.raises(NodeNotFoundError):
        await memory.remember("Of nobody.", about=["zzzzzzzzzzzzzzzz"])


async def test_a_note_is_kept_while_the_index_does_not_answer(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise IndexUnavailableError("connection refused")

    monkeypatch.setattr(memory.store.search, "find", refuse)
    made = await memory.remember("The API retries at most five times.")
    assert await memory.content(made.node.id) == "The API retries at most five times."
    assert made.warnings == ["Similar notes were not looked for. The search index does not answer."]
    revised = await memory.revise(node_id=made.node.id, text="The API retries at most three times.")
    assert len(revised.warnings) == 1
    assert (await memory.remember("Without the search.", find_similar=False)).warnings == []
    with pytest.raises(IndexUnavailableError):
        await memory.revise(query="API retries", text="Twice.")  # what the query means cannot be told


async def test_a_note_does_not_wait_for_an_index_that_is_far_behind(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []

    async def wait(*_: object) -> None:
        searches.append(asyncio.current_task())
        await asyncio.Event().wait()

    monkeypatch.setattr(memory.store.search, "find", wait)
    hasty = Memory(memory.world, MemoryOperations(memory.store, memory.world.limits, patience=0.001))
    made = await hasty.change(
        *(pb.MemoryChange(remember=pb.RememberRequest(text=f"Note {number}.")) for number in range(10))
    )
    assert [result.node.title for result in made.results] == [f"Note {number}" for number in range(10)]
    assert made.warnings == ["Similar notes were not looked for. The index did not answer within 0.001 s."]
    assert all(task is not None and task.done() for task in searches)


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
    assert await memory.content(first.node.id) == "The billing API allows 100 requests per minute."


async def test_a_revision_replaces_the_text_and_keeps_the_id(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k a year.")
    revised = await memory.revise(node_id=made.node.id, text="The budget is 45k a year.", agent="ann")
    assert revised.node.id == made.node.id
    assert revised.node.title == "The budget is 45k a year"  # it was made from the text, so it follows
    assert revised.node.summary == "The budget is 45k a year."
    assert await memory.content(made.node.id) == "The budget is 45k a year."
    assert await memory.content(made.node.id, made.commit_id) == "The budget is 40k a year."
    assert await memory.subject() == "Revise: The budget is 45k a year"
    kept = await memory.revise(node_id=(await memory.remember("Ten seconds.", title="Timeout")).node.id, text="Nine.")
    assert kept.node.title == "Timeout"


async def test_a_revision_may_find_its_note_by_a_query_that_means_it_alone(memory: Memory) -> None:
    facts = {
        "Budget": "The budget of the team is 40k a year.",
        "Office": "The office is in Lisbon.",
        "Staging database": "The staging database is db-3.",
        "Production API key owner": "Olaf holds the production API key.",
        "Retry limit": "At most five retries.",
        "Port of search service": "The search service listens on 9001.",
        **{f"Phone number of {name}": f"0151 {number}" for number, name in enumerate(["Nora", "Pavel", "Quentin"])},
    }
    ids = {title: (await memory.remember(text, title=title)).node.id for title, text in facts.items()}
    head = await memory.world.head()
    for query in (
        "phone number",
        "the capital of France",
        "Port of auth service",
        "Owner of the staging API key",
        "Testing database",
        "Retry delay",
        "Staging API key",
    ):
        with pytest.raises(UnclearQueryError) as refused:
            await memory.revise(query=query, text="Something else.")
        if query == "phone number":
            phones = {node_id for title, node_id in ids.items() if title.startswith("Phone")}
            assert {node.entry_id for node in refused.value.nodes} >= phones, "they are the candidates"
        assert await memory.world.head() == head, query
    for query, title, text in (
        ("budget", "Budget", "The budget of the team is 45k a year."),
        ("budget of the team is 45k", "Budget", "The budget of the team is 50k a year."),
        ("Pavel's phone number", "Phone number of Pavel", "0151 2"),
        ("Phone number of Pavel", "Phone number of Pavel", "0152"),
    ):
        before = await memory.content(ids[title])
        revised = await memory.revise(query=query, text=text)
        assert revised.node.id == ids[title], query
        assert revised.previous.summary == before


async def test_a_query_means_all_notes_that_say_the_same(memory: Memory) -> None:
    office = {"text": "The harbour office is on the third floor.", "title": "Harbour office", "find_similar": False}
    copies = {(await memory.remember(**office)).node.id for _ in range(12)}
    other = await memory.remember("The harbour office opens at nine.", title="Opening", find_similar=False)
    revised = await memory.revise(query="harbour office third floor", text="The harbour office is on the fifth floor.")
    assert {await memory.content(node_id) for node_id in copies} == {"The harbour office is on the fifth floor."}
    assert "11 other notes said the same and were revised too" in revised.warnings[0]
    assert memory.repository.commit_info(revised.commit_id).parents == (other.commit_id,), "in one commit"
    forgotten = await memory.forget(query="Harbour office")
    assert set(forgotten.forgotten_ids) == copies
    assert other.node.id in await memory.world.alive(forgotten.commit_id)


RED: Final = {"title": "Key", "text": "The key is red."}


@pytest.mark.parametrize(
    "others",
    [
        [{**RED, "text": "The key is blue."}],
        [RED, {**RED, "title": "Key of May", "text": "The key is red since May."}],
        [*[RED] * 9, {**RED, "text": "The KEY is red."}],
        [{**RED, "archive": "of another agent"}],
        [{**RED, "valid_from": "2024-01-01"}],
    ],
)
async def test_a_query_that_may_mean_several_facts_forgets_none(memory: Memory, others: list[dict[str, str]]) -> None:
    for note in (RED, *others):
        await memory.remember(**note, find_similar=False)
    head = await memory.world.head()
    with pytest.raises(UnclearQueryError, match="does not clearly mean one note"):
        await memory.forget(query="key" if "May" not in str(others) else "red key")
    assert await memory.world.head() == head


async def test_a_query_that_means_nothing_or_too_many_notes_is_refused(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnclearQueryError, match="Nothing was found"):
        await memory.forget(query="key")
    monkeypatch.setattr(asked, "_MOST_COPIES", 2)
    for _ in range(3):
        await memory.remember(**RED, find_similar=False)
    with pytest.raises(UnclearQueryError, match="More than 2 notes say the same"):
        await memory.forget(query="key")


async def test_a_copy_below_another_is_forgotten_with_it(memory: Memory) -> None:
    top = (await memory.remember(**RED, find_similar=False)).node
    below = memory.world.node("Key", archive_id=top.archive_id, parent_id=top.id, content=RED["text"])
    await memory.world.put(below)
    forgotten = await memory.forget(query="key", recursive=True)
    assert sorted(forgotten.forgotten_ids) == sorted([top.id, below.id])


async def test_a_note_to_forget_is_named_in_one_way(memory: Memory) -> None:
    for _ in range(2):
        await memory.remember(**RED, find_similar=False)
    for given in ({}, {"node_id": "0" * 16, "query": "key"}, {"query": "key", "etag": "x"}):
        with pytest.raises(InvalidInputError, match=r"node_id: is needed|etag: "):
            await memory.forget(**given)


async def test_several_changes_make_one_commit_in_their_order(memory: Memory) -> None:
    old = await memory.remember("The budget is 40k.", title="Budget")
    note, wrong = await memory.remember("As it was."), await memory.remember("The sky is green.")
    made = await memory.change(
        pb.MemoryChange(remember=pb.RememberRequest(text="Ann leads the team.")),
        pb.MemoryChange(remember=pb.RememberRequest(text="ann leads   the team.")),
        pb.MemoryChange(revise=pb.ReviseRequest(node_id=old.node.id, text="The budget is 45k.")),
        pb.MemoryChange(forget=pb.ForgetRequest(node_id=wrong.node.id)),
        pb.MemoryChange(restore=pb.RestoreRequest(node_id=wrong.node.id)),
        pb.MemoryChange(revise=pb.ReviseRequest(node_id=note.node.id, text="As it was at last.")),
        pb.MemoryChange(forget=pb.ForgetRequest(node_id=note.node.id)),
        agent="planner",
    )
    ann, twin, budget, gone, back, *last = made.results
    assert note.node.id not in await memory.world.alive(made.commit_id)
    assert [result.node.summary for result in last] == ["As it was at last."] * 2, "as it was forgotten"
    assert memory.repository.commit_info(made.commit_id).parents == (wrong.commit_id,)
    assert ann.node.id != twin.node.id
    assert [(one.node.id, one.similarity) for one in twin.similar] == [(ann.node.id, pb.SIMILARITY_DUPLICATE)]
    assert budget.node.commit_id == made.commit_id
    assert gone.node.id == back.node.id == wrong.node.id
    assert await memory.content(wrong.node.id) == "The sky is green."
    assert (await memory.subject()).startswith("Change 7 notes: Ann leads the team")


async def test_a_note_may_be_named_by_its_title_or_path(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.", title="Budget")
    note = await memory.remember("It may grow.", about=["Budget"], title="Growth")
    assert note.node.relations[0].target_id == made.node.id
    assert (await memory.revise(node_id="notes/Budget", text="The budget is 45k.")).node.id == made.node.id
    new = await memory.remember("The budget is 50k.", title="Budget of May", supersedes=["Budget"])
    assert new.node.relations[0].target_id == made.node.id
    both = await memory.change(
        pb.MemoryChange(remember=pb.RememberRequest(text="Lunch is at noon.", title="Lunch")),
        pb.MemoryChange(revise=pb.ReviseRequest(node_id="Lunch", text="Lunch is at one.")),
        pb.MemoryChange(forget=pb.ForgetRequest(node_id="Growth")),
    )
    assert both.results[1].node.id == both.results[0].node.id
    assert both.results[2].node.id == note.node.id
    await memory.remember("Another lunch.", title="Lunch")
    for name, error in (("Lunch", AmbiguousNodeNameError), ("Dinner", NoNodeNamedError)):
        with pytest.raises(error) as refused:
            await memory.forget(node_id=name)
        assert refused.value.message.startswith("node_id: ")
    with pytest.raises(NoNodeNamedError, match=r"supersedes\[0\]"):
        await memory.remember("x", supersedes=["Dinner"])


async def test_one_bad_change_stops_the_batch_and_is_named(memory: Memory) -> None:
    head = await memory.world.head()
    good = pb.MemoryChange(remember=pb.RememberRequest(text="Kept only with the others."))
    for bad, field in (
        (pb.MemoryChange(remember=pb.RememberRequest(text="  ")), "changes[1].remember.text"),
        (pb.MemoryChange(remember=pb.RememberRequest(text="x", valid_from="soon")), "changes[1].remember.valid_from"),
        (pb.MemoryChange(revise=pb.ReviseRequest(text="x")), "changes[1].revise.node_id"),
        (pb.MemoryChange(forget=pb.ForgetRequest(node_id="")), "changes[1].forget.node_id"),
        (pb.MemoryChange(remember=pb.RememberRequest(text="x", branch="b")), "changes[1].remember.branch"),
        (pb.MemoryChange(), "changes[1]"),
    ):
        with pytest.raises(InvalidInputError) as refused:
            await memory.change(good, bad)
        assert [fault.field for fault in refused.value.violations] == [field]
        assert refused.value.message.startswith("changes[1]")
    assert await memory.world.head() == head
    assert await memory.open_sessions() == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text"),
    ({"text": " \n"}, "text"),
    ({"text": "\u200b\u200b"}, "text"),
    ({"text": "x" * 2, "title": "two\nlines"}, "title"),
    ({"text": "x", "archive": "a\nb"}, "archive"),
    ({"text": "x", "valid_from": "2026-01-02", "valid_to": "2026-01-01"}, "valid_to"),
    ({"text": "x\x00"}, "text"),
    ({"text": "x", "agent": "<a>"}, "agent"),
    ({"text": "x", "tags": ["", "b"]}, "tags[0]"),
    ({"text": "x", "request_id": "r" * 200}, "request_id"),
]


async def test_wrong_fields_are_named_as_the_request_names_them(memory: Memory) -> None:
    note = await memory.remember("What counts.")
    for fields, field in WRONG:
        calls = [memory.remember(**fields)]
        if field == "text":  # also one that shows nothing is not put in place of another
            calls.append(memory.revise(node_id=note.node.id, **fields))
        for call in calls:
            with pytest.raises(InvalidInputError) as refused:
                await call
            assert [fault.field for fault in refused.value.violations] == [field], fields
        assert await memory.world.head() == note.commit_id


async def test_unknown_places_are_not_found(memory: Memory) -> None:
    with pytest.raises(BranchNotFoundError):
        await memory.remember("x", branch="nowhere")
    with pytest.raises(WorkspaceNotFoundError):
        await memory.operations.remember(pb.RememberRequest(workspace="nowhere", text="x"))
    with pytest.raises(NodeNotFoundError):
        await memory.restore("zzzzzzzzzzzzzzzz")


async def test_a_repeated_call_gets_the_first_answer_or_if_that_was_lost_one_from_the_commit(memory: Memory) -> None:
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
        assert await call() == first
        async with memory.store.database.connection() as conn:
            await conn.execute("delete from work.request")
        again = await call()
        for answer in (first, again):
            answer.ClearField("similar") if "similar" in answer.DESCRIPTOR.fields_by_name else None
        assert again == first


async def test_a_call_sees_what_was_pushed_a_moment_ago(memory: Memory) -> None:
    pushed = memory.world.node("Pushed")
    push(memory.world, "main", pushed)
    made = await memory.revise(node_id=pushed.id, text="Revised after the push.")
    assert await memory.content(pushed.id) == "Revised after the push."
    assert made.node.title == "Pushed"


async def test_a_revision_that_says_the_same_is_answered_with_a_warning_and_makes_no_commit(memory: Memory) -> None:
    made = await memory.remember("What counts.")
    same = await memory.revise(node_id=made.node.id, text="What counts.")
    assert (same.commit_id, same.node.id) == (made.commit_id, made.node.id)
    assert list(same.warnings) == ["Nothing was changed: everything is already as this call would make it."]
    assert (await memory.revise(node_id=made.node.id, text="What counts now.")).commit_id != made.commit_id


async def test_a_revision_of_nothing_or_with_a_stale_etag_is_refused(memory: Memory) -> None:
    note = (await memory.remember("What counts.")).node
    with pytest.raises(InvalidInputError) as refused:
        await memory.revise(node_id=note.id)
    assert refused.value.violations[0].field == "text"
    await memory.revise(node_id=note.id, text="What counts now.")
    for call in (
        memory.revise(node_id=note.id, text="Otherwise.", etag=note.etag),
        memory.forget(note.id, etag=note.etag),
    ):
        with pytest.raises(StaleEtagError):
            await call


@pytest.mark.requirement("STORE-8")
async def test_names_of_archives_that_look_alike_are_one_and_wrong_ones_are_refused_before_they_are_composed(
    memory: Memory,
) -> None:
    notes = [await memory.remember("Espresso.", archive=name) for name in ("caf\u00e9", "cafe\u0301", " caf\u00e9 ")]
    assert len({note.node.archive_id for note in notes}) == 1
    too_long, like_an_id = "a" + "\u0301\u0323" * 40_000, "researchnews2024"
    for name, why in ((too_long, "over the limit of 200"), (like_an_id, "form of an id")):
        with sorted_marks() as lengths, pytest.raises(InvalidInputError, match=why) as refused:
            await memory.remember("Espresso.", archive=name)
        assert refused.value.violations[0].field == "archive"
        assert lengths == []
    with sorted_marks() as lengths:
        kept = [await memory.remember("Latte.", archive="a" + "\u0323\u0301" * 99 + end) for end in ("b", "b ")]
    assert len({note.node.archive_id for note in kept}) == 1
    assert max(lengths) <= 198


@pytest.mark.requirement("STORE-8")
async def test_what_is_too_long_or_too_much_is_refused_before_it_is_read(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(text: str) -> list[str]:
        read.append(len(text))
        return words_of(text)

    monkeypatch.setattr(similar, "words_of", counted)
    note = await memory.remember("Espresso.")
    title = "".join(f"word{number} " for number in range(20_000))
    for call in (
        memory.remember("Latte.", title=title),
        memory.revise(node_id=note.node.id, text="Latte.", title=title),
        memory.change(pb.MemoryChange(remember=pb.RememberRequest(text="Latte.", title=title))),
    ):
        with pytest.raises(InvalidInputError, match="over the limit of 500"):
            await call
    assert max(read) < 2_000
    monkeypatch.setattr(changes, "id_named", None)
    for name in ("about", "supersedes"):
        with pytest.raises(InvalidInputError, match="over the limit of 1000") as refused:
            await memory.remember("Latte.", **{name: [note.node.id] * 1001})
        assert refused.value.violations[0].field == name


async def test_a_valid_time_that_was_wrong_is_taken_back(memory: Memory) -> None:
    def given(answer: pb.ReviseResponse) -> dict[str, str]:
        return {name: value for name, value in answer.node.attributes.items() if not name.startswith("summary_")}

    note = await memory.remember(
        "The office is closed.", tags=["office"], valid_from="2026-01-01", attributes={"source": "mail"}
    )
    revised = await memory.revise(node_id=note.node.id, valid_from="", valid_to="2026-02-01", tags=["holiday"])
    assert given(revised) == {"source": "mail", "valid_to": "2026-02-01"}
    assert list(revised.node.tags) == ["holiday", "office"]
    last = await memory.revise(node_id=note.node.id, valid_to="", text="The office is open.")
    assert given(last) == {"source": "mail"}
    assert await memory.content(note.node.id) == "The office is open."
