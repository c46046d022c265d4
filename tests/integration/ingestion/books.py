"""A document of chapters that tests ingest and change."""

from typing import Any

from integration.forests import Forest
from integration.ingestion.documents import paragraphs

CHUNK = 300


class Book:
    """A Markdown document of chapters with paragraphs of one leaf each."""

    def __init__(self, chapters: int = 4, each: int = 3) -> None:
        every = iter(paragraphs(chapters * each))
        self.chapters = {f"Chapter {number}": [next(every) for _ in range(each)] for number in range(chapters)}

    @property
    def text(self) -> str:
        return "".join(
            f"# {title}\n\n" + "".join(f"{paragraph}\n\n" for paragraph in below)
            for title, below in self.chapters.items()
        )

    async def put(self, forest: Forest, **fields: Any) -> Any:
        result = await forest.ingest(
            self.text, document_id="book", media_type="text/markdown", chunk_size=CHUNK, **fields
        )
        assert await forest.text(result.archive_id) == self.text
        assert await forest.stale() == []
        versions = await forest.versions(result.archive_id)
        below = {version.parent_id for version in versions}
        assert all(version.entry_id in below for version in versions if version.type == "summary_node")
        return result


async def above(forest: Forest, node_id: str) -> list[str]:
    """The ids of the nodes above, nearest first."""
    found = []
    node = await forest.node(node_id)
    while node.parent_id:
        found.append(node.parent_id)
        node = await forest.node(node.parent_id)
    return found


async def leaf_of(forest: Forest, archive_id: str, text: str) -> str:
    """The id of the leaf that has a text."""
    (found,) = [node_id for node_id, content in (await forest.leaves(archive_id)).items() if text in content]
    return found


async def chapter_of(forest: Forest, archive_id: str, title: str) -> str:
    """The id of the section that has a title."""
    (found,) = [
        node.entry_id
        for node in await forest.versions(archive_id)
        if node.title == title and node.type == "summary_node"
    ]
    return found


class IngestedBook:
    """An ingested book whose chapters are lists of leaves, and one leaf of it."""

    def __init__(self, forest: Forest, book: Book, archive_id: str) -> None:
        self.forest = forest
        self.book = book
        self.archive_id = archive_id
        self.leaf = ""
        self.chapter = ""

    @classmethod
    async def of(cls, forest: Forest, threshold: float = 1.0) -> "IngestedBook":
        book = Book()
        result = await book.put(forest, similarity_threshold=threshold)
        ingested = cls(forest, book, result.archive_id)
        ingested.leaf = await leaf_of(forest, result.archive_id, book.chapters["Chapter 1"][2])
        ingested.chapter = await chapter_of(forest, result.archive_id, "Chapter 1")
        return ingested


CHANGED = "A wholly different text about engines and harbours, written by a person. " * 4
