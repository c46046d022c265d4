"""Opens the store and the models, on the servers that the settings name or on embedded ones."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.signing import Signer, SigningKeyError, load_signer
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.ports import Watch, unwatched
from memotree_storage.postgres import indexes
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.indexes import IndexRecord
from memotree_storage.postgres.ownership import DatabaseOwnership
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store

from memotree.extras import install, is_installed
from memotree.models.gateway import Models
from memotree.server.embedded import EmbeddedServers
from memotree.settings import Settings


async def open_store(settings: Settings, stack: AsyncExitStack) -> Store:
    """Open the store as `open_store_and_models` does, without the models."""
    store, _ = await open_store_and_models(settings, stack)
    return store


async def open_store_and_models(
    settings: Settings, stack: AsyncExitStack, embedded: EmbeddedServers | None = None, watch: Watch = unwatched
) -> tuple[Store, Models]:
    """Open the store and its models, on the servers that the settings name or on embedded ones; the stack closes them.

    Args:
        settings: Which servers and models to use.
        stack: Closes what was opened.
        embedded: The data folder and its embedded servers, if whoever calls has them started already.
        watch: Surrounds each use of PostgreSQL, and each search of the index.

    Raises:
        DataFolderInUseError: Another process uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: Qdrant does not answer.
        ModelUnavailableError: The embedding model does not answer, and the length of its vectors is not known.
        ModelRefusedError: The embedding model's endpoint refuses the call.
        LocalModelMissingError: The local embedding model is configured and not installed.
        SigningKeyError: The key that signs commits cannot be used.
    """
    if embedded is None:
        embedded = await stack.enter_async_context(EmbeddedServers(settings))
    postgres = await embedded.postgres()
    ownership = DatabaseOwnership(postgres, settings.data_folder) if isinstance(postgres, str) else None
    if ownership is not None:  # an embedded PostgreSQL is a part of the folder
        stack.push_async_callback(ownership.release)
        await ownership.acquire()
    database = Database(
        postgres if isinstance(postgres, str) else postgres.url,
        min_size=settings.postgres_pool_min,
        max_size=settings.postgres_pool_max,
        statement_timeout=settings.postgres_statement_timeout,
        after_outage=None if ownership is None else ownership.hold_again,
        watch=watch,
    )
    models = Models.from_settings(settings, database)
    stack.push_async_callback(models.close)
    stack.push_async_callback(database.close)
    await database.open()  # which index answers is noted there, and vectors are cached; the store opens it once more
    answering = await _answering(settings, database)
    await models.open(*(() if answering is None else (answering.model, answering.dimensions)))
    engine, endpoint = await embedded.qdrant()
    client = connect(endpoint.url, endpoint.api_key)
    flush = None if engine is None else engine.flush

    def open_points(model: str, dimensions: int) -> QdrantIndex:
        return QdrantIndex(client, model=model, dimensions=dimensions, flush=flush, watch=watch)

    index = open_points(models.embedder.model, models.embedder.dimensions)
    stack.push_async_callback(client.close)
    python = (sys.executable, "-P", "-m")
    store = Store(
        settings.data_folder,
        database,
        index,
        models.embedder,
        request_retention=settings.request_retention,
        committer_email=settings.committer_email,
        after_push=(*python, "memotree.local.after_push", str(settings.data_folder.absolute())),
        before_push=(*python, "memotree.local.before_push"),
        before_branch=(*python, "memotree.local.before_branch", str(settings.data_folder.absolute())),
        max_depth=settings.max_depth,
        open_points=open_points,
        signer=None if settings.signing_key is None else await in_store_thread(signer_of, settings.signing_key),
    )

    async def follow(made: ModelIndex) -> None:
        models.embedder = made.embedder
        await open_points(made.embedder.model, made.embedder.dimensions).make_current()

    store.indexes.when_switched.append(follow)
    stack.push_async_callback(store.close)
    await store.open()
    if ownership is not None:
        await ownership.note()  # a new database has its tables only now
    await index.make_current()
    if not isinstance(postgres, str):
        postgres.supervisor.on_restart(database.renew_broken)
    if engine is not None:
        engine.supervisor.on_restart(store.indexes.forget_applied)
    return store, models


async def _answering(settings: Settings, database: Database) -> IndexRecord | None:
    """Which index answers; ``None`` if there is nothing yet that it could answer about."""
    if not any((settings.data_folder / "workspaces").glob("*.git")):
        return None
    async with database.connection() as conn:
        found = await indexes.read(conn)
    return None if found is None else found.current


def signer_of(key: Path) -> Signer:
    """Load the key that signs commits.

    Raises:
        SigningKeyError: It cannot be used, or the library is missing.
    """
    if not is_installed("signing"):
        raise SigningKeyError(key, f"a library is missing (install it with `{install('signing')}`)")
    return load_signer(key)
