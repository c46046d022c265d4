"""Models on an endpoint of the test's own, over one database."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from endpoints import ModelEndpoint
from integration.models.samples import IMPATIENT, MakeModels
from memotree_storage.postgres.database import Database
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.models.model_errors import RetryPolicy
from memotree.settings import load_settings


@pytest.fixture(scope="module")
async def opened(postgres: str) -> AsyncIterator[Database]:
    """A database for all tests here: making one takes longer than most of them."""
    name = f"models_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    made = Database(make_conninfo(postgres, dbname=name))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def database(opened: Database) -> Database:
    """The database, in which no answer is kept."""
    async with opened.connection() as conn:
        await conn.execute("truncate work.model_answer")
    return opened


@pytest.fixture
async def endpoint() -> AsyncIterator[ModelEndpoint]:
    async with ModelEndpoint() as started:
        yield started


@pytest.fixture
async def connect(database: Database, endpoint: ModelEndpoint, tmp_path: Path) -> AsyncIterator[MakeModels]:
    """Makes models on the endpoint, as a start of a server does."""
    made: list[Models] = []

    async def make(retry_policy: RetryPolicy = IMPATIENT, **settings: Any) -> Models:
        chosen = load_settings(data_folder=tmp_path, **{**endpoint.settings(), **settings})
        models = Models.from_settings(chosen, database, retry_policy)
        made.append(models)
        await models.open()
        return models

    yield make
    for models in made:
        await models.close()


@pytest.fixture
def meter() -> Meter:
    return Meter()
