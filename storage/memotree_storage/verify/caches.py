"""Compares what the server remembers of the mirror's rows with the rows."""

from typing import Final

from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store
from memotree_storage.verify.report import Difference

_MOST_COMPARED: Final = 5000
"""Remembered nodes that are compared: the latest ones."""


async def check_caches(conn: Connection, store: Store, workspace_id: str) -> list[Difference]:
    """Compare the remembered nodes of a workspace with their rows."""
    found = []
    remembered = [(key, value) for key, value in store.placed.items() if key[0] == workspace_id]
    for (_, commit_id, entry_id), placed in remembered[-_MOST_COMPARED:]:
        if placed != await tree.one(Snapshot(conn, State(workspace_id, commit_id)), entry_id):
            sentence = (
                f"The server remembered {entry_id} at commit {commit_id} otherwise than PostgreSQL has it; it reads it "
                "anew from now on."
            )
            found.append(Difference("cache", "node", sentence, commit_id, entry_id))
    return found
