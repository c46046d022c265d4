"""What a commit did whose first answer was lost, read again from the commit for a call that is repeated.

Usually the answer itself is stored. It is missing if the server stopped between the commit and the end of its
transaction; then the commit is found by its trailer, and the answer is made anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.postgres import history
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.memory.changes import REVISE, Change
from memotree.memory.restoring import MOST
from memotree.v1 import memory_service_pb2 as pb

_VERBS = {"remember": "Remember", "revise": REVISE, "forget": "Forget", "restore": "Restore"}


async def changes_of_commit(
    snapshot: Snapshot, store: Store, changes: Sequence[pb.MemoryChange], fresh: Sequence[str], request_id: str
) -> list[Change]:
    """Return what each change of a call did, from the commit that it made.

    Args:
        snapshot: The commit.
        store: The store.
        changes: The changes of the call.
        fresh: The ids that its new notes were given, derived from the request id.
        request_id: The request id, for the error.

    Raises:
        RequestIdReusedError: The commit is not that of these changes: another call used the request id, long ago or in
            a history that was pushed from elsewhere.
    """
    state = snapshot.state
    found = await history.touched(snapshot.conn, state.workspace_id, state.commit_id, limit=2 * MOST)
    touched = {version.entry_id: version for version in found if not version.is_archive}
    named = [_named(touched, change, new) for change, new in zip(changes, fresh, strict=True)]
    # A query is not searched for again: what it meant are the changed notes that no other change names.
    others = [one for one in touched.values() if one.entry_id not in named and one.type != SUMMARY_TYPE]
    gone = {version.entry_id for version in touched.values() if version.dead}
    said = await read_nodes(snapshot, store.entries, [version for version in others if not version.dead])
    done = []
    for change, name in zip(changes, named, strict=True):
        kind = change.WhichOneof("change") or "remember"
        is_gone = kind == "forget"
        tops = [name]
        if not name:
            candidates = [one for one in others if one.dead is is_gone and one.parent_id not in gone]
            meant = _meant(change, candidates, said)
            others = [one for one in others if one not in meant]
            tops = [one.entry_id for one in meant]
        if not tops or tops[0] not in touched:
            raise RequestIdReusedError.of(request_id)
        has_more = kind in ("forget", "restore")
        ids = [each for top in tops for each in (top, *(_below(touched, top, dead=is_gone) if has_more else ()))]
        done.append(Change(_VERBS[kind], touched[ids[0]].title, ids, is_gone=is_gone))
    await _check_texts(snapshot, store, changes, [touched[change.node_ids[0]] for change in done], request_id)
    return done


async def _check_texts(
    snapshot: Snapshot, store: Store, changes: Sequence[pb.MemoryChange], notes: Sequence[Version], request_id: str
) -> None:
    """Check that each note says, after the commit, what the last change that gave it a text said."""
    given: dict[str, tuple[Version, str]] = {}
    for change, note in zip(changes, notes, strict=True):
        kind = change.WhichOneof("change")
        if kind == "remember" or (kind == "revise" and change.revise.HasField("text")):
            given[note.entry_id] = (note, getattr(change, kind).text)
        else:
            given.pop(note.entry_id, None)
    alive = [note for note, _ in given.values() if not note.dead]
    nodes = await read_nodes(snapshot, store.entries, alive)
    for note in alive:
        if nodes[note.entry_id].content != given[note.entry_id][1]:
            raise RequestIdReusedError.of(request_id)


def _named(touched: Mapping[str, Version], change: pb.MemoryChange, fresh: str) -> str:
    """The node that a change names; ``""`` if it was found by a query, or by a title that it has no more."""
    kind = change.WhichOneof("change") or "remember"
    if kind == "remember":
        return fresh
    given: Any = getattr(change, kind)
    titled = (version.entry_id for version in touched.values() if version.title == given.node_id)
    by_id = (entry_id for entry_id in touched if given.node_id and entry_id.startswith(given.node_id))
    return next(by_id, "") or next(titled, "")


def _meant(change: pb.MemoryChange, candidates: Sequence[Version], said: Mapping[str, Node]) -> Sequence[Version]:
    """The notes that a change without an id meant, of those that no other change names: copies if it has a query."""
    if change.WhichOneof("change") == "revise" and change.revise.HasField("text"):
        candidates = [one for one in candidates if said[one.entry_id].content == change.revise.text]
    has_query = change.revise.query or change.forget.query
    same = [one for one in candidates if one.title == candidates[0].title]
    return same if has_query else candidates[:1]


def _below(touched: Mapping[str, Version], node_id: str, *, dead: bool) -> list[str]:
    """The touched nodes below one, by their parents."""
    children: dict[str, list[str]] = {}
    for version in touched.values():
        if version.dead == dead:
            children.setdefault(version.parent_id, []).append(version.entry_id)
    order, waiting = [], list(children.get(node_id, ()))
    while waiting:
        entry_id = waiting.pop(0)
        order.append(entry_id)
        waiting += children.get(entry_id, ())
    return order
