"""Bulk import: many entries as one commit, past the staging of a session.

Git goes first, then the rows by COPY, then the index from the outbox. For documents and migrations; a crash leaves
either nothing or a commit that the next start mirrors.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from memotree_storage.codec import encode_entry, entry_path
from memotree_storage.errors import AbortedError
from memotree_storage.held import turn_of
from memotree_storage.node import Entry
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import projector
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.shield import Passage, finish_once_begun
from memotree_storage.store import Store
from memotree_storage.workspaces import service_signature


class ImportRacedError(AbortedError):
    """The branch moved while the import was written."""

    reason = "IMPORT_RACED"


async def import_entries(
    store: Store,
    workspace_id: str,
    branch: str,
    entries: Iterable[Entry],
    message: str,
    author: Signature | None = None,
) -> str:
    """Commit entries, new or as new versions, on the head of a branch; the id of the commit is returned.

    Args:
        store: An open store.
        workspace_id: The workspace.
        branch: A branch that is there.
        entries: Valid entries (see `validation`) whose parents and archives are among them or on the branch.
        message: The message of the commit.
        author: Its author; MemoTree itself when none is given.

    Raises:
        ImportRacedError: The branch moved meanwhile; nothing was committed.
    """
    by_path = {entry_path(entry): entry for entry in entries}
    changes = await asyncio.to_thread(lambda: {path: encode_entry(entry) for path, entry in by_path.items()})
    return await finish_once_begun(
        partial(_import, store, workspace_id, branch, by_path, changes, message.rstrip("\n") + "\n", author)
    )


async def _import(
    store: Store,
    workspace_id: str,
    branch: str,
    by_path: Mapping[str, Entry],
    data: Mapping[str, bytes],
    message: str,
    author: Signature | None,
    passage: Passage,
) -> str:
    ref = f"refs/heads/{branch}"
    async with turn_of(store, workspace_id, passage) as turn:
        repository = turn.repository
        head = (await asyncio.to_thread(repository.refs)).get(ref)
        draft = CommitDraft(head, dict(data), message, author or service_signature(), service_signature())
        written = await asyncio.to_thread(repository.write_commit, draft)
        passage.begun = True
        if not await asyncio.to_thread(repository.move_ref, ref, head, written.commit_id):
            raise ImportRacedError(f"Branch {branch} moved while the import was written. Run the import again.")
        info = await asyncio.to_thread(repository.commit_info, written.commit_id)
        changes = [EntryChange(entry.id, written.blobs[path], entry) for path, entry in by_path.items()]
        await projector.project(turn.conn, workspace_id, info, changes)
        await projector.put_ref(turn.conn, workspace_id, ref, written.commit_id, written.commit_id)
    store.entries.remember({change.blob: change.entry for change in changes if change.entry is not None})
    store.indexer.notice(workspace_id)
    return written.commit_id
