"""Documents go in: leaves, sections, sources, names, and what is refused."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from integration.forests import FAILED, SUCCEEDED, Forest, forest_of
from integration.worlds import World
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from memotree_storage.verify import Difference, verify
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from memotree.canvas import ViewOperations
from memotree.forest.documents.document import EmptyDocumentError, UnreadableDocumentError
from memotree.forest.ingestion.known_document import DocumentNameTakenError
from memotree.forest.tree_building.merging import merge_now
from memotree.history import HistoryOperations
from memotree.models.extractive import digest_of
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import history_service_pb2, node_service_pb2, types_pb2, view_service_pb2

WORDS = (
    "river",
    "mountain",
    "forest",
    "memory",
    "branch",
    "commit",
    "search",
    "pelican",
    "harbour",
    "violin",
    "kettle",
)


@pytest.fixture
async def forest(world: World) -> AsyncIterator[Forest]:
    async with forest_of(world) as made:
        yield made


def paragraphs(count: int, *, words: int = 40) -> list[str]:
    """Paragraphs that differ, of one leaf each at the chunk size of 300."""
    return [
        " ".join(
            f"Paragraph {number} tells of the {WORDS[(number * 7 + place * place) % len(WORDS)]} and its"
            f" {WORDS[(number + place * 5) % len(WORDS)]}."
            for place in range(words // 8)
        )
        for number in range(count)
    ]


def prose(count: int, **fields: Any) -> str:
    return "\n\n".join(paragraphs(count, **fields)) + "\n"


def pdf(pages: list[str], outline: list[tuple[str, int, int]] = (), *, password: str = "") -> bytes:  # type: ignore[assignment]
    """A PDF with a line of text on each page, and an outline of (title, page, depth)."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(width=600, height=800)
        stream = DecodedStreamObject()
        lines = "".join(f"({line}) Tj T* " for line in text.split("\n"))
        stream.set_data(f"BT /F1 12 Tf 14 TL 50 700 Td {lines}ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    above: dict[int, Any] = {}
    for title, page_number, depth in outline:
        above[depth] = writer.add_outline_item(title=title, page_number=page_number, parent=above.get(depth - 1))
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


async def differences(world: World) -> list[Difference]:
    return [found async for found in verify(world.store, world.workspace) if isinstance(found, Difference)]


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
    text = prose(24)
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


# --- What a job tells ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-1", "SERVE-6")
async def test_progress_is_streamed_between_the_job_at_first_and_at_last(forest: Forest) -> None:
    told = await forest.try_ingest(prose(8), name="papers", chunk_size=300)
    assert (told.first.id, told.first.kind, told.first.subject) == (told.last.id, "ingest", "papers")
    assert told.last.state == SUCCEEDED
    names = list(dict.fromkeys(step for step, _, _ in told.steps))
    assert names == ["split", "summarise", "embed", "merge", "commit"] or set(names) >= {"summarise", "commit"}
    assert all(done <= total for _, done, total in told.steps)
    assert told.result.commit_id == await forest.world.head()


async def test_who_stops_listening_does_not_stop_the_job(forest: Forest) -> None:
    request = pb.IngestDocumentRequest(workspace=forest.world.workspace, text=prose(30), name="papers")
    events = forest.ingestion.ingest_document(request)
    first = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert (await forest.over(first.job.id)).state == SUCCEEDED


async def test_the_commit_names_the_document_the_tool_and_the_job(forest: Forest) -> None:
    told = await forest.try_ingest(prose(3), name="papers")
    message = forest.git("log", "-1", "--format=%s%n%an%n%b")
    assert message.startswith("Ingest papers\nMemoTree")
    assert "MemoTree-Tool: IngestDocument" in message
    assert f"MemoTree-Job: {told.last.id}" in message


async def test_message_author_and_tags_are_as_the_request_says(forest: Forest) -> None:
    result = await forest.ingest(
        prose(3),
        name="papers",
        message="Take the notes in\n\nThey were on paper.",
        author=types_pb2.CommitAuthor(name="Ada", email="ada@example.org"),
        tags=["paper", "old", "paper"],
    )
    assert forest.git("log", "-1", "--format=%s|%an|%ae").strip() == "Take the notes in|Ada|ada@example.org"
    assert "They were on paper." in forest.git("log", "-1", "--format=%b")
    assert all(version.tags == ["old", "paper"] for version in await forest.versions(result.archive_id))


async def test_a_request_id_makes_one_job_and_one_tree(forest: Forest) -> None:
    told = await asyncio.gather(
        *(forest.try_ingest(prose(5), name="papers", request_id="one-and-the-same") for _ in range(3))
    )
    again = await forest.try_ingest(prose(5), name="papers", request_id="one-and-the-same")
    assert len({each.last.id for each in (*told, again)}) == 1
    assert forest.commits()[0] == "Ingest papers"
    assert forest.commits().count("Ingest papers") == 1
    with pytest.raises(InvalidInputError):
        await forest.try_ingest(prose(6), name="papers", request_id="one-and-the-same")


async def test_a_document_is_kept_as_long_as_its_job_may_need_it(forest: Forest) -> None:
    async def inputs() -> int:
        async with forest.world.store.database.connection() as conn:
            row = await (await conn.execute("select count(*) from work.job_input")).fetchone()
        return int(row[0]) if row else -1

    await forest.ingest(prose(3), name="papers")
    assert await inputs() == 0
    told = await forest.try_ingest(prose(4), name="papers", request_id="r")
    assert told.last.state == FAILED
    assert await inputs() == 1, "it may be resumed"
    await forest.commit_change_of_name("papers", "old papers")
    assert (await forest.resume(told.last.id)).state == SUCCEEDED
    assert await inputs() == 0


# --- Names and places ------------------------------------------------------------------------------------------------


async def test_the_same_document_twice_without_an_id_makes_two_archives(forest: Forest) -> None:
    text = "# A title\n\nSome text.\n"
    first = await forest.ingest(text, media_type="text/markdown")
    second = await forest.ingest(text, media_type="text/markdown")
    assert first.archive_id != second.archive_id
    assert first.document_id != second.document_id
    titles = [(await forest.archive(result.archive_id)).title for result in (first, second)]
    assert titles == ["A title", "A title (2)"], "nobody asked for that name, so it gives way"


@pytest.mark.requirement("FOREST-5")
async def test_the_same_document_twice_with_an_id_changes_nothing(forest: Forest) -> None:
    first = await forest.ingest(prose(5), name="papers", document_id="d")
    head = await forest.world.head()
    again = await forest.ingest(prose(5), document_id="d")
    assert await forest.world.head() == head
    assert (again.archive_id, again.commit_id) == (first.archive_id, "")
    assert (again.created_leaves, again.kept_leaves, again.removed_leaves) == (0, first.created_leaves, 0)
    assert (again.summary_nodes, again.roots) == (first.summary_nodes, first.roots)


async def test_a_name_that_another_archive_has_is_refused_at_once(forest: Forest) -> None:
    await forest.ingest("One.", name="papers", document_id="d1")
    other = await forest.ingest("Two.", name="others", document_id="d2")
    for fields in ({"document_id": "d3"}, {}, {"document_id": "d2"}):
        with pytest.raises(DocumentNameTakenError) as caught:
            await forest.try_ingest("Three.", name="papers", **fields)
        assert isinstance(caught.value, AlreadyExistsError)
    # With a request id it may be the call that took the name; then the job tells.
    told = await forest.try_ingest("Three.", name="papers", request_id="r")
    assert (told.last.state, told.last.reason) == (FAILED, "DOCUMENT_NAME_TAKEN")
    assert (await forest.archive(other.archive_id)).title == "others"


@pytest.mark.requirement("FOREST-5")
async def test_a_new_name_and_model_rename_the_archive_of_a_known_document(forest: Forest) -> None:
    first = await forest.ingest(prose(4), name="papers", document_id="d", model_id="scout")
    second = await forest.ingest(prose(4), name="my papers", document_id="d")
    third = await forest.ingest(prose(4), document_id="d", model_id="ranger")
    archive = await forest.archive(first.archive_id)
    assert (archive.title, archive.type) == ("my papers", "ranger")
    assert second.commit_id != third.commit_id
    assert set(forest.files()) == {first.archive_id}, "no node is touched"


async def test_documents_go_to_the_branch_that_is_named(forest: Forest) -> None:
    head = await forest.world.head()
    history = HistoryOperations(forest.world.store, forest.world.pages, forest.world.limits)
    await history.create_branch(
        history_service_pb2.CreateBranchRequest(workspace=forest.world.workspace, name="side", revision=head)
    )
    result = await forest.ingest("On the side.", name="papers", branch="side")
    assert await forest.world.head() == head
    assert await forest.text(result.archive_id, "side") == "On the side."
    on_main = await forest.ingest("On main.", name="papers")
    assert on_main.archive_id != result.archive_id


async def test_a_workspace_or_branch_that_is_not_there_is_refused(forest: Forest) -> None:
    with pytest.raises(BranchNotFoundError):
        await forest.try_ingest("Text.", branch="nowhere")
    request = pb.IngestDocumentRequest(workspace="nowhere", text="Text.")
    with pytest.raises(NotFoundError):
        await anext(aiter(forest.ingestion.ingest_document(request)))


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": ""}, "EMPTY_DOCUMENT"),
        ({"text": " \n\u200b\t\n"}, "EMPTY_DOCUMENT"),
        ({"file": b""}, "EMPTY_DOCUMENT"),
        ({"file": gzip.compress(b"text" * 100)}, "BINARY_DOCUMENT"),
        ({"file": bytes(range(256)) * 8}, "BINARY_DOCUMENT"),
        ({"file": b"PNG", "media_type": "image/png"}, "UNSUPPORTED_MEDIA_TYPE"),
        ({"file": b"%PDF-1.7 and nothing more"}, "DAMAGED_PDF"),
        ({"file": pdf(["A secret."], password="a word")}, "ENCRYPTED_PDF"),  # noqa: S106 - of a test
        ({"file": pdf([""])}, "PDF_WITHOUT_TEXT"),
        ({"conversation": pb.Conversation()}, "EMPTY_DOCUMENT"),
        ({"text": "{}", "media_type": "application/json"}, "INVALID_TURNS"),
    ],
)
async def test_what_cannot_be_read_is_refused_before_there_is_a_job(
    forest: Forest, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnreadableDocumentError) as caught:
        await forest.try_ingest(**fields)
    assert caught.value.reason == reason
    assert isinstance(caught.value, EmptyDocumentError) == (reason == "EMPTY_DOCUMENT")
    assert forest.commits() == ["Make the archive", "Create workspace garden"]


async def test_text_in_another_encoding_is_read_with_a_warning(forest: Forest) -> None:
    result = await forest.ingest(file="Äpfel, Öl und Übung. Süße Früchte für alle.".encode("cp1252"), name="de.txt")
    assert await forest.text(result.archive_id) == "Äpfel, Öl und Übung. Süße Früchte für alle."
    assert result.warnings


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "document"),
        ({"text": "x", "chunk_size": 5}, "chunk_size"),
        ({"text": "x", "chunk_size": 1 << 30}, "chunk_size"),
        ({"text": "x", "merge_limit": -1}, "merge_limit"),
        ({"text": "x", "similarity_threshold": 1.5}, "similarity_threshold"),
        ({"text": "x", "similarity_threshold": float("nan")}, "similarity_threshold"),
        ({"text": "x", "max_model_tokens": -1}, "max_model_tokens"),
        ({"text": "x", "document_id": "d\n"}, "document_id"),
        ({"text": "x", "document_id": "d" * 201}, "document_id"),
        ({"text": "x", "model_id": "m" * 201}, "model_id"),
        ({"text": "x", "name": "n" * 201}, "name"),
        ({"text": "x", "tags": ["a,b"]}, "tags[0]"),
        ({"text": "x", "tags": [f"{n:03}" + "y" * 90 for n in range(60)]}, "tags"),
        ({"text": "x", "message": "no\0"}, "message"),
        ({"text": "x", "author": types_pb2.CommitAuthor(name="<>")}, "author.name"),
    ],
)
async def test_values_that_cannot_be_meant_are_refused_by_their_field(
    forest: Forest, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await forest.try_ingest(**fields)
    assert path in {violation.field for violation in caught.value.violations}


# --- Great and strange documents -------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-1")
async def test_ten_megabytes_in_one_line_are_taken_in(forest: Forest) -> None:
    text = "".join(f"{WORDS[number % len(WORDS)]}{number} " for number in range(1_000_000))[:10_000_000]
    result = await forest.ingest(text, name="line", chunk_size=4000, similarity_threshold=1.0)
    state = await forest.versions(result.archive_id)
    assert result.created_leaves == len(state) >= 2500
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
    text = "".join(f"Leaf {number} says the same as all others do here.\n\n" for number in range(120))
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
