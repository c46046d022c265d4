"""Reading the log: commits, one commit, the revisions of a node."""

from collections.abc import Sequence
from typing import Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.history import NOTHING, CommitFilter, CommitRow, Revision
from memotree_storage.postgres.registry import Resolved
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history import entry_ids
from memotree.history.entry_diff import CREATED, DELETED, UPDATED, entry_change
from memotree.request import lookup
from memotree.request.messages import DETAIL, TITLE, Level, level_or, node_message, read_time, timestamp
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

MOST_CHANGES: Final = 1000
"""The most changed entries that GetCommit lists; its count includes all."""

_READ_AT_ONCE: Final = 20
_COMPARED_AT_ONCE: Final = 50


class SessionIsNoCommitError(InvalidInputError):
    """A session was given where a commit is needed."""

    reason = "SESSION_IS_NO_COMMIT"


class Log:
    """Reads commits and revisions from the mirror."""

    def __init__(self, store: Store, pages: PageTokens) -> None:
        self._store = store
        self._pages = pages

    async def commits(self, request: pb.ListCommitsRequest) -> pb.ListCommitsResponse:
        """Commits along the lineage of first parents, newest first."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str, **lookup.PINNED})
        since = read_time("since", request.since) if request.HasField("since") else None
        until = read_time("until", request.until) if request.HasField("until") else None
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            state = State(place.workspace.workspace_id, place.state.commit_id)
            wanted = CommitFilter(
                node_id=await entry_ids.known_id(Snapshot(conn, place.state), request.node_id, archives=True)
                if request.node_id
                else "",
                entry_ids=await _subtree(Snapshot(conn, place.state), request.subtree_id)
                if request.subtree_id
                else None,
                author=request.author,
                since=since,
                until=until,
            )
            after = cursor["after"] if cursor else None
            rows = await history.list_commits(Snapshot(conn, state), wanted, after=after, limit=size + 1)
            if not rows and wanted.node_id and not await _ever_was(Snapshot(conn, state), wanted.node_id):
                raise lookup.NodeNotFoundError(request.node_id)
        found = fitting([commit_message(row) for row in rows[:size]])
        more = len(found) < len(rows)
        return pb.ListCommitsResponse(
            commits=found,
            next_page_token=self._pages.write(
                request, {"after": found[-1].id, **lookup.pinned(place)} if more else None
            ),
        )

    async def commit(self, request: pb.GetCommitRequest) -> pb.GetCommitResponse:
        """One commit with what it changes against its first parent."""
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            workspace_id, commit_id = place.workspace.workspace_id, committed(place.resolved).state.commit_id
            row = await history.read_commit(conn, workspace_id, commit_id)
            after = await history.touched(conn, workspace_id, commit_id, limit=MOST_CHANGES)
            total = len(after)
            if total == MOST_CHANGES:
                total = await history.count_touched(conn, workspace_id, commit_id)
            parent = State(workspace_id, row.parents[0] if row.parents else NOTHING)
            before = await tree.versions(Snapshot(conn, parent), [version.entry_id for version in after])
        changes = await self._changes(workspace_id, before, after)
        return pb.GetCommitResponse(commit=commit_message(row), changes=changes, change_count=total)

    async def revisions(self, request: pb.ListNodeRevisionsRequest) -> pb.ListNodeRevisionsResponse:
        """The versions of one node, newest first."""
        size = page_size(request.page_size)
        level = level_or(request.level, TITLE)
        cursor = self._pages.read(request, {"after": str, **lookup.PINNED})
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            node_id = await entry_ids.known_id(Snapshot(conn, place.state), request.node_id)
            state = State(place.workspace.workspace_id, place.state.commit_id)
            after = cursor["after"] if cursor else None
            # One row more than the page, for two reasons: it shows that there is a next page, and the last row shown
            # needs its predecessor to decide whether it was created or updated.
            rows = await history.list_revisions(Snapshot(conn, state), node_id, after=after, limit=size + 1)
        if (not rows and not cursor) or any(row.version.is_archive for row in rows):
            raise lookup.NodeNotFoundError(request.node_id)
        found = await self._revision_messages(state.workspace_id, rows, size, level)
        more = len(found) < len(rows)
        return pb.ListNodeRevisionsResponse(
            revisions=found,
            next_page_token=self._pages.write(
                request, {"after": found[-1].commit.id, **lookup.pinned(place)} if more else None
            ),
        )

    async def _changes(
        self, workspace_id: str, before: dict[str, Version], after: Sequence[Version]
    ) -> list[pb.EntryChange]:
        """The changes; only a few entries are in memory at a time."""
        changes: list[pb.EntryChange] = []
        for start in range(0, len(after), _COMPARED_AT_ONCE):
            some = after[start : start + _COMPARED_AT_ONCE]
            old = [before[version.entry_id] for version in some if version.entry_id in before]
            new = [version for version in some if not version.dead]
            entries = await self._store.entries.load(workspace_id, [*old, *new])
            for version in some:
                was = before.get(version.entry_id)
                old_entry = entries[was.blob] if was else None
                new_entry = None if version.dead else entries[version.blob]
                if old_entry is not None or new_entry is not None:
                    changes.append(entry_change(old_entry, new_entry, fields=False))
        return changes

    async def _revision_messages(
        self, workspace_id: str, rows: Sequence[Revision], size: int, level: Level.ValueType
    ) -> list[pb.NodeRevision]:
        """The messages of the page; contents are read in small groups until the page is full."""
        found: list[pb.NodeRevision] = []
        for start in range(0, min(size, len(rows)), _READ_AT_ONCE):
            shown = rows[start : min(start + _READ_AT_ONCE, size)]
            contents: dict[str, Entry] = {}
            if level >= DETAIL:
                alive = [row.version for row in shown if not row.version.dead]
                contents = await self._store.entries.load(workspace_id, alive)
            for number, row in enumerate(shown, start):
                before = rows[number + 1].version if number + 1 < len(rows) else None
                found.append(_revision_message(row, before, contents, level))
            kept = fitting(found)
            if len(kept) < len(found):
                return kept
        return found


def committed(resolved: Resolved) -> Resolved:
    """The resolved revision, which must be a commit.

    Raises:
        SessionIsNoCommitError: It is a session.
    """
    if resolved.kind == "session":
        raise SessionIsNoCommitError.at(
            "revision",
            f"{resolved.name} is a session, not a commit. Read its changes with ListChanges or DiffRevisions, or give "
            f"its base, {resolved.state.commit_id}.",
        )
    return resolved


def commit_message(row: CommitRow) -> pb.Commit:
    """The message of a commit."""
    return pb.Commit(
        id=row.commit_id,
        parent_ids=row.parents,
        author=types_pb2.CommitAuthor(
            name=row.author_name, email=row.author_email, timestamp=timestamp(row.authored_at)
        ),
        commit_time=timestamp(row.committed_at),
        subject=row.message.split("\n", 1)[0],
        message=row.message,
        session_id=row.session_id or "",
        tags=row.tags,
    )


def _revision_message(
    row: Revision, before: Version | None, contents: dict[str, Entry], level: Level.ValueType
) -> pb.NodeRevision:
    version = row.version
    kind = DELETED if version.dead else CREATED if before is None or before.dead else UPDATED
    node = None
    if not version.dead:
        entry = contents.get(version.blob)
        node = node_message(version, level, content=entry.content if isinstance(entry, Node) else "")
    return pb.NodeRevision(commit=commit_message(row.commit), kind=kind, node=node)


async def _subtree(snapshot: Snapshot, text: str) -> list[str]:
    """The ids of a node or archive and of all its descendants at a state."""
    top = await entry_ids.alive(snapshot, text, "subtree_id", archives=True)
    if top.is_archive:
        return [top.entry_id, *(item.entry_id for item in await tree.archive_tree(snapshot, top.entry_id))]
    return [item.entry_id for item in await tree.subtree(snapshot, [top.entry_id])]


async def _ever_was(snapshot: Snapshot, entry_id: str) -> bool:
    """Whether an entry has a version on the lineage, alive or not."""
    return bool(await tree.versions(snapshot, [entry_id], dead=True))
