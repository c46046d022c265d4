"""Runs inside a peer's own environment: answers JSON lines, one call each, and knows nothing of MemoTree.

``python peer_worker.py mem0|langgraph FOLDER``. The peers get the built-in embedding model of MemoTree (wordllama), so
that none of them needs a network or a key; mem0 stores texts as they are (``infer=False``), because its extraction of
facts needs a language model.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_TOP = 3
"""How many results an agent reads for a question, for every memory that returns a list."""


def _vectors() -> Callable[[Sequence[str]], list[list[float]]]:
    import wordllama

    model = wordllama.WordLlama.load(dim=256, cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return lambda texts: [list(map(float, row)) for row in model.embed(list(texts), norm=True)]


class Mem0:
    """mem0's Python library with its local Qdrant."""

    def __init__(self, folder: str) -> None:
        from langchain_core.embeddings import Embeddings
        from langchain_core.language_models.fake_chat_models import FakeListChatModel
        from mem0 import Memory

        embed = _vectors()

        class Local(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return embed(texts)

            def embed_query(self, text: str) -> list[float]:
                return embed([text])[0]

        self._memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {"path": f"{folder}/qdrant", "embedding_model_dims": 256, "on_disk": True},
                },
                "embedder": {"provider": "langchain", "config": {"model": Local(), "embedding_dims": 256}},
                "llm": {"provider": "langchain", "config": {"model": FakeListChatModel(responses=["{}"])}},
                "history_db_path": f"{folder}/history.db",
            }
        )

    def remember(self, text: str, **_: str) -> tuple[Any, Any, str]:
        sent = {"messages": text, "user_id": "u", "infer": False}
        answer = self._memory.add(text, user_id="u", infer=False)
        return sent, answer, answer["results"][0]["id"]

    def correct(self, name: str, text: str, **_: str) -> tuple[Any, Any, str]:
        return {"memory_id": name, "text": text}, self._memory.update(name, text), ""

    def forget(self, name: str, **_: str) -> tuple[Any, Any, str]:
        return {"memory_id": name}, self._memory.delete(name), ""

    def ask(self, question: str) -> tuple[Any, Any, str]:
        answer = self._memory.search(question, filters={"user_id": "u"}, top_k=_TOP)
        return {"query": question, "filters": {"user_id": "u"}, "top_k": _TOP}, answer, json.dumps(answer, default=str)

    def look_back(self, name: str) -> tuple[Any, Any, str]:
        answer = self._memory.history(name)
        return {"memory_id": name}, answer, json.dumps(answer, default=str)


class LangGraph:
    """LangGraph's InMemoryStore with an index; it lasts as long as its process."""

    def __init__(self, _folder: str) -> None:
        from langgraph.store.base import IndexConfig
        from langgraph.store.memory import InMemoryStore

        self._store = InMemoryStore(index=IndexConfig(embed=_vectors(), dims=256, fields=["text"]))

    def remember(self, text: str, title: str) -> tuple[Any, Any, str]:
        self._store.put(("facts",), title, {"text": text})
        return {"namespace": ["facts"], "key": title, "value": {"text": text}}, None, title

    def correct(self, name: str, text: str, **_: str) -> tuple[Any, Any, str]:
        self._store.put(("facts",), name, {"text": text})
        return {"namespace": ["facts"], "key": name, "value": {"text": text}}, None, ""

    def forget(self, name: str, **_: str) -> tuple[Any, Any, str]:
        self._store.delete(("facts",), name)
        return {"namespace": ["facts"], "key": name}, None, ""

    def ask(self, question: str) -> tuple[Any, Any, str]:
        answer = [item.dict() for item in self._store.search(("facts",), query=question, limit=_TOP)]
        return (
            {"namespace_prefix": ["facts"], "query": question, "limit": _TOP},
            answer,
            json.dumps(answer, default=str),
        )

    def look_back(self, name: str) -> tuple[Any, Any, str]:
        item = self._store.get(("facts",), name)
        answer = item.dict() if item else None
        return {"namespace": ["facts"], "key": name}, answer, json.dumps(answer, default=str)


def main() -> None:
    """Answer until standard input ends."""
    kind, folder = sys.argv[1:3]
    memory: Any = {"mem0": Mem0, "langgraph": LangGraph}[kind](folder)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        sent, answer, result = getattr(memory, call["call"])(**call["arguments"])
        told = {"sent": json.dumps(sent, default=str), "answer": json.dumps(answer, default=str), "result": result}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
