"""What does not depend on the collation of the database, on a PostgreSQL that has several.

The bundled one has no other order than that of code points; Debian builds the machine's with ICU.
"""

from collections.abc import AsyncIterator

import psycopg
import pytest
from integration.conftest import QUICK, system_binaries
from integration.worlds import World
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.model.node import Archive, new_id
from memotree_storage.postgres import tree, views
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
def spare_databases() -> list[str]:
    """Those of this server."""
    return []


@pytest.mark.requirement("CANVAS-15")
async def test_names_are_in_the_order_of_their_characters_whatever_collation_the_database_has(
    world: World, database_url: str
) -> None:
    names = ["B", "a", "b c", "bb", "É", "é", "—", "東"]
    commit = await world.put(*(Archive(new_id(), name, "an-agent", "") for name in names))
    async with world.store.database.transaction() as conn:
        for name in names:
            await views.set_levels(conn, ViewKey(world.workspace, "main", name), {new_id(): 1})
    # A connection of its own: the others have plans for the columns as they were.
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        known = await conn.execute("select from pg_collation where collname = 'und-x-icu'")
        if await known.fetchone() is None:
            pytest.skip("this machine's PostgreSQL was built without ICU")
        await conn.execute('alter table mirror.version alter column title type text collate "und-x-icu"')
        await conn.execute('alter table work.view alter column name type text collate "und-x-icu"')
        archives = await tree.archives(Snapshot(conn, State(world.workspace, commit)))
        paged: list[str] = []
        while found := await views.list_views(conn, world.workspace, "main", after=paged[-1] if paged else "", limit=2):
            paged += [view.name for view in found]
    assert [archive.title for archive in archives] == sorted([*names, "notes"])
    assert paged == sorted(names)
