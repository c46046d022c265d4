"""Compares the leaf features with Git: each version with content has those that its text gives."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.index import leaf_features
from memotree_storage.index.leaf_features import LeafFeatures
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.index.node_text import shown_tokens, text_of
from memotree_storage.model.codec import InvalidFileError
from memotree_storage.model.node import Node
from memotree_storage.model.paths import node_path
from memotree_storage.ports import Embedder, Vector
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store
from memotree_storage.verify.report import Difference, in_postgres

_PAGE: Final = 500
_MOST_NAMED: Final = 10_000
"""Versions without leaf features that are reported individually."""

_CLOSE: Final = 1e-3
"""Vectors of one text by one model differ by less than this in each number, whatever batch they were made in."""

_Row: TypeAlias = tuple[int, str, str, str]
"""Version id, node id, blob and commit id."""

_STORED: Final = """
  select v.version_id, v.entry_id, v.blob, c.commit_id
    from mirror.line l join mirror.version v using (line_id)
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where l.workspace_id = %(workspace)s and v.version_id > %(after)s
     and exists (select from mirror.passage p where p.version_id = v.version_id and p.index_number = %(index)s)
   order by v.version_id limit %(limit)s"""


async def check_leaf_features(store: Store, workspace_id: str) -> AsyncIterator[Difference]:
    """Compare the leaf features of a workspace with the texts in Git.

    Texts that Git has lost are left to the check of the commits. Vectors are computed again and compared only if the
    embedding model is not slow.
    """
    index = store.current
    with index.in_use():
        async with store.database.connection() as conn:
            for entry_id, commit_id in await leaf_features.missing(conn, index.number, workspace_id, _MOST_NAMED):
                yield _difference("has no leaf features", entry_id, commit_id)
        after = 0
        while True:
            values = {"workspace": workspace_id, "index": index.number, "after": after, "limit": _PAGE}
            async with store.database.connection() as conn:
                rows = await (await conn.execute(_STORED, values)).fetchall()
                stored = await leaf_features.load(conn, index.number, [row[0] for row in rows])
            if not rows:
                return
            after = rows[-1][0]
            async with store.database.connection() as conn:
                for entry_id, commit_id in await _damaged(conn, index, rows, stored):
                    yield _difference("has damaged leaf features", entry_id, commit_id)
            nodes = await _read(store, workspace_id, rows)
            for difference in await _compare(index.embedder, rows, stored, nodes):
                yield difference


async def _damaged(
    conn: Connection, index: ModelIndex, rows: Sequence[_Row], stored: Mapping[int, LeafFeatures]
) -> list[tuple[str, str]]:
    """Return node and commit of rows that are there and were not loaded, since their checksum is wrong."""
    missed = {row[0]: row for row in rows if row[0] not in stored}
    cursor = await conn.execute(
        "select version_id from mirror.passage where version_id = any(%s) and index_number = %s order by version_id",
        (list(missed), index.number),
    )
    return [(missed[row[0]][1], missed[row[0]][3]) for row in await cursor.fetchall()]


async def _read(store: Store, workspace_id: str, rows: Sequence[_Row]) -> dict[str, Node]:
    """Return the nodes of some versions by blob, without those that Git has lost."""
    found: dict[str, Node] = {}
    for some in (rows, *([row] for row in rows)):  # one by one if one of them is lost
        try:
            entries = await store.entries.read(workspace_id, {row[2]: node_path(row[1]) for row in some})
        except (ObjectMissingError, InvalidFileError):
            continue
        found |= {blob: entry for blob, entry in entries.items() if isinstance(entry, Node)}
        if some is rows:
            break
    return found


async def _compare(
    embedder: Embedder, rows: Sequence[_Row], stored: Mapping[int, LeafFeatures], nodes: Mapping[str, Node]
) -> list[Difference]:
    # A version is gone if its line was collected meanwhile.
    known = [row for row in rows if row[0] in stored and row[2] in nodes]
    if embedder.is_slow:
        vectors: Sequence[Vector | None] = [stored[row[0]].vector for row in known]
    else:
        vectors = await leaf_features.leaf_vectors([nodes[row[2]] for row in known], embedder)

    def compare() -> list[Difference]:
        found = []
        for (version_id, entry_id, blob, commit_id), vector in zip(known, vectors, strict=True):
            wrong = _wrong(stored[version_id], nodes[blob], vector)
            if wrong:
                found.append(_difference(wrong, entry_id, commit_id))
        return found

    return await in_store_thread(compare)


def _wrong(there: LeafFeatures, node: Node, vector: Vector | None) -> str:
    """Return what is wrong with leaf features; "" if nothing is."""
    should = leaf_features.made(shown_tokens(node), leaf_features.leaf_terms(text_of(node)), vector)
    if should is None:
        return "has leaf features, and no content of its own"
    if there.tokens != should.tokens:
        return f"has {there.tokens} tokens in its leaf features, and {should.tokens} by its text"
    same_terms = np.array_equal(there.terms, should.terms) and np.array_equal(there.counts, should.counts)
    if there.length != should.length or not same_terms:
        return "has other words in its leaf features than in its text"
    if there.vector.shape != should.vector.shape or not np.allclose(there.vector, should.vector, atol=_CLOSE):
        return "has a vector in its leaf features that is not that of its text"
    return ""


def _difference(what: str, entry_id: str, commit_id: str) -> Difference:
    return in_postgres("passage", f"{entry_id} at commit {commit_id} {what}.", commit_id=commit_id, node_id=entry_id)
