"""Resolves the ids in requests about history, which may name deleted nodes too: those also have a history."""

from memotree_storage.model.node import is_id, is_id_prefix
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

from memotree.request import lookup


async def known_id(snapshot: Snapshot, text: str, field: str = "node_id", *, archives: bool = False) -> str:
    """The full id that a text names among all nodes that the lineage ever had, alive or deleted.

    Args:
        snapshot: The state whose lineage is meant.
        text: An id, or the beginning of one.
        field: The field of the request.
        archives: Whether it may also name an archive. Otherwise an archive with that prefix does not matter.

    Raises:
        InvalidIdError: It is neither an id nor a prefix of one.
        AmbiguousIdError: Several ids begin with it; all are listed, those of deleted nodes too.
        NodeNotFoundError: No id ever began with it.
    """
    if is_id(lookup.needed(field, text)) or not is_id_prefix(text):
        return await lookup.full_id(snapshot, text, field)
    begun = await tree.versions(snapshot, await tree.with_prefix(snapshot, text), dead=True)
    found = [version for version in begun.values() if archives or not version.is_archive]
    if not found:
        raise lookup.NodeNotFoundError(text)
    if len(found) > 1:
        raise lookup.AmbiguousIdError.among(
            field, text, sorted(found, key=lambda version: (version.dead, version.entry_id))
        )
    return found[0].entry_id


async def alive(snapshot: Snapshot, text: str, field: str = "node_id", *, archives: bool = False) -> Version:
    """The alive node (or with ``archives`` also archive) that an id or a prefix names.

    Raises:
        NodeNotFoundError: It never existed, or it was deleted; then the message names a commit that still has it.
    """
    entry_id = await known_id(snapshot, text, field, archives=archives)
    found = (await tree.versions(snapshot, [entry_id])).get(entry_id)
    if found is None:
        raise await _gone(snapshot, text, entry_id)
    if found.is_archive and not archives:
        raise lookup.NodeNotFoundError(text)
    return found


async def _gone(snapshot: Snapshot, text: str, entry_id: str) -> lookup.NodeNotFoundError:
    """The error for an entry that is not alive at a state."""
    base = State(snapshot.state.workspace_id, snapshot.state.commit_id)
    if await tree.versions(Snapshot(snapshot.conn, base), [entry_id]):  # the session itself has deleted it
        return lookup.NodeNotFoundError(
            text, f"This session deletes {entry_id}. Give its base commit as the revision: {snapshot.state.commit_id}."
        )
    last = await history.list_revisions(Snapshot(snapshot.conn, base), entry_id, limit=1)
    if not last or not last[0].version.dead or not last[0].commit.parents:
        return lookup.NodeNotFoundError(text)
    commit = last[0].commit
    return lookup.NodeNotFoundError(
        text,
        f"{entry_id} was deleted in commit {commit.commit_id}. Give a revision that still has it: {commit.parents[0]}.",
    )
