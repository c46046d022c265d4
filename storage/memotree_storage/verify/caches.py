"""Compares what the server remembers of the mirror's rows with the rows."""

from memotree_storage.postgres import history
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store
from memotree_storage.verify.report import Difference


async def check_caches(conn: Connection, store: Store, workspace_id: str) -> list[Difference]:
    """Compare everything that is cached of the rows of a workspace, as the caches themselves know how.

    What they have of commits that were made after the snapshot of ``conn`` is not compared.
    """
    wrong = [found for check in store.cache_checks for found in await check(conn, workspace_id)]
    known = await history.known(conn, workspace_id, {found.commit_id for found in wrong})
    return [
        Difference(
            "cache",
            found.what,
            f"The server remembered {' '.join(filter(None, (found.what, found.entry_id)))} at commit {found.commit_id} "
            "otherwise than PostgreSQL has it; it reads it anew from now on.",
            found.commit_id,
            found.entry_id,
        )
        for found in wrong
        if found.commit_id in known
    ]
