"""Results that must not depend on the database's collation, on a PostgreSQL that has several.

The bundled PostgreSQL only has the order of code points; Debian builds its PostgreSQL with ICU.
"""

from collections.abc import AsyncIterator

import psycopg
import pytest
from databases import QUICK, make_template, system_binaries
from integration.worlds import World
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.model.node import Archive, new_id
from memotree_storage.postgres import archive_versions, views
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.views import ViewKey


@pytest.fixture(scope="module")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The conninfo of the machine's PostgreSQL, run for this module."""
    binaries = system_binaries()
    if binaries is None:
        pytest.skip("this machine has no PostgreSQL server")
    server = EmbeddedPostgres(tmp_path_factory.mktemp("collations"), binaries=binaries, settings=QUICK)
    try:
        yield await server.start()
    finally:
        await server.stop()


@pytest.fixture(scope="module")
async def template(postgres: str) -> str:
    """The database of this server that is copied for each test."""
    return await make_template(postgres)


@pytest.mark.requirement("CANVAS-15")
async def test_names_are_sorted_by_code_point_with_every_collation_of_the_database(
    world: World, database_url: str
) -> None:
    names = ["B", "a", "b c", "bb", "É", "é", "—", "東"]
    commit = await world.put(*(Archive(new_id(), name, "an-agent", "") for name in names))
    async with world.store.database.transaction() as conn:
        for name in names:
            await views.set_levels(conn, ViewKey(world.workspace, "main", name), {new_id(): 1})
    # A new connection: the others have plans for the old columns.
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        known = await conn.execute("select from pg_collation where collname = 'und-x-icu'")
        if await known.fetchone() is None:
            pytest.skip("this machine's PostgreSQL was built without ICU")
        await conn.execute('alter table mirror.version alter column title type text collate "und-x-icu"')
        await conn.execute('alter table work.view alter column name type text collate "und-x-icu"')
        archives = await archive_versions.archives(Snapshot(conn, State(world.workspace, commit)))
        paged: list[str] = []
        while found := await views.list_views(conn, world.workspace, "main", after=paged[-1] if paged else "", limit=2):
            paged += [view.name for view in found]
    assert [archive.name for archive in archives] == sorted([*names, "notes"])
    assert paged == sorted(names)
