"""Leaf features: what a search inside documents needs of each version that has its own content.

They are the terms of the content and of what stands with it (a title of its own, tags, attributes), how often each
occurs, and the vector of the same text. A version never changes, so neither do its features: the indexer writes them
once for each index, in the transaction that applies the outbox, and they are deleted with the version or the index
(table ``mirror.passage``). A reader that needs those of all committed versions waits for `Indexer.current`.
"""

import asyncio
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.index.node_text import (
    NodeText,
    embedded_leaf,
    has_leaf_features,
    shown_tokens,
    text_of,
)
from memotree_storage.index.terms import TermCounts, count_terms, leaf_counts, terms_around
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.ports import Embedder, TermVector, Vector, Vectors
from memotree_storage.postgres.arrays import integers

if TYPE_CHECKING:  # the workers need no database
    from memotree_storage.postgres.database import Connection

_TERM: Final = np.dtype("<u4")
_COUNT: Final = np.dtype("<u2")
_FLOAT: Final = np.dtype("<f4")
_FACTS: Final = struct.Struct("<qqq")
_log: Final = structlog.get_logger(__name__)
_MOST_COUNTED: Final = int(np.iinfo(_COUNT).max)

_AT_ONCE: Final = 20_000
"""Rows that one statement reads: about forty megabytes."""


@dataclass(frozen=True, slots=True)
class LeafTerms:
    """The terms of a leaf as bytes: ascending 32-bit ids and 16-bit frequencies, both little-endian.

    ``length`` is the number of words and unspaced characters.
    """

    terms: bytes
    counts: bytes
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class LeafFeatures:
    """The features of one leaf.

    Attributes:
        terms: Ids of its terms, ascending and unique; 32 bits each.
        counts: How often each term occurs, at most 65,535.
        length: Number of words and unspaced characters, including terms that were left out.
        tokens: Number of tokens as a recall shows the leaf, with its title if it has one of its own.
        vector: The leaf's embedding, a unit vector.
    """

    terms: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    length: int
    tokens: int
    vector: Vector


@dataclass(frozen=True, slots=True, eq=False)
class LeafFeatureBlock:
    """The leaf features of many versions in flat arrays; row ``i`` has the terms ``offsets[i]`` to ``offsets[i + 1]``.

    Attributes:
        version_ids: The version of each row, shape (rows,).
        tokens: The tokens of each row.
        lengths: The length of each row.
        offsets: Shape (rows + 1,).
        terms: The terms of all rows, concatenated.
        counts: The frequencies of these terms.
        vectors: Shape (rows, dimensions).
    """

    version_ids: NDArray[np.int64]
    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    offsets: NDArray[np.int64]
    terms: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    vectors: Vectors

    def passages(self) -> Iterator[tuple[int, LeafFeatures]]:
        """Yield each version with its leaf features; the arrays are views."""
        bounds = self.offsets.tolist()
        facts = zip(self.version_ids.tolist(), self.lengths.tolist(), self.tokens.tolist(), strict=True)
        for number, (version_id, length, tokens) in enumerate(facts):
            part = slice(bounds[number], bounds[number + 1])
            yield version_id, LeafFeatures(self.terms[part], self.counts[part], length, tokens, self.vectors[number])


# --- From text -------------------------------------------------------------------------------------------------------


def leaf_terms(text: NodeText) -> LeafTerms:
    """Return the terms of a leaf with their raw frequencies; saturation is left to the scorer."""
    return _packed(leaf_counts(count_terms(text.content), text))


def node_terms(text: NodeText) -> tuple[TermVector, LeafTerms | None]:
    """Return the terms of a node for the index, and those of its leaf if it has one, from one pass over its content."""
    counted = count_terms(text.content)
    return terms_around(counted, text), _packed(leaf_counts(counted, text)) if text.has_leaf else None


def _packed(counted: TermCounts) -> LeafTerms:
    size = len(counted.frequencies)
    ids = np.fromiter(counted.frequencies.keys(), dtype=np.int64, count=size)
    values = np.fromiter(counted.frequencies.values(), dtype=np.float64, count=size)
    order = np.argsort(ids)
    counts = np.minimum(values[order], _MOST_COUNTED)
    return LeafTerms(ids[order].astype(_TERM).tobytes(), counts.astype(_COUNT).tobytes(), counted.length)


async def leaf_vectors(nodes: Sequence[Node], embedder: Embedder) -> list[Vector | None]:
    """Return the vector of each node's leaf; ``None`` for a node without leaf features."""
    found: list[Vector | None] = [None] * len(nodes)
    places = [place for place, node in enumerate(nodes) if has_leaf_features(node)]
    texts = await in_store_thread(lambda: [embedded_leaf(nodes[place]) for place in places])
    for place, vector in zip(places, await embedder.embed(texts), strict=True):
        found[place] = vector
    return found


def made(tokens: int, terms: LeafTerms | None, vector: Vector | None) -> LeafFeatures | None:
    """Combine terms and vector into leaf features; ``None`` if either is missing."""
    if terms is None or vector is None:
        return None
    ids, counts = np.frombuffer(terms.terms, dtype=_TERM), np.frombuffer(terms.counts, dtype=_COUNT)
    return LeafFeatures(ids, counts, terms.length, tokens, vector)


async def of_nodes(nodes: Sequence[Node], embedder: Embedder) -> list[LeafFeatures | None]:
    """Return the leaf features of uncommitted nodes, in order; ``None`` for a node without its own content."""

    def terms_of() -> list[tuple[int, LeafTerms | None]]:
        return [
            (shown_tokens(node), leaf_terms(text_of(node))) if has_leaf_features(node) else (0, None) for node in nodes
        ]

    vectors, terms = await asyncio.gather(leaf_vectors(nodes, embedder), in_store_thread(terms_of))
    return [made(tokens, term, vector) for (tokens, term), vector in zip(terms, vectors, strict=True)]


# --- In the mirror ---------------------------------------------------------------------------------------------------

_COLUMNS: Final = "version_id, tokens, length, terms, counts, vector, checksum"
_WRITTEN: Final = f"index_number, {_COLUMNS}"
_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END: Final = b"\xff\xff"
_COPY_BYTES: Final = 1 << 18
_ROW_BEGIN: Final = struct.Struct(">hiiiqiiiii")
"""The number of fields; then index, version, tokens and length, each after its size; and the size of the terms."""

_SIZE: Final = struct.Struct(">i")
_ROW_END: Final = struct.Struct(">iq")

_Row = tuple[int, int, int, bytes, bytes, bytes, int]


async def put(conn: "Connection", index: int, found: Mapping[int, LeafFeatures | None]) -> None:
    """Write the leaf features of versions for an index, replacing existing ones."""
    rows = {version_id: leaf_features for version_id, leaf_features in found.items() if leaf_features is not None}
    data = [row(index, version_id, one.tokens, _terms_of(one), one.vector) for version_id, one in rows.items()]
    await put_rows(conn, index, list(rows), b"".join(data))


async def put_rows(conn: "Connection", index: int, version_ids: Sequence[int], rows: bytes) -> None:
    """Write the rows (`row`) of versions for an index, replacing existing ones."""
    if not version_ids:
        return
    # They exist already if the outbox is applied again after a crash of the index.
    await conn.execute(
        "delete from mirror.passage where version_id = any(%s::bigint[]) and index_number = %s",
        (integers(version_ids), index),
    )
    async with (
        conn.cursor() as cursor,
        cursor.copy(f"copy mirror.passage ({_WRITTEN}) from stdin (format binary)") as copy,
    ):
        for start in range(0, len(rows), _COPY_BYTES):
            head = _COPY_HEADER if start == 0 else b""
            await copy.write(head + rows[start : start + _COPY_BYTES])
        await copy.write(_COPY_END)


def row(index: int, version_id: int, tokens: int, terms: LeafTerms, vector: Vector) -> bytes:
    """Return the row of a version for an index, with its checksum, as PostgreSQL's binary COPY takes it."""
    values = vector.astype(_FLOAT).tobytes()
    checksum = _checksum(version_id, tokens, terms.length, terms.terms, terms.counts, values)
    return b"".join(
        (
            _ROW_BEGIN.pack(8, 4, index, 8, version_id, 4, tokens, 4, terms.length, len(terms.terms)),
            terms.terms,
            _SIZE.pack(len(terms.counts)),
            terms.counts,
            _SIZE.pack(len(values)),
            values,
            _ROW_END.pack(8, checksum),
        )
    )


def _terms_of(leaf_features: LeafFeatures) -> LeafTerms:
    terms, counts = leaf_features.terms.astype(_TERM), leaf_features.counts.astype(_COUNT)
    return LeafTerms(terms.tobytes(), counts.tobytes(), leaf_features.length)


def _checksum(version_id: int, tokens: int, length: int, terms: bytes, counts: bytes, vector: bytes) -> int:
    """The checksum of a row: so a row that was overwritten, also by another one, is never used."""
    found = zlib.crc32(_FACTS.pack(version_id, tokens, length))
    for part in (terms, counts, vector):
        found = zlib.crc32(part, found)
    return found


async def load_block(conn: "Connection", index: int, version_ids: Sequence[int]) -> LeafFeatureBlock:
    """Return the leaf features of versions by an index as one block, in any order; versions without any are left out.

    So are rows whose checksum is wrong: a caller that misses some makes them from the texts, and has the indexer make
    them again (`Indexer.make_again`).
    """
    starts = range(0, len(version_ids), _AT_ONCE)
    blocks = [await _read(conn, index, version_ids[start : start + _AT_ONCE]) for start in starts]
    if len(blocks) == 1:
        return blocks[0]
    return await in_store_thread(_joined, blocks)


async def load(conn: "Connection", index: int, version_ids: Sequence[int]) -> dict[int, LeafFeatures]:
    """Return the leaf features of versions by an index, by version id; versions without any are left out."""
    return dict((await load_block(conn, index, version_ids)).passages())


async def missing(conn: "Connection", index: int, workspace_id: str, limit: int) -> list[tuple[str, str]]:
    """Return entry and commit of versions that an index lacks the leaf features of, and that are not in its outbox."""
    cursor = await conn.execute(
        "select v.entry_id, c.commit_id from mirror.version v join mirror.line l using (line_id)"
        " join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq"
        " where l.workspace_id = %(workspace)s and not v.dead and not v.is_archive and v.tokens > 0"
        " and v.type <> %(summary)s and not exists (select from mirror.passage p"
        " where p.version_id = v.version_id and p.index_number = %(index)s)"
        " and not exists (select from mirror.outbox o where o.version_id = v.version_id"
        " and o.index_number = %(index)s and not o.changed and not o.applied) limit %(limit)s",
        {"workspace": workspace_id, "index": index, "summary": SUMMARY_TYPE, "limit": limit},
    )
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def _read(conn: "Connection", index: int, version_ids: Sequence[int]) -> LeafFeatureBlock:
    async with conn.cursor(binary=True) as cursor:
        await cursor.execute(
            f"select {_COLUMNS} from mirror.passage"  # noqa: S608 - our own names
            " where version_id = any(%s::bigint[]) and index_number = %s",
            (integers(version_ids), index),
        )
        rows = await cursor.fetchall()
    return await in_store_thread(_checked_block, rows)


def _checked_block(rows: Sequence[_Row]) -> LeafFeatureBlock:
    whole = [row for row in rows if _checksum(*row[:-1]) == row[-1]]
    if len(whole) < len(rows):
        damaged = len(rows) - len(whole)
        _log.warning("leaf features are damaged; they are not used", rows=damaged)
    return _block(whole)


def _block(rows: Sequence[_Row]) -> LeafFeatureBlock:
    ids, tokens, lengths, terms, counts, vectors, _ = zip(*rows, strict=True) if rows else ((),) * 7
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(part) // _TERM.itemsize for part in terms], out=offsets[1:])
    wide = len(vectors[0]) if vectors else 0
    return LeafFeatureBlock(
        version_ids=np.array(ids, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        offsets=offsets,
        terms=np.frombuffer(b"".join(terms), dtype=_TERM),
        counts=np.frombuffer(b"".join(counts), dtype=_COUNT),
        vectors=np.frombuffer(b"".join(vectors), dtype=_FLOAT).reshape(len(rows), wide // _FLOAT.itemsize),
    )


def _joined(blocks: Sequence[LeafFeatureBlock]) -> LeafFeatureBlock:
    full = [block for block in blocks if len(block.version_ids)]
    if not full:
        return _block([])
    shifts = np.cumsum([0, *(block.offsets[-1] for block in full)])
    offsets = [block.offsets[:-1] + shift for block, shift in zip(full, shifts[:-1], strict=True)]
    return LeafFeatureBlock(
        version_ids=np.concatenate([block.version_ids for block in full]),
        tokens=np.concatenate([block.tokens for block in full]),
        lengths=np.concatenate([block.lengths for block in full]),
        offsets=np.concatenate([*offsets, shifts[-1:]]),
        terms=np.concatenate([block.terms for block in full]),
        counts=np.concatenate([block.counts for block in full]),
        vectors=np.concatenate([block.vectors for block in full]),
    )
