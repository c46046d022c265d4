"""Bisecting: every commit at which a field of a node changed, through merges too, with who did it and why.

The commits come from the version rows of the node, which name them. So nothing is searched by halves: several changes,
there and back again, and changes on merged branches are all found, and a commit that did not touch the node costs
nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.commit.message import notes_of
from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import Revision
from memotree_storage.postgres.merge_bases import history_of
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history import entry_ids
from memotree.history.entry_diff import CREATED, DELETED, UPDATED, field_changes
from memotree.history.log import commit_message
from memotree.request import lookup
from memotree.request.pages import PAGE_BYTES, PageTokens, page_size
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

FIELDS: Final = ("type", "title", "brief", "summary", "tags", "attributes", "relations", "source", "content", "parent")
"""The fields that may be asked for; without one, a change of any counts."""

_COMPARED_AT_ONCE: Final = 20
_MOST_COMPARED: Final = 300
"""Versions that one call compares; a page ends early after them, and its token goes on."""


class Bisecting:
    """Finds the commits that changed a node."""

    def __init__(self, store: Store, pages: PageTokens) -> None:
        self._store = store
        self._pages = pages

    async def changes(self, request: pb.BisectNodeRequest) -> pb.BisectNodeResponse:
        """The changes, newest first."""
        size = page_size(request.page_size)
        if request.field and request.field not in FIELDS:
            raise InvalidInputError.at("field", f"is none of {', '.join(FIELDS)}.")
        cursor = self._pages.read(request, {"after": str, **lookup.PINNED})
        after = cursor["after"] if cursor else None
        found: list[pb.ValueChange] = []
        last: Revision | None = None
        room = PAGE_BYTES
        async with self._store.database.repeatable_read() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            state = State(place.workspace.workspace_id, place.state.commit_id)
            node_id = await entry_ids.known_id(Snapshot(conn, state), request.node_id)
            reached = await history_of(conn, state.workspace_id, state.commit_id)
            limit = _MOST_COMPARED + 1
            rows = await history.reached_revisions(Snapshot(conn, state), reached, node_id, after=after, limit=limit)
            if (not rows and not cursor) or any(row.version.is_archive for row in rows[:1]):
                raise lookup.NodeNotFoundError(request.node_id)
            for start in range(0, min(len(rows), _MOST_COMPARED), _COMPARED_AT_ONCE):
                some = rows[start : min(start + _COMPARED_AT_ONCE, _MOST_COMPARED)]
                for row, change in await self._compared(conn, state.workspace_id, some, request.field):
                    if change is not None and (len(found) == size or (found and room < change.ByteSize())):
                        return self._page(request, found, last, lookup.pinned(place))
                    if change is not None:
                        found.append(change)
                        room -= change.ByteSize()
                    last = row
        return self._page(request, found, last if len(rows) > _MOST_COMPARED else None, lookup.pinned(place))

    def _page(
        self,
        request: pb.BisectNodeRequest,
        found: Sequence[pb.ValueChange],
        last: Revision | None,
        pinned: Mapping[str, str],
    ) -> pb.BisectNodeResponse:
        where = None
        if last is not None:
            where = {"after": last.commit.commit_id, **pinned}
        return pb.BisectNodeResponse(changes=found, next_page_token=self._pages.write(request, where))

    async def _compared(
        self, conn: Connection, workspace_id: str, rows: Sequence[Revision], field: str
    ) -> list[tuple[Revision, pb.ValueChange | None]]:
        """Each version with what it changed against the parents of its commit; ``None`` if nothing that is wanted."""
        before: list[list[Version | None]] = []
        for row in rows:
            parents = [Snapshot(conn, State(workspace_id, parent)) for parent in row.commit.parents]
            ids = [row.version.entry_id]
            before.append([(await tree.versions(parent, ids)).get(ids[0]) for parent in parents])
        versions = [version for some in before for version in some if version is not None]
        alive = [row.version for row in rows if not row.version.dead]
        entries = await self._store.entries.load(workspace_id, [*versions, *alive])

        def compare() -> list[tuple[Revision, pb.ValueChange | None]]:
            return [
                (row, _change(row, [None if one is None else entries[one.blob] for one in some], entries, field))
                for row, some in zip(rows, before, strict=True)
            ]

        return await in_comparison_thread(compare)


def _change(
    row: Revision, before: Sequence[Entry | None], entries: Mapping[str, Entry], field: str
) -> pb.ValueChange | None:
    after = None if row.version.dead else entries[row.version.blob]
    first = before[0] if before else None
    fields = [each for each in field_changes(first, after) if _is_of(each.field, field)] if first or after else []
    if not fields:
        return None
    return pb.ValueChange(
        commit=commit_message(row.commit),
        agent=row.commit.agent,
        kind=CREATED if first is None else DELETED if after is None else UPDATED,
        fields=fields,
        source=source_message(after),
        reason=notes_of(row.commit.message, row.version.entry_id),
        merged=any(not [each for each in field_changes(one, after) if _is_of(each.field, field)] for one in before[1:]),
    )


def _is_of(name: str, field: str) -> bool:
    return not field or name.partition(".")[0] == field


def source_message(entry: Entry | None) -> types_pb2.Source | None:
    """Where the content of a node comes from; ``None`` if that is not known."""
    if not isinstance(entry, Node) or entry.source is None:
        return None
    source = entry.source
    return types_pb2.Source(
        document_id=source.document_id,
        start=source.start,
        end=source.end,
        page=source.page,
        heading=source.heading,
        sha256=source.sha256,
    )
