"""At the start after a restore, PostgreSQL goes back to the backup too.

It forgets what it keeps about commits that the restored repository lacks, and takes the rows that came with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.restored import RestoredRows
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres import projector, requests, saved_rows, sessions
from memotree_storage.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten: results of request ids, and open sessions that lost their base.

    ``sessions_taken`` came from the backup. ``mirror_is_ahead`` tells that the mirror has commits that the repository
    lacks, and must be made again.
    """

    requests_forgotten: int
    sessions_detached: int
    sessions_taken: int
    mirror_is_ahead: bool


async def forget_lost(
    conn: Connection, workspace_id: str, repository: GitRepository, taken_at: str, rows: RestoredRows | None
) -> Forgotten:
    """Forget the results of request ids, take those of the backup, and detach sessions whose base the repository lacks.

    All results go, not only those of lost commits: a result may be about a session or a job and names no commit, and
    the call of a commit that is there is still answered, from the commit's trailer. Staged changes stay, so that people
    can read them. Safe to repeat.

    Args:
        conn: In a transaction that holds the workspace.
        workspace_id: The workspace.
        repository: Its repository.
        taken_at: The time of the backup, for people.
        rows: The rows of the backup, if it has any.
    """
    forgotten = await requests.forget_requests(conn, workspace_id)
    taken = 0
    if rows is not None:
        tables = {each.table: (each.columns, rows.files[each.table]) for each in rows.tables}
        taken = await saved_rows.take_rows(conn, workspace_id, tables, repository.exists)
    unclosed = await sessions.unclosed_commits(conn, workspace_id)
    there = await in_store_thread(
        lambda: {one for one, commits in unclosed.items() if all(map(repository.exists, filter(None, commits)))}
    )
    lost = sorted(unclosed.keys() - there)
    await sessions.detach(
        conn,
        lost,
        f"lost its base commit: the workspace was restored from a backup of {taken_at}. ListChanges still shows what "
        "it staged",
    )
    held = {one: unclosed[one][0] for one in there}
    held |= {f"{one}.{merged}": merged for one in there if (merged := unclosed[one][1]) is not None}
    await in_store_thread(_protect, repository, held)
    known = await projector.known_commits(conn, workspace_id)
    ahead = await in_store_thread(lambda: not all(map(repository.exists, known)))
    return Forgotten(forgotten, len(lost), taken, mirror_is_ahead=ahead)


def _protect(repository: GitRepository, held: Mapping[str, str]) -> None:
    """Make the refs that protect commits of sessions from ``git gc``; a backup has none of them."""
    refs = repository.refs()
    for name, commit_id in held.items():
        ref = f"{KEEP_PREFIX}{name}"
        if refs.get(ref) != commit_id:
            repository.move_ref(ref, refs.get(ref), commit_id)
