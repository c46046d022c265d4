"""Documents of every kind are ingested, also large and unusual ones: leaves, sections and sources."""

import json
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from campaigns import budget
from integration.damage import differences
from integration.forests import Forest
from integration.ingestion.documents import WORDS, pdf, prose
from pypdf import PdfReader

from memotree.canvas import ViewOperations
from memotree.forest.documents.document import UnreadableDocumentError
from memotree.forest.tree_building.merging import merge_now
from memotree.models.extractive import digest_of
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2, view_service_pb2

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


@pytest.mark.requirement("FOREST-1")
async def test_chinese_is_cut_at_the_ends_of_sentences(forest: Forest) -> None:
    text = "记忆是一片森林。" * 30 + "树木长成了大树\uff01" * 30
    result = await forest.ingest(text, name="zh", chunk_size=100)
    leaves = list((await forest.leaves(result.archive_id)).values())
    assert "".join(leaves) == text
    assert len(leaves) > 3
    assert all(leaf[-1] in "。\uff01" for leaf in leaves)
    await forest.check_sources(result.archive_id, text)


@pytest.mark.requirement("FOREST-2")
@pytest.mark.parametrize(("threshold", "limit"), [(-1.0, 10**6), (0.2, 1200), (0.9, 0), (1.0, 0)])
async def test_the_tree_is_that_of_the_plain_greedy_algorithm(forest: Forest, threshold: float, limit: int) -> None:
    text = prose(12)
    result = await forest.ingest(text, name="greedy", chunk_size=300, similarity_threshold=threshold, merge_limit=limit)
    versions = await forest.versions(result.archive_id)
    leaves = [version for version in versions if version.type == "leaf_chunk"]
    texts = [(await forest.node(leaf.entry_id)).content for leaf in leaves]

    # The plain algorithm: look at every pair in every round; a parent takes the place of its pair.
    def vector(title: str, summary: str) -> Any:
        return forest.models.embedder.embed_now([f"{title}\n{summary}"])[0]  # type: ignore[attr-defined]

    roots: list[tuple[int, int, str, Any]] = [
        (index, index, leaf.summary, vector(leaf.title, leaf.summary)) for index, leaf in enumerate(leaves)
    ]
    spans: list[tuple[int, int]] = []
    titles = {
        (version.source["start"], version.source["end"]): version.title
        for version in versions
        if version.source and version.type == "summary_node"
    }
    most = limit or 8 * 300
    while True:
        best, place = threshold, -1
        for index, (left, right) in enumerate(pairwise(roots)):
            size = sum(map(len, texts[left[0] : right[1] + 1]))
            cosine = float((left[3].astype(float) * right[3].astype(float)).sum())
            if size <= most and cosine > best + 1e-9:
                best, place = cosine, index
        if place < 0:
            break
        left, right = roots[place : place + 2]
        summary = digest_of([left[2], right[2]])
        start = sum(map(len, texts[: left[0]]))
        span = (start, start + sum(map(len, texts[left[0] : right[1] + 1])))
        assert span in titles, "a pair that the plain algorithm joins was not joined"
        spans.append(span)
        roots[place : place + 2] = [(left[0], right[1], summary, vector(titles[span], summary))]
    assert sorted(spans) == sorted(titles)
    assert result.roots == len(roots)


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


@pytest.mark.requirement("FOREST-3")
async def test_html_is_read_as_its_text_under_its_headings(forest: Forest) -> None:
    page = (
        b"<html><head><title>Garden</title><style>p{}</style></head><body><h1>Beds</h1><p>Roses &amp; mint.</p>"
        b"<h2>Watering</h2><p>At dawn.</p><script>alert(1)</script></body></html>"
    )
    result = await forest.ingest(file=page, media_type="text/html")
    assert (await forest.archive(result.archive_id)).title == "Garden"
    titles = [title for _, kind, title in await forest.shape(result.archive_id) if kind == "summary_node"]
    assert titles == ["Beds", "Watering"]
    text = await forest.text(result.archive_id)
    assert "Roses & mint." in text
    assert "alert" not in text
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


@pytest.mark.requirement("FOREST-1")
async def test_code_is_cut_where_functions_begin(forest: Forest) -> None:
    code = "".join(f"def function_{n}(x):\n    # number {n}\n    return x + {n}\n\n\n" for n in range(30))
    result = await forest.ingest(code, name="module.py", chunk_size=200)
    leaves = list((await forest.leaves(result.archive_id)).values())
    assert "".join(leaves) == code
    assert all(leaf.lstrip().startswith("def function_") for leaf in leaves)
    assert (await forest.archive(result.archive_id)).attributes["media_type"] == "text/x-python"


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


@pytest.mark.requirement("FOREST-1")
async def test_turns_may_come_as_a_json_file(forest: Forest) -> None:
    turns = [{"speaker": "Ada", "text": f"Turn {number}."} for number in range(5)]
    result = await forest.ingest(file=json.dumps(turns).encode(), media_type="application/json", name="chat.json")
    assert await forest.text(result.archive_id) == "".join(f"Ada: Turn {number}.\n" for number in range(5))


@pytest.mark.requirement("FOREST-2")
async def test_editing_the_derived_content_of_a_section_is_refused(forest: Forest) -> None:
    result = await forest.ingest("# One\n\nText.\n", name="one.md")
    section = (await forest.versions(result.archive_id))[0]
    session = await forest.session()
    with pytest.raises(Exception, match=r"is derived|made from"):
        await forest.change(session, node_service_pb2.UpdateNodeRequest(node_id=section.entry_id, content="Mine."))


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


@pytest.mark.campaign
@pytest.mark.requirement("FOREST-3")
async def test_ten_thousand_headings_are_a_tree(forest: Forest) -> None:
    text = "".join(f"{'#' * (number % 6 + 1)} Heading {number}\n\nText {number}.\n\n" for number in range(10_000))
    result = await forest.ingest(text, name="headings.md")
    assert (result.created_leaves, result.summary_nodes) == (10_000, 10_000)
    state = [version for version in await forest.versions(result.archive_id) if version.type == "leaf_chunk"]
    nodes = await forest.world.store.entries.load(forest.world.workspace, state)
    assert "".join(nodes[version.blob].content for version in state) == text  # type: ignore[union-attr]


@pytest.mark.requirement("FOREST-3")
async def test_ten_thousand_nested_elements_are_read_or_refused_with_a_reason(forest: Forest) -> None:
    page = "<html>" + "<div>" * 10_000 + "deep down" + "</div>" * 10_000 + "</html>"
    try:
        result = await forest.ingest(page, media_type="text/html", name="deep")
    except UnreadableDocumentError as error:
        assert error.reason == "TOO_DEEP"  # noqa: PT017 - both are promised
    else:
        assert "deep down" in await forest.text(result.archive_id)


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


def test_the_merge_of_equal_neighbours_begins_at_the_first() -> None:
    same = np.ones((4, 3), dtype=np.float32)
    merging = merge_now(same, [1, 1, 1, 1], lambda _left, _right: same[0], threshold=0.5, limit=2)
    assert merging.pairs == ((0, 1), (2, 3))
