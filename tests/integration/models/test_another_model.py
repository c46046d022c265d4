"""A changed embedding model: the store reindexes everything by itself, and embeds no text twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from endpoints import EMBEDDING_MODEL, Fault, ModelEndpoint
from integration.worlds import World
from memotree_storage.index.search import SearchQuery
from memotree_storage.postgres import registry
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store
from memotree_storage.verify import verify
from memotree_storage.verify.report import Difference
from psycopg.conninfo import conninfo_to_dict

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.model_errors import ModelUnavailableError
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.server.compose import open_store
from memotree.sessions import SessionOperations
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("FOREST-12")

DEADLINE = 30.0

Start = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Start:
    """Starts the store of a server, each time on the same data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"postgresql://?{urlencode(conninfo_to_dict(database_url))}"

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Store]:
        chosen = load_settings(data_folder=folder, postgres_url=url, model_attempts=1, **settings)
        async with AsyncExitStack() as stack:
            yield await open_store(chosen, stack)

    return opened


async def nearest(store: Store, world: World, commit_id: str, query: str) -> str:
    """The title of the node nearest to a query."""
    found = await store.search.find(
        State(world.workspace, commit_id), SearchQuery(query, limit=1, words=False, meaning=True)
    )
    return found[0].version.title


async def nearest_in_time(store: Store, world: World, commit_id: str, query: str) -> str:
    """The same, repeated until the model is called again: after a failure it is not called for some seconds."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await nearest(store, world, commit_id, query)
            except ModelUnavailableError:
                await asyncio.sleep(0.1)


async def titles(store: Store, state: State, words: str) -> list[str]:
    """The titles of the hits of a search by words."""
    return [found.version.title for found in await store.search.find(state, SearchQuery(words, limit=5))]


async def differences(store: Store, world: World) -> list[Difference]:
    """The differences that `verify` finds."""
    return [found async for found in verify(store, world.workspace) if isinstance(found, Difference)]


async def test_another_embedding_model_reindexes_everything_and_so_does_the_return(
    start: Start, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint:
        remote = endpoint.settings("embedding")
        async with start() as store:
            assert store.embedder.model == WordllamaEmbedder().model
            world = await World.create(store, pages, limits)
            roses, engines = world.node("Roses", content="Roses need water."), world.node("Engines", position="a1")
            first = await world.put(roses, engines)
            assert await nearest(store, world, first, "roses need water") == "Roses"

        async with start(**remote) as store:
            assert (store.embedder.model, store.embedder.dimensions) == (EMBEDDING_MODEL, endpoint.dimensions)
            assert await nearest(store, world, first, "roses need water") == "Roses"
            world = replace(
                world,
                store=store,
                sessions=SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits)),
            )
            bread = world.node("Bread", content="Bread is baked in an oven.", position="a2")
            second = await world.put(bread, delete=[engines])
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"
            paid = len(endpoint.texts_embedded)

        async with start() as store:
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"
            assert await nearest(store, world, first, "roses need water") == "Roses"

        async with start(**remote) as store:
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"
        assert len(endpoint.texts_embedded) == paid, "every vector was known already"


async def test_the_local_embedding_model_finds_what_is_said_in_other_words(
    start: Start, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with start() as store:
        world = await World.create(store, pages, limits)
        engine = world.node("Motor", content="Repairing the motor of an automobile.")
        commit_id = await world.put(engine, world.node("Pie", content="A recipe for apple pie.", position="a1"))
    async with start(embedding_model="all-minilm-l6-v2") as store:
        assert (store.embedder.model, store.embedder.dimensions) == ("all-minilm-l6-v2", 384)
        assert await nearest(store, world, commit_id, "How do I fix a broken car?") == "Motor"


async def test_a_reindex_stopped_by_an_outage_continues_when_the_model_is_back(
    start: Start, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint:
        async with start() as store:
            world = await World.create(store, pages, limits)
            commit_id = await world.put(world.node("Roses", content="Roses need water."))
        remote = endpoint.settings("embedding") | {"embedding_dimensions": endpoint.dimensions}
        endpoint.fail_always(Fault.BROKEN)
        async with start(**remote) as store:
            with pytest.raises(ModelUnavailableError):
                await nearest(store, world, commit_id, "roses need water")
            endpoint.recover()
            assert await nearest_in_time(store, world, commit_id, "roses need water") == "Roses"


@pytest.mark.requirement("CANVAS-5")
async def test_a_search_by_words_works_while_the_embedding_model_is_unavailable(
    start: Start, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint, start(**endpoint.settings("embedding")) as store:
        endpoint.fail_always(Fault.BROKEN)
        world = await World.create(store, pages, limits)
        roses, engines = world.node("Roses", content="Roses need water."), world.node("Engines", position="a1")
        first = await world.put(roses, engines)
        assert await titles(store, State(world.workspace, first), "water") == ["Roses"]
        session = await world.open()
        await world.stage(session, world.node("Bread", content="Bread needs water.", position="a2"), delete=[engines])
        assert await titles(store, State(world.workspace, first, session), "water bread") == ["Bread", "Roses"]
        second = await world.commit(session)
        assert await titles(store, State(world.workspace, second), "water bread") == ["Bread", "Roses"]
        assert await titles(store, State(world.workspace, second), "engines") == []
        assert await titles(store, State(world.workspace, first), "engines") == ["Engines"]
        with pytest.raises(ModelUnavailableError):
            await nearest(store, world, second, "bread needs water")
        assert await differences(store, world) == []
        endpoint.recover()
        assert await nearest_in_time(store, world, second, "bread needs water") == "Bread"
        assert await titles(store, State(world.workspace, second), "water bread") == ["Bread", "Roses"]
        assert await differences(store, world) == []


async def test_a_hanging_model_does_not_delay_work_that_needs_no_vector(
    start: Start, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint, start(**endpoint.settings("embedding")) as store:
        world = await World.create(store, pages, limits)
        endpoint.hold()
        commit_id = await world.put(world.node("Roses", content="Roses need water."))
        waiting = asyncio.create_task(nearest(store, world, commit_id, "roses need water"))
        async with asyncio.timeout(DEADLINE):
            while not endpoint.at_once:  # noqa: ASYNC110 - the endpoint has no event for it
                await asyncio.sleep(0.01)
            async with store.database.transaction() as conn:  # a rebuild and the collection of lines begin with this
                await registry.lock_workspace(conn, world.workspace, alone=True)
            assert await titles(store, State(world.workspace, commit_id), "water") == ["Roses"]
            last = await world.put(world.node("Bread", content="Bread needs water.", position="a1"))
            assert set(await titles(store, State(world.workspace, last), "water")) == {"Bread", "Roses"}
            await store.reindex(world.workspace, meaning=False)
            assert set(await titles(store, State(world.workspace, last), "water")) == {"Bread", "Roses"}
        assert not waiting.done()
        endpoint.release()
        async with asyncio.timeout(DEADLINE):
            assert await waiting == "Roses"
            assert await nearest(store, world, last, "bread needs water") == "Bread"
