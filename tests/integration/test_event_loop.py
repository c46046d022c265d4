"""No text that takes long is parsed, split, summarised, titled, compared or encoded on the event loop.

Wrappers around these computations record the length of their text, and whether it was in the loop's thread, so no
time is measured. What one turn of the loop computes counts together: other calls wait that long.
"""

import asyncio
import functools
import importlib
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import grpc
import pytest
from google.protobuf import message_factory
from integration.wires import UNBOUNDED, Wire
from memotree_storage.concurrency.threads import LONG_BYTES, LONG_TEXT
from memotree_storage.model.node import Node
from property.store_harness import fresh_database
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from memotree.composition import compose
from memotree.forest.documents import Document
from memotree.server.app import Server
from memotree.server.binding import contract
from memotree.settings import Settings
from memotree.v1 import forest_service_pb2 as forest
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import types_pb2 as types

DETAIL: Final = types.LEVEL_OF_DETAIL_DETAIL

COSTLY: Final = (
    "memotree.models.extractive:brief_of",
    "memotree.models.extractive:summary_of",
    "memotree.models.extractive:digest_of",
    "memotree.models.relevance:relevance",
    "memotree.memory.wording:title_of",
    "memotree.forest.tree_building.titles:leaf_title",
    "memotree.forest.tree_building.titles:merged_title",
    "memotree.forest.tree_building.plan:plan_tree",
    "memotree.forest.chunking.splitting:split",
    "memotree.forest.ingestion.leaf_alignment:align",
    "memotree.forest.recall.excerpts:best_stretch",
    "memotree.history.blame:_divided",
    "memotree.history.text_diff:unified",
    "memotree.history.word_diff:by_words",
    "memotree_storage.index.preview:_preview",
    "memotree_storage.index.terms:words_of",
    "memotree_storage.index.terms:query_terms",
    "memotree_storage.index.terms:document_terms",
)
"""Microseconds a character: what splits texts into words or sentences."""

CHEAP: Final = (
    "memotree_storage.model.tokens:count_tokens",
    "memotree_storage.model.tokens:truncate_to_tokens",
    "memotree_storage.model.codec:encode_entry",
    "memotree_storage.model.codec:decode_entry",
    "memotree_storage.model.validation:canonical_node",
    "memotree_storage.model.validation:check_node",
    "memotree_storage.model.validation:check_text",
    "memotree.memory.similar:same_text",
)
"""Some ten nanoseconds a character."""

AT_ONCE: Final = 4
"""How many texts of the greatest length one turn of the loop may go through."""

SIZE: Final = 140_000
"""Characters: half of them are still more than the loop may go through at once."""

TEXTS: Final = {
    "many short paragraphs": "The plum is ripe.\n\n" * (SIZE // 19),
    "prose": "The plums of row 7 are ripe, said Ada; nobody had watered them since May.\n" * (SIZE // 75),
    "an unspaced script": "\u8bb0\u5fc6\u6811\u7684\u68ee\u6797\u6ca1\u6709\u4eba\u77e5\u9053\u3002" * (SIZE // 12),
}


def characters(value: object) -> int:
    """The characters of the texts in an argument."""
    match value:
        case str() | bytes():
            return len(value)
        case Node():
            return len(value.content)
        case Document():
            return len(value.text)
        case Mapping():
            return sum(map(characters, value.values()))
        case Sequence() | AbstractSet():
            return sum(map(characters, value))
    return 0


@dataclass(slots=True)
class Recorder:
    """Records the texts of wrapped functions.

    Attributes:
        turn: How often the loop has called anything.
        on_loop: The characters in the loop's thread, by turn and kind of computation.
        functions: The functions of each such turn with their characters.
        longest: The longest text that each function had in another thread.
    """

    loop_thread: int = field(default_factory=threading.get_ident)
    turn: int = 0
    on_loop: Counter[tuple[int, str]] = field(default_factory=Counter)
    functions: dict[tuple[int, str], list[tuple[str, int]]] = field(default_factory=dict)
    longest: Counter[str] = field(default_factory=Counter)
    _inside: threading.local = field(default_factory=threading.local)

    def wrapped(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """A function that records its texts, unless a recorded one calls it."""
        name = function.__name__

        @functools.wraps(function)
        def recorded(*given: Any, **named: Any) -> Any:
            if getattr(self._inside, "is_so", False):
                return function(*given, **named)
            self._note(name, kind, characters(given) + characters(named))
            self._inside.is_so = True
            try:
                return function(*given, **named)
            finally:
                self._inside.is_so = False

        return recorded

    def _note(self, name: str, kind: str, size: int) -> None:
        if threading.get_ident() == self.loop_thread:
            self.on_loop[self.turn, kind] += size
            self.functions.setdefault((self.turn, kind), []).append((name, size))
        else:
            self.longest[name] = max(self.longest[name], size)

    def exceeding(self, kind: str, most: int) -> list[list[tuple[str, int]]]:
        """What each turn computed that went through more characters than ``most``."""
        return [
            self.functions[turn, each]
            for (turn, each), size in self.on_loop.items()
            if each == kind and (size > AT_ONCE * most or any(one > most for _, one in self.functions[turn, each]))
        ]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Records what the modules of the server do while the test runs."""
    found = Recorder()
    run = asyncio.events.Handle._run

    def counted(handle: Any) -> None:
        found.turn += 1
        run(handle)

    monkeypatch.setattr(asyncio.events.Handle, "_run", counted)
    modules = [module for name, module in sys.modules.items() if name.startswith(("memotree.", "memotree_storage."))]
    for kind, names in (("costly", COSTLY), ("cheap", CHEAP)):
        for name in names:
            home, _, function_name = name.partition(":")
            function = getattr(importlib.import_module(home), function_name)
            wrapper = found.wrapped(function, kind)
            for module in modules:
                for attribute in [key for key, value in vars(module).items() if value is function]:
                    monkeypatch.setattr(module, attribute, wrapper)
    return found


@pytest.fixture(scope="module")
async def everything(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with all services in this process."""
    folder = tmp_path_factory.mktemp("loop") / "data"
    url = f"postgresql://?{urlencode(conninfo_to_dict(fresh_database(postgres)))}"
    settings = Settings(data_folder=folder, port=0, postgres_url=SecretStr(url))
    async with compose(settings) as operations, Server(settings, operations) as server:
        yield server


@pytest.fixture
async def agent(everything: Server) -> AsyncIterator["Agent"]:
    async with grpc.aio.insecure_channel(everything.address, options=UNBOUNDED) as channel:
        yield Agent(channel, await Wire.begin(channel))


@dataclass(frozen=True, slots=True)
class Agent:
    """Calls everything that takes or returns long texts."""

    channel: grpc.aio.Channel
    wire: Wire

    async def streamed(self, method: str, **fields: Any) -> None:
        """Make a call of the forest that streams, and read its answers."""
        (found,) = (each for each in contract()["ForestService"].methods if each.name == method)
        path = f"/{found.containing_service.full_name}/{method}"
        answer = message_factory.GetMessageClass(found.output_type)
        call = self.channel.unary_stream(path, response_deserializer=answer.FromString)
        async for _ in call(self.wire.request(method, **fields).SerializeToString(), timeout=120):
            pass

    async def edit(self, text: str) -> None:
        """Create, update, split, merge, list, compare, render and commit."""
        wire, half = self.wire, text[: len(text) // 2]
        node_id = (await wire.create("Long", content=text)).id
        await wire.create("Summarised", content="x", summary=text[:2500], brief="b")
        await wire.commit()
        await wire("UpdateNode", node_id=node_id, content=half, timeout=120)
        await wire("UpdateNode", node_id=node_id, content=half[: len(half) // 2], mode=nodes.UPDATE_MODE_APPEND)
        await wire("ListChanges")
        await wire("DiffRevisions", old_revision="main", new_revision=wire.session, include_fields=True)
        words = {"include_fields": True, "by_words": True}
        await wire("DiffRevisions", old_revision="main", new_revision=wire.session, **words)
        await wire("ExpandNode", revision=wire.session, node_id=node_id, level=DETAIL)
        await wire("RenderView", revision=wire.session)
        await wire.commit()
        await wire("BlameNode", node_id=node_id, timeout=120)
        await wire("BlameNode", node_id=node_id, by_sentences=True, timeout=120)
        pieces = [half[start : start + 20_000] for start in range(0, len(half), 20_000)]
        parts = [nodes.SplitPart(title=f"Part {number}", content=part) for number, part in enumerate(pieces)]
        split = await wire("SplitNode", node_id=node_id, parts=parts, timeout=120)
        await wire("MergeNodes", node_ids=[node.id for node in split.nodes], timeout=120)
        other = (await wire.create("Dropped", content=text)).id
        await wire("DiscardChanges", node_ids=[other])
        await wire("RebaseSession")
        await wire.commit()

    async def remember(self, text: str) -> None:
        """Remember, revise, search and forget."""
        wire, query = self.wire, text[:8000]
        note = (await wire("Remember", text=text, timeout=120)).node.id
        await wire("Remember", text=query[:3000], timeout=120)
        await wire("Revise", node_id=note, text=text[4:], timeout=120)
        await wire("SearchNodes", query=query, search_type=nodes.SEARCH_TYPE_HYBRID, timeout=120)
        await wire("DrillDown", node_id=note, query=query, timeout=120)
        await wire("Forget", node_id=note)

    async def ask(self, text: str) -> None:
        """Ingest a document twice, recall and ask."""
        wire, query = self.wire, text[:8000]
        await wire("Remember", text=text, find_similar=False, timeout=120)
        document = {"name": "Long", "document_id": "long", "model_id": "m"}
        await self.streamed("IngestDocument", **document, text=text)
        await self.streamed("IngestDocument", **document, text=f"{text[: len(text) // 2]}\n\nChanged.")
        for strategy in forest.RecallStrategy.values():
            await wire("Recall", query=query, strategy=strategy, timeout=120)
            await wire("Recall", query=query, strategy=strategy, filter=forest.RecallFilter(archives=["notes"]))
        await self.streamed("Ask", query=query)


@pytest.mark.requirement("SERVE-1", "STORE-8")
@pytest.mark.parametrize("what", [Agent.edit, Agent.remember, Agent.ask])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_the_loop_computes_only_over_short_texts(
    agent: Agent, recorder: Recorder, text: str, what: Callable[[Agent, str], Any]
) -> None:
    await what(agent, text if what is Agent.edit else text[: SIZE // 2])  # only an edit halves it
    assert recorder.exceeding("costly", LONG_TEXT) == []
    assert recorder.exceeding("cheap", LONG_BYTES) == []
    seen = {
        Agent.edit: {"brief_of", "summary_of", "count_tokens", "encode_entry", "check_node"}
        | {"_divided", "unified", "by_words"},
        Agent.remember: {"title_of", "words_of", "query_terms", "_preview", "check_node"},
        Agent.ask: {"split", "align", "plan_tree", "query_terms", "best_stretch"},
    }
    assert {name for name in seen[what] if recorder.longest[name] <= LONG_TEXT} == set(), "in threads"
