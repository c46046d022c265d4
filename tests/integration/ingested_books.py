"""An ingested book, whose leaves tests change."""

from integration.forests import Forest
from integration.test_reingestion import Book, chapter_of, leaf_of


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
