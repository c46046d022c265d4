"""Before the server starts, it says what is wrong with the servers that the settings name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from integration.scripted_postgres import in_front_of
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.postgres import reach
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.reach import (
    DatabaseEncodingError,
    DatabaseRefusedError,
    DatabaseUnavailableError,
    wait_until_usable,
)
from memotree_storage.qdrant import reach as qdrant_reach
from memotree_storage.qdrant.reach import QdrantKeyRefusedError, QdrantUnreachableError
from memotree_storage.qdrant.reach import wait_until_usable as wait_for_qdrant
from ports import kept_ports
from psycopg.conninfo import make_conninfo

STARTING = ("57P03", "the database system is starting up")
PASSWORD = "correct-horse"  # noqa: S105 - of a role that this test makes
pytestmark = pytest.mark.requirement("USE-8")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a start try soon again."""
    for module in (reach, qdrant_reach):
        monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.02)


@pytest.fixture
async def locked(postgres: str) -> AsyncIterator[str]:
    """A conninfo of a user whose password PostgreSQL checks."""
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute(f"create role locked login password '{PASSWORD}'")
        row = await (await conn.execute("show hba_file")).fetchone()
        rules = Path(str(row and row[0]))
        before = await asyncio.to_thread(rules.read_text)
        await asyncio.to_thread(rules.write_text, f"local all locked scram-sha-256\n{before}")
        await conn.execute("select pg_reload_conf()")
        try:
            yield make_conninfo(postgres, user="locked", password=PASSWORD)
        finally:
            await asyncio.to_thread(rules.write_text, before)
            await conn.execute("select pg_reload_conf()")
            await conn.execute("drop role locked")


async def test_what_postgresql_refuses_is_named_at_the_first_attempt_and_never_repeated(
    locked: str, postgres: str
) -> None:
    waits: list[str] = []
    for conninfo, told in (
        (make_conninfo(locked, password="wrong-secret"), 'password authentication failed for user "locked"'),  # noqa: S106
        (make_conninfo(locked, password=""), "no password supplied"),
        (make_conninfo(locked, user="nobody_knows"), 'role "nobody_knows" does not exist'),
        (make_conninfo(postgres, dbname="memotre"), 'database "memotre" does not exist. Create that database'),
        ("postgresql://user:wrong-secret%word@host/db", "percent-encoded"),
    ):
        with pytest.raises(DatabaseRefusedError) as caught:
            await wait_until_usable(conninfo, waits.append)
        assert told in caught.value.message
        assert "MEMOTREE_POSTGRES_URL" in caught.value.message
        assert "secret" not in caught.value.message
    assert waits == []


async def test_a_port_without_a_server_and_an_unknown_host_are_named_before_the_next_attempt() -> None:
    waits: list[str] = []
    (free_port,) = kept_ports(1)
    with pytest.raises(DatabaseUnavailableError) as caught:
        await wait_until_usable(f"postgresql://u:secret@127.0.0.1:{free_port}/db", waits.append)
    assert waits == [caught.value.message]  # told once, however often it is tried
    assert f"127.0.0.1:{free_port} cannot be used: Connection refused" in caught.value.message
    assert "secret" not in caught.value.message
    with pytest.raises(DatabaseUnavailableError, match=r"failed to resolve host 'db\.invalid'"):
        await wait_until_usable("postgresql://u@db.invalid/db", lambda _: None)


async def test_a_server_that_is_starting_is_waited_for_and_the_wait_is_told_once_until_it_is_given_up(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    async with in_front_of(postgres, [STARTING] * 3) as scripted:
        await wait_until_usable(scripted.conninfo, waits.append)
        assert scripted.connections == 4
        (told,) = waits
        assert "the database system is starting up" in told
        monkeypatch.setattr(reach, "_out_of_patience", lambda state: state.attempt_number == 3)
        scripted.down = STARTING
        with pytest.raises(DatabaseUnavailableError, match="starting up"):
            await wait_until_usable(scripted.conninfo, waits.append)
        assert scripted.connections == 4 + 3


async def test_a_database_that_is_not_utf8_is_refused_with_what_to_do(postgres: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute("drop database if exists old_style")
        await conn.execute(
            "create database old_style template template0 encoding 'SQL_ASCII' locale_provider libc"
            " lc_collate 'C' lc_ctype 'C'"
        )
        try:
            with pytest.raises(DatabaseEncodingError) as caught:
                await Database(make_conninfo(postgres, dbname="old_style")).open()
        finally:
            await conn.execute("drop database old_style with (force)")
    assert "old_style stores text as SQL_ASCII" in caught.value.message
    assert "createdb --template=template0 --encoding=UTF8" in caught.value.message


async def test_a_user_that_may_create_no_tables_is_told_so(locked: str, empty_database_url: str) -> None:
    database = Database(make_conninfo(empty_database_url, user="locked", password=PASSWORD))
    try:
        with pytest.raises(DatabaseRefusedError, match="permission denied for database"):
            await database.open()
    finally:
        await database.close()
    assert locked


async def test_a_qdrant_that_does_not_answer_is_named() -> None:
    waits: list[str] = []
    (free_port,) = kept_ports(1)
    with pytest.raises(QdrantUnreachableError) as caught:
        await wait_for_qdrant(f"http://127.0.0.1:{free_port}", None, waits.append)
    assert caught.value.message.startswith(f"Qdrant at 127.0.0.1:{free_port} does not answer: Connection refused")
    assert "MEMOTREE_QDRANT_URL" in caught.value.message
    assert len(waits) == 1


async def test_a_wrong_key_of_qdrant_is_named(tmp_path: Path) -> None:
    engine = EmbeddedQdrant(tmp_path / "engine")
    endpoint = await engine.start()
    try:
        await wait_for_qdrant(endpoint.url, endpoint.api_key)
        with pytest.raises(QdrantKeyRefusedError, match="MEMOTREE_QDRANT_API_KEY"):
            await wait_for_qdrant(endpoint.url, "another")
    finally:
        await engine.stop()
