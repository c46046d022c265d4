"""What makes a summary stale, and what does not."""

import pytest
from integration.forests import SUCCEEDED, Forest
from integration.ingestion.books import CHANGED, IngestedBook, above, chapter_of

from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2 as nodes_pb

CHILDREN = pb.STALE_REASON_CHILDREN


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
