"""A new version of a document: unchanged parts keep their nodes and ids; only changed parts are new."""

from io import BytesIO
from typing import Any

import pytest
from endpoints import ModelEndpoint
from integration.forests import SUCCEEDED, Forest, forest_of
from integration.ingestion.books import CHUNK, Book, above, chapter_of, leaf_of
from integration.ingestion.documents import paragraphs, pdf
from integration.worlds import World
from memotree_storage.model.attribute_names import SUMMARY_BY
from model_answers import input_data
from pypdf import PdfReader

from memotree.forest.ingestion import planning as ingestion_module
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2 as nodes_pb

pytestmark = pytest.mark.requirement("FOREST-5")


async def test_each_change_of_a_paragraph_changes_its_leaf_and_what_is_above_alone(forest: Forest) -> None:
    book = Book()
    archive = (await book.put(forest, similarity_threshold=1.0)).archive_id
    new = "A wholly new paragraph: " + "pelican violin " * 15
    before = await forest.leaves(archive)
    book.chapters["Chapter 2"].insert(2, new)
    result = await book.put(forest)
    assert (result.created_leaves, result.kept_leaves, result.removed_leaves) == (1, len(before), 0)
    assert before.items() <= (await forest.leaves(archive)).items()
    leaf = await leaf_of(forest, archive, new)
    (chapter,) = await above(forest, leaf)
    assert forest.files() == {leaf: "A", archive: "M", chapter: "M"}
    assert result.commit_id == await forest.world.head()

    book.chapters["Chapter 2"][2] = "Changed: " + "kettle harbour " * 15
    await book.put(forest)
    changed = await leaf_of(forest, archive, "Changed: ")
    assert forest.files() == {leaf: "D", changed: "A", archive: "M", chapter: "M"}

    del book.chapters["Chapter 2"][2]
    result = await book.put(forest)
    assert (result.created_leaves, result.removed_leaves) == (0, 1)
    assert forest.files() == {changed: "D", archive: "M", chapter: "M"}

    book.chapters["Chapter 3"].insert(2, book.chapters["Chapter 0"].pop(1))
    result = await book.put(forest)
    assert result.kept_leaves == len(before) - 1
    assert result.created_leaves + result.removed_leaves == 2
    assert len(forest.files()) == 5, "the leaf that goes, the one that comes, two chapters, the archive"


async def test_only_the_ancestors_of_a_change_get_new_summaries(world: World, endpoint: ModelEndpoint) -> None:
    async with forest_of(world, endpoint) as forest:
        book = Book(3, 4)
        first = await book.put(forest, similarity_threshold=-1.0)
        before = len(endpoint.chat_calls)
        new = "A wholly new paragraph: " + "pelican violin " * 15
        book.chapters["Chapter 2"].insert(2, new)
        await book.put(forest)
        leaf = await leaf_of(forest, first.archive_id, new)
        way = await above(forest, leaf)
        calls = endpoint.chat_calls[before:]
        leaves = [data["text"] for call in calls if "text" in (data := input_data(call))]
        assert [text.strip() for text in leaves] == [new.strip()]
        changed = [node_id for node_id in way if node_id in forest.files()]
        assert changed == way[: len(changed)], "up to where a summary comes out as it was"
        assert len(calls) == 1 + len(changed), "one call for the leaf and one for each of these"
        assert forest.files().keys() == {leaf, first.archive_id, *changed}
        assert len(way) < first.summary_nodes


async def test_a_hand_edited_leaf_survives_with_its_new_text(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest, similarity_threshold=1.0)
    leaf = await leaf_of(forest, first.archive_id, book.chapters["Chapter 1"][2])
    await forest.commit_change(
        nodes_pb.UpdateNodeRequest(node_id=leaf, content="What I know better.\n\n", summary="My words.")
    )
    book.chapters["Chapter 1"][0] = "Changed: " + "kettle harbour " * 15
    second = await forest.ingest(book.text, document_id="book", media_type="text/markdown")
    node = await forest.node(leaf)
    assert (node.content, node.summary) == ("What I know better.\n\n", "My words.")
    assert (second.created_leaves, second.removed_leaves) == (1, 1)
    assert await forest.stale() == []


async def test_notes_below_a_deleted_node_move_up_with_all_their_fields(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest, similarity_threshold=-1.0)
    leaf = await leaf_of(forest, first.archive_id, book.chapters["Chapter 2"][1])
    chapter = await chapter_of(forest, first.archive_id, "Chapter 2")
    await forest.commit_change(
        nodes_pb.CreateNodeRequest(
            node_id="mynet00000000000", parent_id=leaf, title="Mine", content="My own words.", tags=["my"]
        ),
        nodes_pb.CreateNodeRequest(
            node_id="mynet11111111111", parent_id=chapter, title="Also mine", content="More of them."
        ),
        nodes_pb.CreateNodeRequest(
            node_id="mynet22222222222", parent_id="mynet11111111111", title="Below", content="Deep."
        ),
    )
    removed = book.chapters.pop("Chapter 2")
    assert removed
    second = await forest.ingest(book.text, document_id="book", media_type="text/markdown")
    assert second.removed_leaves == 3
    for node_id, content in (
        ("mynet00000000000", "My own words."),
        ("mynet11111111111", "More of them."),
        ("mynet22222222222", "Deep."),
    ):
        assert (await forest.node(node_id)).content == content
    assert (await forest.node("mynet00000000000")).parent_id == ""
    assert (await forest.node("mynet00000000000")).tags == ["my"]
    assert (await forest.node("mynet22222222222")).parent_id == "mynet11111111111", "below what stays it stays"
    moved = forest.git("show", "main", "--", "nodes/my/ne/mynet00000000000*")
    assert "-My own words." not in moved
    assert await forest.stale() == []
    assert await forest.text(first.archive_id) == book.text


async def test_renamed_and_moved_chapters_keep_their_nodes_and_removed_ones_lose_them(forest: Forest) -> None:
    book = Book(5, 3)
    first = await book.put(forest, similarity_threshold=1.0)

    async def chapters() -> dict[str, str]:
        found = await forest.versions(first.archive_id)
        return {node.title: node.entry_id for node in found if node.type != "leaf_chunk"}

    before = await chapters()
    book.chapters = {title.replace("Chapter 1", "Renamed"): below for title, below in book.chapters.items()}
    await book.put(forest)
    named = {title.replace("Chapter 1", "Renamed"): node_id for title, node_id in before.items()}
    assert await chapters() == named
    assert len(forest.files()) == 4, "the archive, the chapter, and its first leaf, old and new, which has the heading"

    texts = list(book.chapters.items())
    book.chapters = dict([texts[0], texts[3], texts[1], texts[2], texts[4]])
    await book.put(forest)
    after = await chapters()
    assert list(after) == list(book.chapters)
    assert after == named
    assert not {node_id for title, node_id in named.items() if title != "Chapter 3"} & forest.files().keys()

    del book.chapters["Chapter 3"]
    last = await book.put(forest)
    assert (last.removed_leaves, last.roots) == (3, first.roots - 1)
    assert sorted(forest.files().values()) == ["D"] * 4 + ["M"]


async def test_settings_and_tags_are_kept_except_for_tags_that_a_person_removed(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest, similarity_threshold=0.25, merge_limit=5000, tags=["paper"])
    leaf = await leaf_of(forest, first.archive_id, book.chapters["Chapter 1"][2])
    await forest.commit_change(
        nodes_pb.UpdateNodeRequest(
            node_id=leaf, tags=[], mode=nodes_pb.UPDATE_MODE_REPLACE, update_mask={"paths": ["tags"]}
        )
    )
    book.chapters["Chapter 1"].append("Appended: " + "kettle harbour " * 40)
    result = await forest.ingest(book.text, document_id="book", media_type="text/markdown")
    assert result.created_leaves > 2, "still cut at 300 characters"
    told = (await forest.archive(first.archive_id)).attributes
    assert (told["chunk_size"], told["similarity_threshold"], told["merge_limit"]) == ("300", "0.25", "5000")
    versions = await forest.versions(first.archive_id)
    assert {tuple(node.tags) for node in versions if node.entry_id != leaf} == {("paper",)}
    assert list((await forest.node(leaf)).tags) == []
    await forest.ingest(book.text, document_id="book", media_type="text/markdown", tags=["old"], merge_limit=900)
    versions = await forest.versions(first.archive_id)
    assert {tuple(node.tags) for node in versions if node.entry_id != leaf} == {("old", "paper")}
    assert (await forest.archive(first.archive_id)).attributes["merge_limit"] == "900"
    assert await forest.text(first.archive_id) == book.text


async def test_a_document_in_a_joined_archive_is_found_and_updated(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest, name="book", model_id="scout")
    other = await forest.ingest("# Other\n\nAnother document.\n", name="other", model_id="scout")
    joined = await forest.joining.merge_archives(
        pb.MergeArchivesRequest(
            workspace=forest.world.workspace, archives=[first.archive_id, other.archive_id], name="library"
        )
    )
    assert await forest.stale() == []
    before = dict(await forest.leaves(joined.archive.id))
    same = await forest.ingest(book.text, document_id="book", media_type="text/markdown")
    assert (same.commit_id, same.archive_id) == ("", joined.archive.id)
    book.chapters["Chapter 1"].insert(1, "A new paragraph: " + "kettle harbour " * 15)
    second = await forest.ingest(book.text, document_id="book", media_type="text/markdown")
    assert (second.archive_id, second.created_leaves) == (joined.archive.id, 1)
    after = await forest.leaves(joined.archive.id)
    assert before.items() <= after.items()
    assert "".join(text for text in after.values() if "Another document" not in text) == book.text
    assert await forest.stale() == [], "the nodes above the document are summed up again, too"
    leaf = await leaf_of(forest, joined.archive.id, "A new paragraph")
    way = await above(forest, leaf)
    assert joined.root.id == way[-1]
    assert {leaf, way[0], way[-2]} <= forest.files().keys() <= {leaf, *way}


async def test_another_commit_during_the_job_is_kept(forest: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    first = await book.put(forest, similarity_threshold=1.0)
    leaf = await leaf_of(forest, first.archive_id, book.chapters["Chapter 1"][2])
    chapter = (await above(forest, leaf))[-1]
    tries = 0
    real = ingestion_module.find_affected_nodes

    async def meanwhile(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        made = await real(*arguments)
        if tries == 1:  # a commit during the job, to a node that the job is about to write
            await forest.commit_change(nodes_pb.UpdateNodeRequest(node_id=chapter, attributes={"seen": "yes"}))
        return made

    monkeypatch.setattr(ingestion_module, "find_affected_nodes", meanwhile)
    book.chapters["Chapter 1"].insert(3, "A new paragraph: " + "kettle harbour " * 15)
    told = await forest.try_ingest(book.text, document_id="book", media_type="text/markdown")
    assert (told.last.state, tries) == (SUCCEEDED, 2)
    assert (await forest.node(chapter)).attributes["seen"] == "yes"
    assert await forest.text(first.archive_id) == book.text
    assert [subject.split()[0] for subject in forest.commits()[:3]] == ["Update", "Change", "Ingest"]
    assert await forest.stale() == []


async def test_a_session_that_was_open_meanwhile_merges(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest)
    leaf = await leaf_of(forest, first.archive_id, book.chapters["Chapter 2"][1])
    session = await forest.session()
    await forest.change(
        session,
        nodes_pb.UpdateNodeRequest(node_id=leaf, title="Seen by me"),
        nodes_pb.CreateNodeRequest(parent_id=leaf, title="Mine", content="My note."),
    )
    book.chapters["Chapter 2"].insert(3, "A new paragraph: " + "kettle harbour " * 15)
    await book.put(forest)
    await forest.commit(session, renew_summaries=True)
    assert (await forest.node(leaf)).title == "Seen by me"
    assert await forest.text(first.archive_id) == book.text
    (titles,) = [[node.title for node in await forest.versions(first.archive_id) if node.parent_id == leaf]]
    assert titles == ["Mine"]


async def test_bookmarks_of_a_pdf_at_one_place_are_sections_of_their_own_in_every_version(forest: Forest) -> None:
    outline = [("Part", 0, 0), ("Section", 0, 1), ("End", 1, 0)]
    pages = ["Text of the first page that no bookmark names.", "End of it."]
    first = await forest.ingest(file=pdf(pages, [("End", 1, 0)]), document_id="p", name="p.pdf")
    data = pdf(["Wholly other text of the page.", "End of it."], outline)
    second = await forest.ingest(file=data, document_id="p", name="p.pdf")
    assert second.archive_id == first.archive_id
    text = await forest.text(first.archive_id)
    assert "".join(text.split()) == "".join(
        "".join(page.extract_text() for page in PdfReader(BytesIO(data)).pages).split()
    )
    titles = [title for _, kind, title in await forest.shape(first.archive_id) if kind == "summary_node"]
    assert titles[-1] == "End"
    assert await forest.stale() == []


async def test_a_leaf_moved_or_deleted_by_a_person_is_restored_by_the_next_version(forest: Forest) -> None:
    book = Book()
    first = await book.put(forest, similarity_threshold=1.0)
    gone = await leaf_of(forest, first.archive_id, book.chapters["Chapter 1"][2])
    moved = await leaf_of(forest, first.archive_id, book.chapters["Chapter 2"][2])
    chapter = await chapter_of(forest, first.archive_id, "Chapter 0")
    await forest.commit_change(
        nodes_pb.DeleteNodeRequest(node_id=gone), nodes_pb.MoveNodeRequest(node_id=moved, parent_id=chapter)
    )
    book.chapters["Chapter 3"].append("A new paragraph: " + "kettle harbour " * 15)
    await book.put(forest)


async def test_a_summary_names_the_model_that_made_it(world: World, endpoint: ModelEndpoint) -> None:
    async with forest_of(world, endpoint) as forest:
        result = await forest.ingest("# Short\n\nA short text.\n\n# Long\n\n" + paragraphs(1, words=50)[0], name="x.md")
        makers = {node.title: node.attributes[SUMMARY_BY] for node in await forest.versions(result.archive_id)}
        assert makers["Short"] == "verbatim", "of one child it is that child's, and a short text is its own"
        assert makers["Long"].startswith("test-chat leaf_summary@")


@pytest.mark.requirement("USE-9")
async def test_leaves_of_a_table_keep_their_ids_and_follow_its_header(forest: Forest) -> None:
    rows = [f"{part} of steel, sold by the piece | {number}" for number, part in enumerate(["bolt", "nut"] * 8)]

    async def put(columns: str, *rows: str) -> dict[str, Any]:
        table = f"| {columns} |\n|---|---|\n" + "".join(f"| {row} |\n" for row in rows)
        text = f"# Prices\n\n{table}\nAll in euros.\n"
        result = await forest.ingest(text, document_id="prices", media_type="text/markdown", chunk_size=CHUNK)
        assert await forest.text(result.archive_id) == text
        return {node_id: await forest.node(node_id) for node_id in await forest.leaves(result.archive_id)}

    before = await put("Part | Price", *rows)
    first, *later = before
    assert before[first].title == "Part | Price"
    assert len(later) > 1
    for node_id in later:
        assert before[node_id].title.removeprefix("Part | Price: ") in before[node_id].content
        assert before[node_id].attributes["table_header"] == "| Part | Price |\n|---|---|"
    after = await put("Part | Cost in euros", *rows)
    assert set(later) <= set(after), "their text is the same"
    assert first not in after
    for node_id in later:
        assert after[node_id].title == before[node_id].title.replace("Price", "Cost in euros")
        assert after[node_id].attributes["table_header"] == "| Part | Cost in euros |\n|---|---|"


@pytest.mark.requirement("USE-9")
async def test_a_changed_function_changes_its_leaf_alone(forest: Forest) -> None:
    functions = {name: f"def {name}(x):\n    return x + {number}\n\n\n" for number, name in enumerate("abcd")}

    async def put() -> tuple[Any, dict[str, str]]:
        text = "".join(functions.values())
        result = await forest.ingest(text, document_id="a.py", media_type="text/x-python")
        assert await forest.text(result.archive_id) == text
        return result, await forest.leaves(result.archive_id)

    result, before = await put()
    assert (await forest.archive(result.archive_id)).attributes["media_type"] == "text/x-python"
    sections = [version.title for version in await forest.versions(result.archive_id) if version.type == "summary_node"]
    assert sorted(sections) == ["a()", "b()", "c()", "d()"]
    functions["b"] = "def b(x):\n    return x * 20\n\n\n"
    functions["e"] = "def e(x):\n    return x\n"
    _, after = await put()
    assert [before[node_id] for node_id in before.keys() - after.keys()] == ["def b(x):\n    return x + 1\n\n\n"]
    assert {after[node_id] for node_id in after.keys() - before.keys()} == {functions["b"], functions["e"]}
