"""Documents of every kind are ingested, also large and unusual ones: leaves, sections and sources."""

from io import BytesIO

import pytest
from campaigns import budget
from integration.damage import differences
from integration.forests import Forest
from integration.ingestion.documents import WORDS, pdf, prose
from pypdf import PdfReader

from memotree.canvas import ViewOperations
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import view_service_pb2

# --- Every kind of document ------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-1", "FOREST-2", "FOREST-4")
async def test_the_leaves_of_a_text_joined_are_the_text(forest: Forest) -> None:
    text = prose(12) + "\n  A last line with blanks behind it.   \n"
    result = await forest.ingest(text, name="papers", chunk_size=300)
    assert await forest.text(result.archive_id) == text
    assert result.created_leaves == len(await forest.leaves(result.archive_id)) > 10
    await forest.check_sources(result.archive_id, text)
    shape = await forest.shape(result.archive_id)
    assert sum(depth == 0 for depth, _, _ in shape) == result.roots
    assert sum(kind == "summary_node" for _, kind, _ in shape) == result.summary_nodes
    assert await forest.stale() == []
    assert await differences(forest.world) == []


@pytest.mark.requirement("FOREST-3", "FOREST-4")
async def test_markdown_keeps_its_headings_as_the_upper_tree(forest: Forest) -> None:
    text = (
        "Before any heading.\n\n# Trees\n\nTrees grow slowly.\n\n## Oak\n\nOaks live long.\n\n### Acorns\n\nSmall.\n\n"
        "## Fir\n\n```\n# no heading\n```\n\n# Rivers\n\nRivers flow.\n"
    )
    result = await forest.ingest(text, name="book.md", similarity_threshold=1.0)
    versions = await forest.versions(result.archive_id)
    sections = {version.title: version for version in versions if "section" in version.attributes}
    assert list(sections) == ["Trees", "Oak", "Acorns", "Fir", "Rivers"]
    assert [section.attributes["section"] for section in sections.values()] == ["1", "2", "3", "2", "1"]
    assert sections["Acorns"].parent_id == sections["Oak"].entry_id
    assert sections["Fir"].parent_id == sections["Trees"].entry_id
    acorns = next(version for version in versions if version.parent_id == sections["Acorns"].entry_id)
    assert acorns.source is not None
    assert acorns.source["heading"] == "Trees > Oak > Acorns"
    assert (await forest.node(acorns.entry_id)).content == "### Acorns\n\nSmall.\n\n"
    await forest.check_sources(result.archive_id, text)


@pytest.mark.requirement("FOREST-3", "FOREST-4")
async def test_a_pdf_keeps_its_outline_and_every_leaf_its_page(forest: Forest) -> None:
    data = pdf(
        ["Beginnings\nThe first page tells of seeds.", "The second page tells of roots.", "Ends\nThe last page."],
        [("Beginnings", 0, 0), ("Ends", 2, 0)],
    )
    result = await forest.ingest(file=data, name="book.pdf")
    versions = await forest.versions(result.archive_id)
    assert [version.title for version in versions if version.type == "summary_node"] == ["Beginnings", "Ends"]
    text = await forest.text(result.archive_id)
    await forest.check_sources(result.archive_id, text)
    pages = {
        (await forest.node(version.entry_id)).content.strip().split("\n")[-1]: version.source["page"]
        for version in versions
        if version.source and version.type == "leaf_chunk"
    }
    assert pages["The last page."] == 3
    assert min(pages.values()) == 1
    assert len(PdfReader(BytesIO(data)).pages) == 3


@pytest.mark.requirement("FOREST-1", "FOREST-3", "FOREST-4")
async def test_a_conversation_has_a_leaf_for_each_turn_and_a_section_for_each_sitting(forest: Forest) -> None:
    turns = [
        pb.Turn(speaker="Ada", text="Hello there.", time="2024-05-01T10:00:00", id="t1"),
        pb.Turn(speaker="Bo", text="Hi! " + "I have much to say. " * 30, time="2024-05-01T10:01:00", id="t2"),
        pb.Turn(speaker="Ada", text="", id="empty"),
        pb.Turn(speaker="Ada", text="A day later.", time="2024-05-02T09:00:00", id="t3"),
        pb.Turn(speaker="Bo", text="Indeed.", session="evening", id="t4"),
    ]
    told = await forest.try_ingest(
        conversation=pb.Conversation(turns=turns), name="chat", chunk_size=200, similarity_threshold=1.0
    )
    result = told.result
    assert any("1 turns" in warning for warning in result.warnings)
    versions = await forest.versions(result.archive_id)
    sections = [version.title for version in versions if version.type == "summary_node"]
    assert sections == ["2024-05-01", "2024-05-02", "evening"]
    leaves = [version for version in versions if version.type == "leaf_chunk"]
    first = leaves[0]
    assert (await forest.node(first.entry_id)).content == "Ada: Hello there.\n"
    spoken = {name: first.attributes[name] for name in ("speaker", "time", "turn_id")}
    assert spoken == {"speaker": "Ada", "time": "2024-05-01T10:00:00", "turn_id": "t1"}
    assert [leaf.attributes["turn_id"] for leaf in leaves if leaf.attributes["turn_id"] != "t2"] == ["t1", "t3", "t4"]
    assert sum(leaf.attributes["turn_id"] == "t2" for leaf in leaves) > 2, "a turn over the chunk size is split"
    await forest.check_sources(result.archive_id, await forest.text(result.archive_id))


# --- Great and strange documents -------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-1")
async def test_megabytes_in_one_line_are_ingested(forest: Forest) -> None:
    leaves = budget(250)  # 1 MB
    text = "".join(f"{WORDS[number % len(WORDS)]}{number} " for number in range(400 * leaves))[: 4000 * leaves]
    result = await forest.ingest(text, name="line", chunk_size=4000, similarity_threshold=1.0)
    state = await forest.versions(result.archive_id)
    assert result.created_leaves == len(state) >= leaves
    nodes = await forest.world.store.entries.load(forest.world.workspace, state)
    assert "".join(nodes[version.blob].content for version in state) == text  # type: ignore[union-attr]


@pytest.mark.requirement("FOREST-2")
async def test_a_chain_of_merges_as_deep_as_the_document_is_long_is_stored_and_read(forest: Forest) -> None:
    text = "".join(f"Leaf {number} says the same as all others do here.\n\n" for number in range(60))
    result = await forest.ingest(text, name="chain", chunk_size=60, similarity_threshold=-1.0, merge_limit=10**6)
    assert result.roots == 1
    assert result.summary_nodes == result.created_leaves - 1
    (root,) = [version for version in await forest.versions(result.archive_id) if not version.parent_id]
    assert (await forest.node(root.entry_id)).content == text
    view = await ViewOperations(forest.world.store, forest.world.pages).render_view(
        view_service_pb2.RenderViewRequest(workspace=forest.world.workspace)
    )
    assert root.title in view.markdown
