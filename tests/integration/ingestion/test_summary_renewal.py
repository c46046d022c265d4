"""What makes a summary stale; it is renewed with a commit, in the background or when asked; those of people stay."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from unittest.mock import AsyncMock

import pytest
from endpoints import ModelEndpoint
from integration.forests import SUCCEEDED, Forest, forest_of
from integration.ingestion.books import CHANGED, IngestedBook, above, chapter_of, leaf_of
from integration.statements import recorded
from integration.worlds import World
from memotree_storage.errors import MemoTreeError
from memotree_storage.model.attribute_names import SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.postgres import staging
from memotree_storage.postgres.reach import DatabaseUnavailableError

from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.models.extractive import MADE_BY
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2 as nodes_pb

CHILDREN = pb.STALE_REASON_CHILDREN
DEADLINE = 60


@pytest.fixture
def without_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summaries cannot be made within a commit, as if another commit had always come between."""

    async def fail(*arguments: object, **options: object) -> list[str]:
        del arguments, options
        raise DatabaseUnavailableError("PostgreSQL does not answer.")

    monkeypatch.setattr(SummaryRenewal, "renew_for_commit", fail)


# --- What makes a summary stale ------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-5")
async def test_all_nodes_above_an_edited_leaf_are_stale_the_deepest_first(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest, threshold=-1.0)
    way = await above(forest, ingested.leaf)
    assert len(way) > 1
    await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    assert "engines" in (await forest.node(ingested.leaf)).summary, "its own has followed at once"
    assert await forest.stale() == [(node_id, CHILDREN) for node_id in way]
    assert forest.files() == {ingested.leaf: "M"}, "no ancestor's file is touched"
    shown = await forest.stale(max_results=1)
    assert shown == [(way[0], CHILDREN)]
    request = pb.ListStaleSummariesRequest(workspace=forest.world.workspace, max_results=1)
    assert (await forest.summaries.list_stale_summaries(request)).total == len(way)
    other = await forest.ingest("# Other\n\nText.\n", name="other.md")
    assert await forest.stale(archive=other.archive_id) == []
    assert len(await forest.stale(archive=ingested.archive_id)) == len(way)


@pytest.mark.requirement("FOREST-5")
async def test_creating_moving_or_deleting_a_node_makes_the_summaries_of_its_parents_stale(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    there = await chapter_of(forest, ingested.archive_id, "Chapter 3")
    session = await forest.session()
    await forest.change(session, nodes_pb.MoveNodeRequest(node_id=ingested.leaf, parent_id=there))
    assert sorted(await forest.stale(revision=session)) == sorted([(ingested.chapter, CHILDREN), (there, CHILDREN)])
    assert await forest.stale() == [], "in the session alone"
    await forest.commit(session)
    assert {node_id for node_id, _ in await forest.stale()} == {ingested.chapter, there}
    assert (await forest.renew()).renewal.renewed == 2
    await forest.commit_change(nodes_pb.DeleteNodeRequest(node_id=ingested.leaf))
    assert await forest.stale() == [(there, CHILDREN)]
    await forest.renew()
    await forest.commit_change(
        nodes_pb.CreateNodeRequest(parent_id=ingested.chapter, title="Mine", content="A note of mine.")
    )
    assert await forest.stale() == [(ingested.chapter, CHILDREN)]
    await forest.renew()
    assert await forest.stale() == []


@pytest.mark.requirement("FOREST-5")
async def test_the_summary_of_a_node_without_remaining_children_becomes_empty(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    below = [node.entry_id for node in await forest.versions(ingested.archive_id) if node.parent_id == ingested.chapter]
    await forest.commit_change(*(nodes_pb.DeleteNodeRequest(node_id=node_id) for node_id in below))
    assert await forest.stale() == [(ingested.chapter, CHILDREN)]
    assert (await forest.renew()).state == SUCCEEDED
    assert (await forest.node(ingested.chapter)).summary == ""
    assert await forest.stale() == []


@pytest.mark.requirement("FOREST-5")
async def test_a_summary_is_not_stale_after_a_later_commit_restores_its_sources(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    before = await forest.world.store.entries.load(
        forest.world.workspace, versions := await forest.versions(ingested.archive_id)
    )
    await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    (version,) = [version for version in versions if version.entry_id == ingested.leaf]
    await forest.world.put(before[version.blob])  # as a revert does
    assert await forest.stale() == []
    # If summaries were renewed after an edit, a revert of the edit makes them stale again.
    await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    await forest.renew()
    await forest.world.put(before[version.blob])
    assert await forest.stale() == [(ingested.chapter, CHILDREN)]
    await forest.renew()
    assert await forest.stale() == []


# --- Renewal ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-5")
async def test_built_in_summaries_above_a_change_follow_in_the_same_commit(world: World) -> None:
    async with forest_of(world, background=True) as forest:
        ingested = await IngestedBook.of(forest)
        before = (await forest.node(ingested.chapter)).summary
        await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
        assert await forest.stale() == []
        assert forest.commits()[0] == "Change something"
        assert forest.files() == {ingested.leaf: "M", ingested.chapter: "M"}
        assert (await forest.node(ingested.chapter)).summary != before


@pytest.mark.requirement("CANVAS-6", "USE-3")
async def test_a_refused_or_repeated_commit_stages_no_summaries(world: World) -> None:
    async with forest_of(world, background=True) as forest:
        ingested = await IngestedBook.of(forest)
        await world.put(world.node("Tagged"), tag="v1")
        session = await forest.session()
        await forest.change(session, nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
        for fields in ({"create_tag": True, "tag_name": "v1"}, {"specific_nodes": [""]}, {"specific_nodes": ["zzzz"]}):
            with pytest.raises(MemoTreeError):
                await forest.commit(session, **fields)
            assert await staged_ids(forest, session) == [ingested.leaf]
        first = await forest.commit(session, request_id="once")
        await forest.change(session, nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content="Again. " * 60))
        assert await forest.commit(session, request_id="once") == first
        assert await staged_ids(forest, session) == [ingested.leaf]


async def staged_ids(forest: Forest, session: str) -> list[str]:
    async with forest.world.store.database.connection() as conn:
        return [row.entry_id for row in await staging.staged(conn, session)]


@pytest.mark.requirement("FOREST-5", "USE-3")
async def test_with_a_chat_model_built_in_summaries_follow_at_once_and_its_own_in_the_background(
    world: World, endpoint: ModelEndpoint
) -> None:
    async with forest_of(world, endpoint, background=True) as forest:
        ingested = await IngestedBook.of(forest)
        before = {key: (await forest.node(key)).attributes for key in (ingested.leaf, ingested.chapter)}
        assert all(each[SUMMARY_BY] not in {"verbatim", MADE_BY} for each in before.values())
        await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
        assert forest.files() == {ingested.leaf: "M", ingested.chapter: "M"}
        await until_none_is_stale(forest)
        assert forest.commits()[:2] == ["Renew 2 summaries", "Change something"]
        for key, attributes in before.items():
            now = (await forest.node(key)).attributes
            assert now[SUMMARY_BY] == attributes[SUMMARY_BY]
            assert SUMMARY_PENDING not in now


async def until_none_is_stale(forest: Forest) -> None:
    async with asyncio.timeout(DEADLINE):
        while await forest.stale():  # noqa: ASYNC110 - a client can only look
            await asyncio.sleep(0.01)


@pytest.mark.requirement("FOREST-5")
@pytest.mark.usefixtures("without_following")
async def test_the_background_renews_all_that_a_commit_made_stale_in_one_commit_also_after_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forest_of(world, background=True) as forest:
        ingested = await IngestedBook.of(forest)
        before = (await forest.node(ingested.chapter)).summary
        await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
        await until_none_is_stale(forest)
        assert forest.commits()[:2] == ["Renew 1 summary", "Change something"]
        assert forest.files() == {ingested.chapter: "M"}
        assert (await forest.node(ingested.chapter)).summary != before
        assert "engines" in (await forest.node(ingested.leaf)).summary

        real, looks = forest.summaries._look, 0

        async def away_at_first(*arguments: Any) -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise DatabaseUnavailableError("PostgreSQL does not answer.")
            await real(*arguments)

        monkeypatch.setattr(forest.summaries, "_look", away_at_first)
        await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content="Again. " * 60))
        await until_none_is_stale(forest)
        assert looks == 2


@pytest.mark.requirement("FOREST-5")
@pytest.mark.usefixtures("without_following")
async def test_a_look_at_many_commits_sends_as_few_statements_as_one_at_two(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those that moved or deleted nodes are looked at as they were before."""
    ingested = await IngestedBook.of(forest)
    commits = []
    for number in range(8):
        change = nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=f"{CHANGED} Once more: {number}.")
        await forest.commit_change(change)
        commits.append(await forest.world.head())
    submit = AsyncMock()  # a job that waits, runs or has ended takes other statements
    monkeypatch.setattr(forest.summaries._runner, "submit", submit)
    counts = []
    for some in (commits[-2:], commits):
        with recorded() as sent:
            await forest.summaries._look(forest.world.workspace, "main", some)
        counts.append(len(sent))
    assert counts[0] == counts[1]
    assert submit.await_count == 2


@pytest.mark.requirement("FOREST-5")
@pytest.mark.usefixtures("without_following")
async def test_a_look_finds_what_nodes_were_moved_away_from_or_deleted_below(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested = await IngestedBook.of(forest)
    there = await chapter_of(forest, ingested.archive_id, "Chapter 3")
    beside = await leaf_of(forest, ingested.archive_id, ingested.book.chapters["Chapter 1"][1])
    found: list[set[str]] = []

    async def submit(*_: object, inputs: Mapping[str, bytes], **__: object) -> None:
        found.append(set(json.loads(next(iter(inputs.values())))))

    monkeypatch.setattr(forest.summaries._runner, "submit", submit)
    for change in (
        nodes_pb.MoveNodeRequest(node_id=ingested.leaf, parent_id=there),
        nodes_pb.DeleteNodeRequest(node_id=beside),
    ):
        await forest.commit_change(change)
        await forest.summaries._look(forest.world.workspace, "main", [await forest.world.head()])
    assert found == [{ingested.chapter, there}, {ingested.chapter}]


async def test_without_the_background_summaries_stay_stale_until_they_are_asked_for(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested = await IngestedBook.of(forest)
    await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    assert forest.summaries._noticed == {}, "nothing waits for anybody"
    real, tries = forest.summaries._changes, 0

    async def meanwhile(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.chapter, attributes={"seen": "yes"}))
        return await real(*arguments)

    monkeypatch.setattr(forest.summaries, "_changes", meanwhile)
    job = await forest.renew()
    assert (job.state, tries) == (SUCCEEDED, 2), "it begins again when one of the nodes has changed"
    assert (job.renewal.renewed, job.renewal.pending) == (1, 0)
    assert job.renewal.commit_id == await forest.world.head()
    assert (await forest.node(ingested.chapter)).attributes["seen"] == "yes"
    assert await forest.stale() == []
    again = await forest.renew()
    assert (again.renewal.renewed, again.renewal.commit_id) == (0, "")


@pytest.mark.requirement("FOREST-5", "CANVAS-6")
async def test_a_partial_commit_renews_summaries_only_for_the_chosen_changes(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    beside = await leaf_of(forest, ingested.archive_id, ingested.book.chapters["Chapter 1"][1])
    elsewhere = await leaf_of(forest, ingested.archive_id, ingested.book.chapters["Chapter 2"][1])
    session = await forest.session()
    await forest.change(
        session,
        nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED),
        nodes_pb.UpdateNodeRequest(node_id=beside, content="Not yet. " * 40),
        nodes_pb.DeleteNodeRequest(node_id=elsewhere),
        nodes_pb.CreateNodeRequest(parent_id=ingested.chapter, title="Not yet", content="Not yet, too."),
    )
    await forest.commit(session, specific_nodes=[ingested.leaf[:8]], renew_summaries=True)
    assert forest.files() == {ingested.leaf: "M", ingested.chapter: "M"}
    assert await forest.stale() == [], "the summary is that of what was committed"
    assert (await forest.node(beside)).content.strip() == ingested.book.chapters["Chapter 1"][1]
    await forest.commit(session, renew_summaries=True)
    assert await forest.stale() == []
    assert (await forest.node(beside)).content == "Not yet. " * 40
    assert len(forest.files()) == 5, "the leaf, the one that is gone, the new one, and two chapters"


@pytest.mark.requirement("FOREST-5")
async def test_two_sessions_that_renew_the_same_summary_do_not_conflict(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    beside = await leaf_of(forest, ingested.archive_id, ingested.book.chapters["Chapter 1"][1])
    first, second = await forest.session(), await forest.session()
    await forest.change(first, nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    await forest.change(second, nodes_pb.UpdateNodeRequest(node_id=beside, content="Mine. " * 60))
    await forest.commit(first, renew_summaries=True)
    await forest.commit(second, renew_summaries=True)
    assert (await forest.node(ingested.leaf)).content == CHANGED
    assert (await forest.node(beside)).content == "Mine. " * 60
    assert await forest.stale() == [(ingested.chapter, CHILDREN)], (
        "which of both knows nothing of the other, and is told"
    )
    await forest.renew()
    assert await forest.stale() == []


@pytest.mark.requirement("FOREST-5")
async def test_what_a_person_wrote_is_never_renewed(forest: Forest) -> None:
    """A summary stays; beside a brief, the summary is renewed."""
    ingested = await IngestedBook.of(forest)
    other = await chapter_of(forest, ingested.archive_id, "Chapter 2")
    below = await leaf_of(forest, ingested.archive_id, ingested.book.chapters["Chapter 2"][2])
    before = (await forest.node(other)).summary
    await forest.commit_change(
        nodes_pb.UpdateNodeRequest(node_id=ingested.chapter, summary="My own words.", brief="My brief."),
        nodes_pb.UpdateNodeRequest(node_id=other, brief="My brief."),
    )
    assert SUMMARY_OF not in (await forest.node(ingested.chapter)).attributes
    changes = [nodes_pb.UpdateNodeRequest(node_id=leaf, content=CHANGED) for leaf in (ingested.leaf, below)]
    await forest.commit_change(*changes, renew_summaries=True)
    assert await forest.stale() == []
    await forest.renew()
    node, renewed = await forest.node(ingested.chapter), await forest.node(other)
    assert (node.summary, node.brief) == ("My own words.", "My brief.")
    assert renewed.brief == "My brief."
    assert renewed.summary != before


async def test_a_person_who_writes_a_summary_while_it_is_renewed_wins(forest: Forest) -> None:
    ingested = await IngestedBook.of(forest)
    session = await forest.session()
    await forest.change(session, nodes_pb.UpdateNodeRequest(node_id=ingested.chapter, summary="My own words."))
    await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED), renew_summaries=True)
    await forest.commit(session)
    node = await forest.node(ingested.chapter)
    assert node.summary == "My own words."
    assert not {SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING} & node.attributes.keys()


async def test_a_forged_summary_attribute_does_not_fail_the_renewal(forest: Forest) -> None:
    """A pushed file says that a summary is pending, although the node has no text to summarise."""
    node = forest.world.node(
        "Odd", type="summary_node", content="", summary="x", attributes={SUMMARY_OF: "0" * 16, SUMMARY_PENDING: "model"}
    )
    await forest.world.put(node)
    assert await forest.stale() == [(node.id, CHILDREN)]
    assert (await forest.renew()).state == SUCCEEDED
    assert await forest.stale() == []


@pytest.mark.requirement("STORE-1", "CANVAS-6")
async def test_a_commit_is_acknowledged_even_if_stale_summaries_cannot_be_read_afterwards(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested = await IngestedBook.of(forest)
    session = await forest.session()
    await forest.change(session, nodes_pb.UpdateNodeRequest(node_id=ingested.leaf, content=CHANGED))
    find = forest.sessions._workspace
    asked = []

    async def once(name: str) -> Any:
        asked.append(name)
        if len(asked) > 1:
            raise DatabaseUnavailableError("PostgreSQL went away. Try again.")
        return await find(name)

    monkeypatch.setattr(forest.sessions, "_workspace", once)
    assert await forest.commit(session) == await forest.world.head()
