"""mem0's Python library with its local Qdrant and its history in SQLite; texts are stored as they are."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from langchain_core.embeddings import Embeddings
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from bench.peers.program import DIMENSIONS, TOP, Note, packages, serve

_USER = "bench"


class _Given(Embeddings):
    """The vectors of texts are looked up, so that no model is part of the times."""

    def __init__(self) -> None:
        self.vectors: Mapping[str, Sequence[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(self.vectors[text]) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return list(self.vectors[text])


class Mem0:
    """Memories of one user; ``infer=False``, because the extraction of facts needs a language model."""

    durability = "on disk (SQLite), each note by a call of its own: ten updates are not one change"
    lacks: ClassVar[Mapping[str, str]] = {
        "search_words": "its keyword search needs a model that is downloaded",
        "search_hybrid": "its keyword search needs a model that is downloaded",
        "read_as_of": "no state of all notes; only the log of one",
    }

    def __init__(self, folder: Path, _: str) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0")}  # read when it is imported
        from mem0 import Memory

        self.versions = packages("mem0ai", "qdrant-client")
        self._given = _Given()
        store = {"path": f"{folder}/qdrant", "embedding_model_dims": DIMENSIONS, "on_disk": True}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "embedder": {
                    "provider": "langchain",
                    "config": {"model": self._given, "embedding_dims": DIMENSIONS},
                },
                "llm": {"provider": "langchain", "config": {"model": FakeListChatModel(responses=["{}"])}},
                "history_db_path": f"{folder}/history.db",
            }
        )
        self._ids: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def load(self, notes: Sequence[Note]) -> None:
        self._given.vectors = {note.text: note.vector for note in notes}
        for note in notes:
            made = self._memory.add(note.text, user_id=_USER, infer=False)["results"][0]["id"]
            self._ids[note.key], self._keys[made] = made, note.key

    def settle(self) -> None:
        pass

    def mark(self) -> None:
        pass

    def update(self, notes: Sequence[Note]) -> None:
        self._given.vectors = {note.text: note.vector for note in notes}
        for note in notes:
            self._memory.update(self._ids[note.key], note.text)

    def search_vector(self, text: str, vector: Sequence[float]) -> list[str]:
        self._given.vectors = {text: vector}
        found = self._memory.search(text, filters={"user_id": _USER}, top_k=TOP, threshold=0.0)
        return [self._keys[row["id"]] for row in found["results"]]

    def history_of_one(self, key: str) -> int:
        return len(self._memory.history(self._ids[key]))


if __name__ == "__main__":
    serve(Mem0)
