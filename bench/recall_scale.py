"""Measures the latency of Recall over many leaves: archives of synthetic conversations, imported in bulk."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import SUMMARY_TYPE, Archive, Entry, Node, new_id
from memotree_storage.model.position import many_between
from rich.console import Console

from bench.recall_asking import WORKSPACE, private_server
from bench.table import machine
from memotree.client import AsyncClient
from memotree.composition import open_store_and_models
from memotree.models.builtin import WordllamaEmbedder
from memotree.settings import load_settings

BUDGET_MS: Final = 60.0
"""The budget of the 95th percentile at 1e5 leaves."""

_LEAVES_OF_AN_ARCHIVE: Final = 100
_LEAVES_OF_A_NODE: Final = 10
_ENTRIES_OF_A_COMMIT: Final = 20_000
_WORDS_OF_A_LEAF: Final = (5, 60)
_TOPIC_WORDS: Final = 300
_TOPIC_SHARE: Final = 0.4
_EXPONENT: Final = 1.07
_SPEAKERS: Final = ("Ada", "Boris", "Chen", "Dana", "Emeka", "Farah", "Goran", "Hanna")
_QUESTIONS: Final = 300
_TOKENS: Final = 2000
_FRAMES: Final = (
    "What did {who} say about the {} and the {}?",
    "When was the {} {} mentioned with {}?",
    "Why does {who} think that {} is {} for the {}?",
    "How many {} did {who} see at the {} {}?",
    "Summarize the discussion about {} {} and {}.",
    "Who talked about {} before the {}?",
)

_say: Final = Console(stderr=True)


class Talk:
    """Conversations of real, Zipf-distributed words; each archive has some words of its own. The same in every run."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(11)
        words = [word for word in WordllamaEmbedder().vocabulary()[0] if word.isascii() and len(word) > 1]
        self._chance.shuffle(words)
        self._words = np.array(words)
        ranks = np.arange(1, len(words) + 1, dtype=np.float64) ** -_EXPONENT
        self._edges = np.cumsum(ranks / ranks.sum())
        self.rare = words[1000:]

    def archive(self, number: int, leaves: int = _LEAVES_OF_AN_ARCHIVE, *, are_notes: bool = False) -> Iterator[Entry]:
        """Return one conversation, or notes of nobody in particular, as a tree of two levels."""
        archive = Archive(new_id(), f"talk {number:05d}")
        yield archive
        topic = self._chance.choice(len(self._words), size=_TOPIC_WORDS)
        begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
        tops = many_between(None, None, leaves // _LEAVES_OF_A_NODE)
        places = many_between(None, None, _LEAVES_OF_A_NODE)
        for top in tops:
            node_id = new_id()
            yield Node(node_id, archive.id, None, top, SUMMARY_TYPE, "Part", "Part", "A part of a conversation.")
            for place in places:
                who = _SPEAKERS[int(self._chance.integers(len(_SPEAKERS)))]
                said = f"{who}: {self._sentence(topic)}"
                facts = {} if are_notes else {"speaker": who, "time": f"{begun:%Y-%m-%d %H:%M}"}
                brief = said[:60]
                yield Node(
                    new_id(), archive.id, node_id, place, "leaf_chunk", brief, brief, said[:200], said, attributes=facts
                )

    def _sentence(self, topic: np.ndarray[Any, np.dtype[np.int64]]) -> str:
        size = int(self._chance.integers(*_WORDS_OF_A_LEAF))
        common = np.minimum(np.searchsorted(self._edges, self._chance.random(size)), len(self._words) - 1)
        own = topic[self._chance.integers(0, _TOPIC_WORDS, size)]
        drawn = np.where(self._chance.random(size) < _TOPIC_SHARE, own, common)
        return " ".join(self._words[drawn].tolist()).capitalize() + "."

    def questions(self, count: int) -> list[str]:
        """Return questions like those of people, with common and rare words."""
        found = []
        for number in range(count):
            frame = _FRAMES[number % len(_FRAMES)]
            words = self._words[np.minimum(np.searchsorted(self._edges, self._chance.random(4)), len(self._words) - 1)]
            words[0] = self.rare[int(self._chance.integers(len(self.rare)))]
            found.append(frame.format(*words.tolist(), who=_SPEAKERS[number % len(_SPEAKERS)]))
        return found


async def run(leaves: int) -> dict[str, Any]:
    """Measure the latency over this many leaves; ``met`` is ``None`` if they are fewer than the budget's."""
    archives = max(1, leaves // _LEAVES_OF_AN_ARCHIVE)
    talk = Talk()
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as name:
        folder = Path(name) / "data"
        folder.mkdir()
        _say.print(f"importing {archives:,} archives of {_LEAVES_OF_AN_ARCHIVE} leaves …")
        begun = time.perf_counter()
        await import_entries(folder, (entry for number in range(archives) for entry in talk.archive(number)))
        rows: dict[str, Any] = {"imported in, s": round(time.perf_counter() - begun, 1)}
        async with private_server(folder) as client:
            _say.print("asking …")
            rows |= await _asked(client, talk)
    p95 = rows["Recall over gRPC, p95, ms"]
    if leaves >= 100_000:
        rows["budget"] = f"p95 ≤ {BUDGET_MS:.0f} ms: {'met' if p95 <= BUDGET_MS else 'missed'}"
    return {
        "kind": "scale",
        "set": "scale",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "leaves": archives * _LEAVES_OF_AN_ARCHIVE,
        "archives": archives,
        "rows": rows,
        "failures": [],
    }


async def import_entries(folder: Path, entries: Iterator[Entry]) -> float:
    """Import entries into a new workspace of a data folder; return the seconds until they are searchable."""
    async with private_server(folder) as client:
        workspace = await client.create_workspace(WORKSPACE)
    async with AsyncExitStack() as stack:
        store, _ = await open_store_and_models(load_settings(data_folder=folder, log_level="warning"), stack)
        seconds = 0.0
        while batch := list(islice(entries, _ENTRIES_OF_A_COMMIT)):
            begun = time.perf_counter()
            await commit_entries(store, workspace.id, "main", batch, "Import")
            seconds += time.perf_counter() - begun
        begun = time.perf_counter()
        await store.indexer.current(workspace.id)
        await store.indexer.flush()
    return seconds + time.perf_counter() - begun


async def _asked(client: AsyncClient, talk: Talk) -> dict[str, Any]:
    workspace = client.workspace(WORKSPACE)
    times, busy, considered = [], [], 0
    for question in talk.questions(1 + _QUESTIONS):
        begun, worked = time.perf_counter(), time.process_time()
        result = await workspace.recall(question, token_budget=_TOKENS)
        times.append(1000 * (time.perf_counter() - begun))
        busy.append(1000 * (time.process_time() - worked))
        considered = result.leaves_considered
    warm = times[1:]
    return {
        "leaves looked at": f"{considered:,}",
        "first recall of a fresh server, s": round(times[0] / 1000, 2),
        f"Recall over gRPC, {_TOKENS} tokens, {_QUESTIONS} questions, p50, ms": round(
            float(np.percentile(warm, 50)), 1
        ),
        "Recall over gRPC, p95, ms": round(float(np.percentile(warm, 95)), 1),
        "the longest, ms": round(max(warm), 1),
        "processor time of server and client, p50, ms": round(float(np.percentile(busy[1:], 50)), 1),
        "processor time of server and client, p95, ms": round(float(np.percentile(busy[1:], 95)), 1),
        "load of the machine meanwhile": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        "memory of server and client, MiB": resident(),
    }


def resident() -> int:
    """Return the memory of this process (server and client), in MiB; embedded stores are processes of their own."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
