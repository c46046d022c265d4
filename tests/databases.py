"""The PostgreSQL of a worker, and the databases of its tests.

``MEMOTREE_TEST_POSTGRES=system`` runs the same tests on a PostgreSQL of the machine instead of the bundled one.
"""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.postgres.database import Database
from psycopg import sql
from psycopg.conninfo import make_conninfo

QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
}
"""Settings without durability, since the data is not needed after the run; crash tests test durability."""

_HAS_STRATEGIES = 15_00_00


def system_binaries() -> Path | None:
    """The folder of the newest PostgreSQL server on the machine, or ``None``."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    config = shutil.which("pg_config")
    if config:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)  # noqa: S603 - found by us
        found.append(Path(answer.stdout.strip()))
    found += [Path(path).parent for name in ("initdb",) if (path := shutil.which(name))]
    usable = [path for path in found if (path / "initdb").is_file() and (path / "postgres").is_file()]
    return max(usable, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", str(folder))
    return tuple(int(number) for number in numbers)


def _chosen_binaries() -> Path | None:
    """The binaries to use in this run; ``None`` for the bundled ones."""
    choice = os.environ.get("MEMOTREE_TEST_POSTGRES", "embedded")
    if choice == "embedded":
        return None
    assert choice == "system", f"MEMOTREE_TEST_POSTGRES is {choice!r}; set it to embedded or system"
    found = system_binaries()
    if found is None:
        pytest.skip("this machine has no PostgreSQL server")
    return found


@pytest.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The conninfo of a running PostgreSQL."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), binaries=_chosen_binaries(), settings=QUICK)
    try:
        yield await server.start()
    finally:
        await server.stop()


async def make_template(postgres: str) -> str:
    """Make a database with all tables, to be copied, and return its name.

    Copying it takes a quarter of the time that it takes to make the tables and to drop them.
    """
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute("create database prepared")
    database = Database(make_conninfo(postgres, dbname="prepared"))
    await database.open()
    await database.close()
    return "prepared"


@pytest.fixture(scope="session")
async def template(postgres: str) -> str:
    """The database that is copied for each test."""
    return await make_template(postgres)


@asynccontextmanager
async def new_database(postgres: str, template: str) -> AsyncIterator[str]:
    """Make a copy of a database while the block runs."""
    name = f"test_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        copied = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        if conn.info.server_version >= _HAS_STRATEGIES:
            copied += sql.SQL(" strategy file_copy")
        await conn.execute(copied)
        try:
            yield make_conninfo(postgres, dbname=name)
        finally:
            await conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
async def database_url(postgres: str, template: str) -> AsyncIterator[str]:
    """The conninfo of a database that has all tables, without rows, and that no other test uses."""
    async with new_database(postgres, template) as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres: str) -> AsyncIterator[str]:
    """The conninfo of a database without tables that no other test uses."""
    async with new_database(postgres, "template0") as url:
        yield url
