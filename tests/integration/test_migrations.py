"""A database of an earlier version is migrated at the start, and keeps its staged changes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import pytest
from by_hand import read_entry
from integration.worlds import World
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node, new_id
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.database import (
    WORK_MIGRATIONS,
    Database,
    DatabaseTooNewError,
    definition_digest,
    get_setting,
)
from memotree_storage.postgres.staging import blob_id
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store
from psycopg import sql
from psycopg.types.json import Jsonb

from memotree.models.builtin import WordllamaEmbedder
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens

pytestmark = pytest.mark.requirement("STORE-1", "STORE-3")

FIRST = "work_0001.sql"


class Deployment:
    """One data folder and one database, and the stores that start on them."""

    def __init__(self, folder: Path, url: str, index: QdrantIndex, embedder: WordllamaEmbedder) -> None:
        self.url = url
        self._make = lambda: Store(folder, Database(url), index, embedder)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """The store of one server process."""
        store = self._make()
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    async def ask(self, query: str, *arguments: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a query."""
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            return await (await conn.execute(query.encode(), arguments)).fetchall()


@pytest.fixture
def deployment(tmp_path: Path, database_url: str, shared_index: QdrantIndex, embedder: WordllamaEmbedder) -> Deployment:
    """A folder and a database with nothing in them."""
    return Deployment(tmp_path / "data", database_url, shared_index, embedder)


def staged_row(session_id: str, node: Node, base: Node | None, *, dead: bool = False) -> dict[str, Any]:
    """Insert a row of ``work.staged`` as the first version wrote it."""
    data = b"" if dead else encode_entry(node)
    return {
        "session_id": session_id,
        "entry_id": node.id,
        "is_archive": False,
        "dead": dead,
        "derived_blob": None if base is None else blob_id(encode_entry(base)),
        "blob": "" if dead else blob_id(data),
        "data": data,
        "archive_id": node.archive_id,
        "parent_id": node.parent_id or "",
        "position": node.position,
        "type": node.type,
        "title": node.title,
        "brief": node.brief,
        "summary": node.summary,
        "tags": list(node.tags),
        "attributes": Jsonb(dict(node.attributes)),
        "relations": Jsonb([]),
        "targets": [],
        "tokens": 3,
        "messages": ["noted before the migration"],
        "tools": ["CreateNode"],
    }


async def go_back(url: str, world: World, session_id: str, base: str, rows: list[dict[str, Any]]) -> None:
    """Put the database into the form of the first version: the old ``work``, and a mirror of an unknown format."""
    first = resources.files("memotree_storage.postgres") / "migrations" / FIRST
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute("drop schema work, mirror cascade")
        await conn.execute(first.read_text(encoding="utf-8").encode())
        await conn.execute("insert into work.setting values ('format', '1')")
        await conn.execute(
            "insert into work.session (session_id, workspace_id, branch, base_commit, agent, ttl)"
            " values (%s, %s, 'main', %s, 'an-agent', interval '1 day')",
            (session_id, world.workspace, base),
        )
        for row in rows:
            insert = sql.SQL("insert into work.staged ({}) values ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(map(sql.Placeholder, row))
            )
            await conn.execute(insert, row)


async def test_changes_staged_by_the_first_version_keep_their_parents_and_can_be_committed(
    deployment: Deployment, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with deployment.opened() as store:
        world = await World.create(store, pages, limits)
        root, sibling, doomed = (
            world.node(title, position=place) for title, place in (("a", "a1"), ("b", "a2"), ("c", "a3"))
        )
        base = await world.put(root, sibling, doomed)
    session_id = new_id()
    changed = replace(root, title="Changed before")
    fresh_root, child = world.node("Fresh root", position="a5"), world.node("Child", parent=root)
    rows = [
        staged_row(session_id, changed, root),
        staged_row(session_id, fresh_root, None),
        staged_row(session_id, child, None),
        staged_row(session_id, doomed, doomed, dead=True),
    ]
    await go_back(deployment.url, world, session_id, base, rows)

    async with deployment.opened() as store:
        world = world.on(store)
        async with store.database.connection() as conn:
            assert await get_setting(conn, "format") == str(len(WORK_MIGRATIONS))
            staged = {row.entry_id: row for row in await staging.staged(conn, session_id)}
            state = State(world.workspace, base, session_id)
            roots = [entry_id for entry_id, _ in await tree.children(Snapshot(conn, state), world.archive.id)]
            below = [entry_id for entry_id, _ in await tree.children(Snapshot(conn, state), root.id)]
        assert {key: row.entry for key, row in staged.items()} == {
            root.id: changed, fresh_root.id: fresh_root, child.id: child, doomed.id: None,
        }  # fmt: skip
        assert {tuple(row.messages) for row in staged.values()} == {("noted before the migration",)}
        assert {row.revision for row in staged.values()} == {1}
        archive_id = world.archive.id
        assert dict(await deployment.ask("select entry_id, home from work.staged")) == {
            root.id: archive_id, fresh_root.id: archive_id, child.id: root.id, doomed.id: archive_id,
        }  # fmt: skip
        assert (roots, below) == ([root.id, sibling.id, fresh_root.id], [child.id])
        await world.stage(session_id, replace(child, parent_id=sibling.id))
        assert (await deployment.ask("select home from work.staged where entry_id = %s", child.id)) == [(sibling.id,)]
        commit_id = await world.commit(session_id)
        repository = world.repository
        assert read_entry(repository, commit_id, changed.id) == encode_entry(changed)
        assert read_entry(repository, commit_id, doomed.id) is None
        assert set(await world.alive(commit_id)) == {archive_id, root.id, sibling.id, fresh_root.id, child.id}


async def test_every_start_after_the_migration_finds_the_schema_of_a_fresh_database(
    deployment: Deployment, pages: PageTokens, limits: ServiceLimits
) -> None:
    shape = (
        "select table_name, column_name, data_type, is_nullable, generation_expression"
        " from information_schema.columns where table_schema = 'work' order by 1, 2"
    )
    indexes = "select indexname, indexdef from pg_indexes where schemaname = 'work' order by 1"
    async with deployment.opened() as store:
        world = await World.create(store, pages, limits)
        base = await world.head()
    fresh = [*await deployment.ask(shape), *await deployment.ask(indexes)]
    await go_back(deployment.url, world, new_id(), base, [])
    assert [*await deployment.ask(shape), *await deployment.ask(indexes)] != fresh
    for _ in range(2):
        async with deployment.opened():
            assert [*await deployment.ask(shape), *await deployment.ask(indexes)] == fresh


async def test_a_working_state_of_a_later_version_is_refused_and_not_changed(deployment: Deployment) -> None:
    async with deployment.opened():
        pass
    later = str(len(WORK_MIGRATIONS) + 1)
    async with await psycopg.AsyncConnection.connect(deployment.url, autocommit=True) as conn:
        await conn.execute("update work.setting set value = %s where name = 'format'", (later,))
    with pytest.raises(DatabaseTooNewError, match=f"format {later}"):
        async with deployment.opened():
            pass
    assert await deployment.ask("select value from work.setting where name = 'format'") == [(later,)]


def test_the_digest_of_a_definition_changes_with_its_code_alone() -> None:
    one = definition_digest("create table a (\n  b integer -- a number\n);\n")
    assert definition_digest("-- a table\ncreate table a (\n  b integer\n\n);") == one
    assert definition_digest("create table a (b integer, c integer);") != one


@pytest.mark.parametrize("setting", ["mirror_definition", "mirror_format"])
async def test_a_mirror_of_another_definition_or_format_is_rebuilt(deployment: Deployment, setting: str) -> None:
    """Another definition is one of other columns, whose authors forgot to give the format another number."""
    async with deployment.opened():
        pass
    async with await psycopg.AsyncConnection.connect(deployment.url, autocommit=True) as conn:
        await conn.execute("alter table mirror.version drop column tokens")
        await conn.execute("update work.setting set value = 'another' where name = %s", (setting,))
    async with deployment.opened():
        pass
    found = await deployment.ask(
        "select 1 from information_schema.columns where table_schema = 'mirror'"
        " and table_name = 'version' and column_name = 'tokens'"
    )
    assert found
