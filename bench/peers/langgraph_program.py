"""LangGraph's store on PostgreSQL, with an index of vectors (pgvector, HNSW), on a cluster of the bench."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from langgraph.store.base import PutOp
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row

from bench.peers.program import DIMENSIONS, TOP, Note, packages, serve

_NAMES = ("notes",)


class LangGraph:
    """A namespace of notes; the vectors of texts are looked up, so that no model is part of the times."""

    durability = "on disk (PostgreSQL with fsync)"
    lacks: ClassVar[Mapping[str, str]] = {
        "search_words": "no search by words, only filters and vectors",
        "search_hybrid": "no search by words",
        "history_of_one": "no history",
        "read_as_of": "no history",
    }

    def __init__(self, _: Path, address: str) -> None:
        self.versions = packages("langgraph-checkpoint-postgres", "psycopg")
        self._vectors: dict[str, Sequence[float]] = {}
        connection = psycopg.connect(address, autocommit=True, prepare_threshold=0, row_factory=dict_row)
        self._connection: Any = connection
        self._store = PostgresStore(connection, index={"dims": DIMENSIONS, "embed": self._embed, "fields": ["text"]})
        self._store.setup()

    def load(self, notes: Sequence[Note]) -> None:
        self.update(notes)

    def settle(self) -> None:
        self._connection.execute("analyze")

    def mark(self) -> None:
        pass

    def update(self, notes: Sequence[Note]) -> None:
        self._vectors = {note.text: note.vector for note in notes}
        self._store.batch([PutOp(_NAMES, note.key, {"text": note.text}) for note in notes])

    def search_vector(self, text: str, vector: Sequence[float]) -> list[str]:
        self._vectors = {text: vector}
        return [item.key for item in self._store.search(_NAMES, query=text, limit=TOP)]

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(self._vectors[text]) for text in texts]


if __name__ == "__main__":
    serve(LangGraph)
