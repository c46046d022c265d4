"""Another embedding model: the settings name it, a job makes its index, and no text is embedded twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest
from endpoints import EMBEDDING_MODEL, ModelEndpoint
from integration.worlds import World
from memotree_storage.index.search import SearchQuery
from memotree_storage.postgres import registry
from memotree_storage.postgres.tree import State
from memotree_storage.reindexing import NewModel, reindex_with
from memotree_storage.store import Store
from memotree_storage.verify import verify
from memotree_storage.verify.report import Difference
from model_answers import Fault
from psycopg.conninfo import conninfo_to_dict
from structlog.testing import capture_logs

from memotree.composition import open_store_and_models
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.gateway import Models
from memotree.models.model_errors import ModelUnavailableError
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("FOREST-12")

DEADLINE = 60.0

T = TypeVar("T")
Begin = Callable[..., AbstractAsyncContextManager[tuple[Store, Models]]]


@pytest.fixture
def begin(tmp_path: Path, database_url: str) -> Begin:
    """Starts the store and the models of a server, each time on the same data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"postgresql://?{urlencode(conninfo_to_dict(database_url))}"

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[tuple[Store, Models]]:
        chosen = load_settings(data_folder=folder, postgres_url=url, model_attempts=1, **settings)
        async with AsyncExitStack() as stack:
            yield await open_store_and_models(chosen, stack)

    return opened


async def nearest(store: Store, world: World, commit_id: str, query: str) -> str:
    """The title of the node nearest to a query."""
    found = await store.search.find(
        State(world.workspace, commit_id), SearchQuery(query, limit=1, words=False, meaning=True)
    )
    return found[0].version.title


async def in_time(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the model is called again: after a failure it is not called for some seconds."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await call()
            except ModelUnavailableError:
                await asyncio.sleep(0.1)


async def titles(store: Store, state: State, words: str) -> list[str]:
    """The titles of the hits of a search by words."""
    return [found.version.title for found in await store.search.find(state, SearchQuery(words, limit=5))]


async def differences(store: Store, world: World) -> list[Difference]:
    """The differences that `verify` finds."""
    return [found async for found in verify(store, world.workspace) if isinstance(found, Difference)]


async def change(store: Store, models: Models, model: str, dimensions: int = 0) -> None:
    """Change to another embedding model, as the job does."""
    embedder = models.embeddings.find(model, dimensions)
    await models.embeddings.open(embedder)
    assert store.indexes.open_points is not None
    points = store.indexes.open_points(embedder.model, embedder.dimensions)
    await reindex_with(store, NewModel(embedder, points), lambda *_: None)


@pytest.mark.requirement("STORE-7")
async def test_another_model_in_the_settings_changes_nothing_until_a_reindex_and_no_text_is_embedded_twice(
    begin: Begin, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint:
        remote = endpoint.settings("embedding")
        async with begin() as (store, _):
            assert store.embedder.model == WordllamaEmbedder().model
            world = await World.create(store, pages, limits)
            roses, engines = world.node("Roses", content="Roses need water."), world.node("Engines", position="a1")
            first = await world.put(roses, engines)
            assert await nearest(store, world, first, "roses need water") == "Roses"

        async with begin(**remote) as (store, models):
            assert store.embedder.model == models.embedder.model == WordllamaEmbedder().model
            assert f"memotree reindex --embedding {EMBEDDING_MODEL}`" in models.embeddings.notice(store.embedder)
            assert await nearest(store, world, first, "roses need water") == "Roses"
            assert endpoint.texts_embedded == []
            await change(store, models, EMBEDDING_MODEL)
            assert models.embeddings.notice(store.embedder) == ""
            assert (models.embedder.model, models.embedder.dimensions) == (EMBEDDING_MODEL, endpoint.dimensions)
            assert await nearest(store, world, first, "roses need water") == "Roses"
            world = world.on(store)
            bread = world.node("Bread", content="Bread is baked in an oven.", position="a2")
            second = await world.put(bread, delete=[engines])
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"

        async with begin(**remote) as (store, models):
            assert (store.embedder.model, models.embeddings.notice(store.embedder)) == (EMBEDDING_MODEL, "")
            await change(store, models, "wordllama-l2", 64)
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"
            paid = len(endpoint.texts_embedded)

        async with begin() as (store, models):
            assert store.embedder.model == "wordllama-l2-64", "settings that name no model leave it"
            assert models.embeddings.notice(store.embedder) == ""

        async with begin(**remote) as (store, models):
            assert store.embedder.model == "wordllama-l2-64"
            await change(store, models, EMBEDDING_MODEL)
            assert await nearest(store, world, second, "bread baked in an oven") == "Bread"
            assert await nearest(store, world, first, "roses need water") == "Roses"
        assert len(endpoint.texts_embedded) == paid, "every vector was known already"


@pytest.mark.requirement("STORE-7")
async def test_a_start_without_the_model_of_the_index_computes_all_vectors_again(
    begin: Begin, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint, begin(**endpoint.settings("embedding")) as (store, _):
        assert store.embedder.model == EMBEDDING_MODEL, "a new server has the model of its settings"
        world = await World.create(store, pages, limits)
        commit_id = await world.put(world.node("Roses", content="Roses need water."))
        assert await nearest(store, world, commit_id, "roses need water") == "Roses"
    with capture_logs() as lines:
        async with begin() as (store, _):
            assert store.embedder.model == WordllamaEmbedder().model
            assert "memotree reindex --embedding" in str(lines)
            assert await nearest(store, world, commit_id, "roses need water") == "Roses"
            assert await differences(store, world) == []


@pytest.mark.parametrize(
    ("model", "dimensions", "question"),
    [
        ("all-minilm-l6-v2", 384, "How do I fix a broken car?"),
        ("use-multilingual-3", 512, "怎么修理坏了的汽车"),
    ],
)
async def test_a_local_embedding_model_finds_what_is_said_in_other_words(
    begin: Begin, pages: PageTokens, limits: ServiceLimits, model: str, dimensions: int, question: str
) -> None:
    async with begin() as (store, models):
        world = await World.create(store, pages, limits)
        engine = world.node("Motor", content="Repairing the motor of an automobile.")
        commit_id = await world.put(engine, world.node("Pie", content="A recipe for apple pie.", position="a1"))
        await change(store, models, model)
        assert (store.embedder.model, store.embedder.dimensions) == (model, dimensions)
        assert await nearest(store, world, commit_id, question) == "Motor"
    async with begin() as (store, _):
        assert store.embedder.model == model


@pytest.mark.requirement("STORE-7")
async def test_a_change_stopped_by_an_outage_leaves_the_old_model_and_goes_on_when_the_new_one_is_back(
    begin: Begin, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint:
        async with begin() as (store, _):
            world = await World.create(store, pages, limits)
            commit_id = await world.put(world.node("Roses", content="Roses need water."))
        remote = endpoint.settings("embedding") | {"embedding_dimensions": endpoint.dimensions}
        endpoint.fail_always(Fault.BROKEN)
        async with begin(**remote) as (store, models):
            with pytest.raises(ModelUnavailableError):
                await change(store, models, EMBEDDING_MODEL)
            assert await nearest(store, world, commit_id, "roses need water") == "Roses"
            assert await differences(store, world) == []
            endpoint.recover()
            await in_time(lambda: change(store, models, EMBEDDING_MODEL))
            assert store.embedder.model == EMBEDDING_MODEL
            assert await nearest(store, world, commit_id, "roses need water") == "Roses"
            assert await differences(store, world) == []


@pytest.mark.requirement("CANVAS-5")
async def test_a_search_by_words_works_while_the_embedding_model_is_unavailable(
    begin: Begin, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint, begin(**endpoint.settings("embedding")) as (store, _):
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
        assert await in_time(lambda: nearest(store, world, second, "bread needs water")) == "Bread"
        assert await titles(store, State(world.workspace, second), "water bread") == ["Bread", "Roses"]
        assert await differences(store, world) == []


async def test_a_hanging_model_does_not_delay_work_that_needs_no_vector(
    begin: Begin, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with ModelEndpoint() as endpoint, begin(**endpoint.settings("embedding")) as (store, _):
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
