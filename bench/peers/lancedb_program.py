"""LanceDB as a library: one table with a full-text index and an index of keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lancedb
import pyarrow as pa

from bench.peers.program import DIMENSIONS, TOP, Note, packages, serve


class LanceDb:
    """A table of notes; vectors are compared one by one, as LanceDB advises for tables of this size."""

    durability = "not durable: no fsync (seen with strace); a power cut may lose or damage what was acknowledged"
    lacks: ClassVar[Mapping[str, str]] = {"history_of_one": "versions of the whole table only, none of one note"}

    def __init__(self, folder: Path, _: str) -> None:
        self.versions = packages("lancedb", "pyarrow")
        self._connection = lancedb.connect(str(folder))
        vectors = pa.list_(pa.float32(), DIMENSIONS)
        schema = pa.schema([("key", pa.string()), ("text", pa.string()), ("vector", vectors)])
        self._table = self._connection.create_table("notes", schema=schema)
        self._marked = 0
        self._has_indexes = False

    def load(self, notes: Sequence[Note]) -> None:
        self._table.add(_rows(notes))

    def settle(self) -> None:
        if self._has_indexes:
            self._table.optimize()
            return
        self._table.create_scalar_index("key")
        self._table.create_fts_index("text")
        self._has_indexes = True

    def mark(self) -> None:
        self._marked = self._table.version

    def update(self, notes: Sequence[Note]) -> None:
        self._table.merge_insert("key").when_matched_update_all().execute(_rows(notes))

    def search_words(self, text: str) -> list[str]:
        return _keys(self._table.search(text, query_type="fts").select(["key"]).limit(TOP))

    def search_vector(self, text: str, vector: Sequence[float]) -> list[str]:
        return _keys(self._table.search(vector).distance_type("cosine").select(["key"]).limit(TOP))

    def search_hybrid(self, text: str, vector: Sequence[float]) -> list[str]:
        query = self._table.search(query_type="hybrid").vector(vector).text(text)
        return _keys(query.distance_type("cosine").select(["key"]).limit(TOP))

    def read_as_of(self, key: str) -> str:
        table = self._connection.open_table("notes")
        table.checkout(self._marked)
        found = table.search().where(f"key = '{key}'").select(["text"]).limit(1).to_list()
        return str(found[0]["text"])


def _rows(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [{"key": note.key, "text": note.text, "vector": note.vector} for note in notes]


def _keys(query: Any) -> list[str]:
    return [row["key"] for row in query.to_list()]


if __name__ == "__main__":
    serve(LanceDb)
