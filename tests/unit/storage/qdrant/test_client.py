"""Addresses, names, and a flush that waits for the disk."""

from types import SimpleNamespace
from unittest.mock import AsyncMock

import grpc
import pytest
from far_servers import far_away
from memotree_storage.conformance.vector_index import DIMENSIONS, point
from memotree_storage.errors import InvalidInputError, UnavailableError
from memotree_storage.qdrant.client import IndexRefusedError, connect
from memotree_storage.qdrant.index import QdrantIndex, collection_name
from qdrant_client import AsyncQdrantClient


@pytest.mark.requirement("STORE-6")
async def test_the_url_names_the_grpc_port_and_a_text_that_is_no_address_is_refused() -> None:
    ports = {"http://qdrant": 6334, "http://qdrant:6333": 6334, "http://qdrant:6334": 6334}
    for url, port in (ports | {"https://qdrant.example:443": 443, "http://127.0.0.1:50123": 50123}).items():
        client = connect(url, "a key")
        assert client.init_options["grpc_port"] == port
        await client.close()
    for text in ("", "qdrant:6334", "ftp://qdrant", "http://", "/a/folder"):
        with pytest.raises(InvalidInputError, match="is not an address"):
            connect(text)


def test_collections_are_named_after_their_model() -> None:
    assert collection_name("wordllama/L2 256", 256).startswith("memory_forest__wordllama-l2-256-")
    names = {collection_name(model, size) for model in ("a/b", "a-b", "A b", "标签") for size in (64, 256)}
    assert len(names) == 8
    assert all(name.isascii() and len(name) < 100 for name in names)


@pytest.mark.requirement("STORE-6")
async def test_a_missing_server_is_unavailable() -> None:
    client = connect("http://127.0.0.1:9", timeout=5)
    with pytest.raises(UnavailableError, match="does not answer"):
        await QdrantIndex(client, model="test", dimensions=DIMENSIONS).prepare()
    await client.close()


@pytest.mark.requirement("STORE-6")
async def test_a_server_far_away_is_reached_by_the_first_call() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with far_away(port) as far:
        client = connect(f"http://127.0.0.1:{far}", timeout=30)
        with pytest.raises(IndexRefusedError):  # by the server, which has no services
            await QdrantIndex(client, model="test", dimensions=DIMENSIONS).prepare()
        await client.close()
    await server.stop(None)


async def test_flush_uses_the_given_call() -> None:
    client, flush = AsyncQdrantClient(":memory:"), AsyncMock()
    index = QdrantIndex(client, model="test", dimensions=DIMENSIONS, flush=flush)
    await index.prepare()
    await index.flush()
    flush.assert_awaited_once_with()
    await client.close()


async def test_without_a_flush_call_flush_waits_for_the_servers_own_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AsyncQdrantClient(":memory:")
    index = QdrantIndex(client, model="test", dimensions=DIMENSIONS, flush_interval=0.1)
    await index.prepare()
    waits: list[float] = []
    now = 1000.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    await index.upsert([point("w")])
    monkeypatch.setattr(index, "_in_process", False)
    monkeypatch.setattr("memotree_storage.qdrant.index.asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("memotree_storage.qdrant.index.time", SimpleNamespace(monotonic=lambda: now))
    index._wrote()
    await index.flush()
    await index.flush()
    assert waits == [pytest.approx(0.2), 0], "twice the interval after the last write, and no more than once"
    monkeypatch.undo()
    await client.close()
