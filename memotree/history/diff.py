"""The differences between two states of the tree."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.contents import read_entries
from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import NOTHING, Counted
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history.entry_diff import entry_change
from memotree.history.subtree_diff import Found, differing_below
from memotree.request import lookup
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.v1 import history_service_pb2 as pb

MOST_COUNTED: Final = 10_000
"""The most differences that the summary of a diff counts; above that it says "more than"."""

_READ_AT_ONCE: Final = 50

_COMPARED_WITH_OTHERS: Final = 1 << 16
"""Two contents that have more characters together are compared by themselves, in the threads for comparisons."""


@dataclass(frozen=True, slots=True)
class _Side:
    """An entry at one of the two states, and the id of its file; both empty if it is not alive there."""

    blob: str = ""
    entry: Entry | None = None


_NOTHING: Final = _Side()
_Pair = tuple[_Side, _Side]


class Diff:
    """Compares two states: sessions, branches, tags, commits."""

    def __init__(self, store: Store, pages: PageTokens) -> None:
        self._store = store
        self._pages = pages

    async def between(self, request: pb.DiffRevisionsRequest) -> pb.DiffRevisionsResponse:
        """The entries that differ, ordered by id."""
        if request.node_id and request.subtree_id:
            raise InvalidInputError.at("subtree_id", "cannot be given with node_id; give one of them.")
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"old": str, "new": str, "after": str, "summary": str})
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.new_revision, "new_revision")
            old_state, new_state = await _older(conn, place, request.old_revision), place.state
            if cursor:
                old_state, new_state = _as_before(old_state, cursor["old"]), _as_before(new_state, cursor["new"])
            states = old_state, new_state
            after = cursor["after"] if cursor else ""
            if request.subtree_id:
                top = await _named(conn, *states, request.subtree_id)
                found = await differing_below(conn, *states, top, after=after, limit=size + 1, count=cursor is None)
            else:
                node_id = await _named(conn, *states, request.node_id)
                found = await _differing(conn, *states, node_id, after=after, limit=size + 1, count=cursor is None)
        summary = cursor["summary"] if cursor else _sentence(found)
        changes, last = await self._changes(old_state, new_state, found.ids[:size], request)
        more = any(entry_id > last for entry_id in found.ids)
        if found.last and not more:
            last, more = found.last, True
        where = {"old": old_state.commit_id, "new": new_state.commit_id, "after": last, "summary": summary}
        return pb.DiffRevisionsResponse(
            changes=changes, next_page_token=self._pages.write(request, where if more else None), summary=summary
        )

    async def _changes(
        self, old: State, new: State, ids: Sequence[str], request: pb.DiffRevisionsRequest
    ) -> tuple[list[pb.EntryChange], str]:
        """The changes of these entries, as many as fit into a page, and the id of the last entry that was looked at.

        They are read and compared in small groups, and no connection is held while they are compared.
        """
        found: list[pb.EntryChange] = []
        for start in range(0, len(ids), _READ_AT_ONCE):
            some = ids[start : start + _READ_AT_ONCE]
            async with self._store.database.connection() as conn:
                before = await self._entries(Snapshot(conn, old), some)
                after = await self._entries(Snapshot(conn, new), some)
            pairs = [(before.get(entry_id, _NOTHING), after.get(entry_id, _NOTHING)) for entry_id in some]
            for piece in _pieces(pairs):
                is_long = request.include_fields and _is_long(piece[0])
                compared = in_comparison_thread if is_long else asyncio.to_thread
                found += await compared(_told, piece, fields=request.include_fields, words=request.by_words)
                kept = fitting(found)
                if len(kept) < len(found):
                    return kept, kept[-1].node_id
        return found, max(ids, default="")

    async def _entries(self, snapshot: Snapshot, ids: Sequence[str]) -> dict[str, _Side]:
        """The entries that are alive at a state: staged ones from the session, the others from Git."""
        versions = await tree.versions(snapshot, ids)
        entries = await read_entries(snapshot, self._store.entries, versions.values())
        return {entry_id: _Side(versions[entry_id].blob, entry) for entry_id, entry in entries.items()}


async def _older(conn: Connection, place: lookup.WorkspaceRevision, revision: str) -> State:
    """The older state: the given revision, else the base of the session or the parent of the commit."""
    workspace_id = place.workspace.workspace_id
    if revision:
        return (await lookup.use_revision(conn, workspace_id, revision, "old_revision")).state
    if place.resolved.kind == "session":
        return State(workspace_id, place.state.commit_id)
    parents = (await history.read_commit(conn, workspace_id, place.state.commit_id)).parents
    return State(workspace_id, parents[0] if parents else NOTHING)


def _as_before(state: State, commit_id: str) -> State:
    """The state that the first page read: a branch may have moved since; a session must not have another base."""
    if state.session_id is not None:
        lookup.check_page(state, commit_id)
    return replace(state, commit_id=commit_id)


async def _differing(
    conn: Connection, old: State, new: State, node_id: str, *, after: str, limit: int, count: bool
) -> Found:
    """The entries that differ, with ids above ``after``; with ``node_id`` only that one."""
    ids = await history.differing(conn, old, new, node_id=node_id, after=after, limit=limit)
    if not count:
        return Found(ids, Counted(0, 0, 0), "")
    return Found(ids, await history.count_differing(conn, old, new, node_id=node_id, limit=MOST_COUNTED + 1), "")


async def _named(conn: Connection, old: State, new: State, text: str) -> str:
    """The full id of the node that the diff is limited to, which is alive in one of the states; "" for no limit."""
    if not text:
        return ""
    try:
        node_id = await lookup.full_id(Snapshot(conn, new), text, archives=True)
    except lookup.NodeNotFoundError:
        node_id = await lookup.full_id(Snapshot(conn, old), text, archives=True)
    for state in (new, old):
        if await tree.versions(Snapshot(conn, state), [node_id]):
            return node_id
    raise lookup.NodeNotFoundError(
        text, f"There is no node {text!r} in either of the two states. ListNodeRevisions tells where it was."
    )


def _pieces(pairs: Iterable[_Pair]) -> Iterator[list[_Pair]]:
    """The pairs in their order: neighbours that are short together, a long one by itself."""
    for is_long, some in groupby(pairs, _is_long):
        group = list(some)
        yield from ([pair] for pair in group) if is_long else [group]


def _is_long(pair: _Pair) -> bool:
    return sum(len(side.entry.content) for side in pair if isinstance(side.entry, Node)) > _COMPARED_WITH_OTHERS


def _told(pairs: Iterable[_Pair], *, fields: bool, words: bool) -> list[pb.EntryChange]:
    """The changes; skips files that are equal by now, since a session may have changed between the reads."""
    return [
        entry_change(old.entry, new.entry, fields=fields, words=words) for old, new in pairs if old.blob != new.blob
    ]


def _sentence(found: Found) -> str:
    counted = found.counted
    if found.last:
        return f"At least {counted.total} of the entries that differ are in the subtree; not all were looked at."
    if counted.total == 0:
        return "Nothing differs."
    if counted.total > MOST_COUNTED:
        return f"More than {MOST_COUNTED} entries differ."
    kinds = (("created", counted.created), ("changed", counted.updated), ("deleted", counted.deleted))
    listed = ", ".join(f"{count} {what}" for what, count in kinds if count)
    return f"1 entry differs: {listed}." if counted.total == 1 else f"{counted.total} entries differ: {listed}."
