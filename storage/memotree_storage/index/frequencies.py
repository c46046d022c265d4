"""Document frequencies: in how many indexed versions of a workspace each term occurs, and how many versions there are.

A version counts from when the indexer has written its point (its row of the outbox is ``counted`` or gone) until its
line is collected. So the rows of ``mirror.term`` equal the counts of all mirrored commits in Git, minus what is still
in the outbox; ``verify`` checks this.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from memotree_storage.concurrency.threads import in_store_thread, in_store_thread_if
from memotree_storage.errors import CorruptError
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.index.node_text import text_of
from memotree_storage.index.terms import document_terms
from memotree_storage.model.codec import InvalidFileError, decode_entry
from memotree_storage.model.node import Node
from memotree_storage.model.paths import node_path
from memotree_storage.ports import CommitReader
from memotree_storage.postgres.arrays import integers
from memotree_storage.postgres.database import Connection

ALL_DOCUMENTS: Final = -1
"""The row of ``mirror.term`` that counts the indexed versions."""

_SLICE: Final = 200
"""Texts that a thread reads before it lets other calls run."""

_FEW: Final = 1000
"""More terms are written out in a thread, so that other calls go on."""

_PAGE: Final = 5000
"""Terms changed by one statement."""


class TextGoneError(CorruptError):
    """The text of a version that was counted is missing in Git."""

    reason = "VERSION_TEXT_GONE"

    def __init__(self, entry_id: str, blob: str) -> None:
        super().__init__(
            f"The text of {entry_id} (blob {blob}) is no longer in Git, so its terms cannot be counted. "
            "Run `memotree rebuild` for this workspace."
        )


def count_node(counts: Counter[int], node: Node) -> None:
    """Add a version's terms to the counts."""
    counts.update(document_terms(text_of(node)).ids)
    counts[ALL_DOCUMENTS] += 1


async def counted_versions(conn: Connection, lines: Collection[int]) -> set[int]:
    """Return the versions on lines that the frequencies include: those of nodes that no longer wait in the outbox."""
    cursor = await conn.execute(
        "select v.version_id from mirror.version v where v.line_id = any(%s) and not v.dead and not v.is_archive"
        " and not exists (select from mirror.outbox o"
        "  where o.version_id = v.version_id and not o.changed and not o.counted)",
        (list(lines),),
    )
    return {row[0] for row in await cursor.fetchall()}


class Frequencies(NamedTuple):
    """In how many indexed versions of a workspace some terms occur (0 left out), and how many versions there are."""

    having: Mapping[int, int]
    versions: int

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        """Return them from stored counts, among which is the one of `ALL_DOCUMENTS` unless nothing is indexed."""
        having = dict(counts)
        versions = having.pop(ALL_DOCUMENTS, 0)
        return cls(having, versions)


async def read(conn: Connection, workspace_id: str, terms: Iterable[int]) -> Frequencies:
    """Return the frequencies of some terms."""
    cursor = await conn.execute(
        "select term, documents from mirror.term where workspace_id = %s and term = any(%s)",
        (workspace_id, [ALL_DOCUMENTS, *terms]),
    )
    return Frequencies.of({row[0]: row[1] for row in await cursor.fetchall()})


async def add(conn: Connection, workspace_id: str, counts: Counter[int]) -> None:
    """Add counts to the stored ones."""
    for terms, documents in await _pages(counts):
        await conn.execute(
            "insert into mirror.term as t (workspace_id, term, documents)"
            " select %s, * from unnest(%s::bigint[], %s::integer[])"
            " on conflict (workspace_id, term) do update set documents = t.documents + excluded.documents",
            (workspace_id, terms, documents),
        )


async def subtract(conn: Connection, workspace_id: str, counts: Counter[int]) -> None:
    """Subtract counts; a term without versions loses its row. The caller must keep the indexer out meanwhile."""
    for terms, documents in await _pages(counts):
        arguments = (terms, documents, workspace_id)
        await conn.execute(
            "delete from mirror.term t using unnest(%s::bigint[], %s::integer[]) as gone (term, documents)"
            " where t.workspace_id = %s and t.term = gone.term and t.documents <= gone.documents",
            arguments,
        )
        await conn.execute(
            "update mirror.term t set documents = t.documents - gone.documents"
            " from unnest(%s::bigint[], %s::integer[]) as gone (term, documents)"
            " where t.workspace_id = %s and t.term = gone.term",
            arguments,
        )


async def replace(conn: Connection, workspace_id: str, counts: Counter[int]) -> None:
    """Replace all stored counts. The caller must keep the indexer out meanwhile."""
    await conn.execute("delete from mirror.term where workspace_id = %s", (workspace_id,))
    for terms, documents in await _pages(counts):
        await conn.execute(
            "insert into mirror.term select %s, * from unnest(%s::bigint[], %s::integer[])",
            (workspace_id, terms, documents),
        )


async def _pages(counts: Counter[int]) -> list[tuple[str, str]]:
    """The terms and their counts, page by page, as arrays of PostgreSQL."""

    def pages() -> list[tuple[str, str]]:
        items = sorted(counts.items())  # in a fixed order, so that two writers cannot deadlock
        parts = (items[start : start + _PAGE] for start in range(0, len(items), _PAGE))
        return [(integers(term for term, _ in part), integers(documents for _, documents in part)) for part in parts]

    return await in_store_thread_if(len(counts) > _FEW, pages)


class TermCountUpdate:
    """The term counts of a set of versions, from their texts in Git.

    `bring_to` can be called again with another set and then reads only the texts of new versions. So most of the work
    can be done before a workspace is locked. Memory: one number per version and per distinct term.

    Args:
        repository: The repository with the texts.
        skip_lost: Skip versions whose text is missing in Git.
    """

    def __init__(self, repository: CommitReader, *, skip_lost: bool = False) -> None:
        self.counts: Counter[int] = Counter()
        self._repository = repository
        self._skip_lost = skip_lost
        self._versions: set[int] = set()

    async def bring_to(self, conn: Connection, versions: set[int]) -> None:
        """Update the counts to exactly these versions (without those that are no longer mirrored).

        Raises:
            TextGoneError: A text is missing in Git, and ``skip_lost`` is not set.
        """
        if not self._versions <= versions:  # a line came back, or a rebuild: too rare to subtract
            self.counts.clear()
            self._versions.clear()
        fresh = sorted(versions - self._versions)
        for start in range(0, len(fresh), _SLICE):
            cursor = await conn.execute(
                "select version_id, entry_id, blob from mirror.version where version_id = any(%s)",
                (fresh[start : start + _SLICE],),
            )
            rows = await cursor.fetchall()
            await in_store_thread(self._count, [(row[1], row[2]) for row in rows])
            self._versions.update(row[0] for row in rows)

    def _count(self, texts: Sequence[tuple[str, str]]) -> None:
        for entry_id, blob in texts:
            try:
                entry = decode_entry(node_path(entry_id), self._repository.read_blob(blob))
            except (ObjectMissingError, InvalidFileError, CorruptError) as error:
                if self._skip_lost:
                    continue
                raise TextGoneError(entry_id, blob) from error
            if isinstance(entry, Node):
                count_node(self.counts, entry)
