"""Replaces the index by one of another embedding model, while reads and writes go on.

1. A second index is begun and noted; from then on the outbox feeds both. 2. Every version is put into its part of the
outbox, workspace by workspace, and applied to it; the index that answers is not touched. 3. When the second one has all
that it should have, one transaction notes that it answers. 4. The earlier one is deleted when nobody uses it any more.

A kill before step 3 leaves the earlier index, which answered all the time; what was made so far is used again by the
next run with the same model, and deleted by one with another, or by `Indexes.abandon`. A kill after it leaves the new
index, and the next start deletes the earlier one. No search ever looks at both.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from memotree_storage import faults
from memotree_storage.concurrency.cancellation import (
    CommitPoint,
    cancel_and_wait,
    finish_past_commit_point,
    retry_until_done,
)
from memotree_storage.errors import UnavailableError
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.ports import Embedder, VectorIndex
from memotree_storage.postgres import indexes, projector, registry
from memotree_storage.postgres.indexes import IndexRecord, IndexRecords
from memotree_storage.store import Store

_ROUNDS: Final = 20
"""How often the second index catches up before it answers, or is given up."""

_FEW: Final = 500
"""With fewer versions waiting, the second index may answer: a search waits for them, as it does after a commit."""

_FLUSH_SECONDS: Final = 5.0
"""How often what was made becomes durable."""

Report = Callable[[str, int, int], None]
"""Gets the step, and how much of how much is done."""


class ReindexUnfinishedError(UnavailableError):
    """The new index did not get all that it should have."""

    reason = "REINDEX_UNFINISHED"

    def __init__(self, workspaces: int) -> None:
        super().__init__(
            f"The new index lacks points of {workspaces} workspaces, although all of them were written. The earlier "
            "index still answers. Run `memotree verify`, then resume the job."
        )


@dataclass(frozen=True, slots=True)
class NewModel:
    """The model of the new index.

    Attributes:
        embedder: Makes the vectors.
        points: Where the points are kept; those of a model with other vectors are elsewhere.
    """

    embedder: Embedder
    points: VectorIndex

    def is_of(self, record: IndexRecord | None) -> bool:
        """Whether an index has vectors of this model."""
        mine = (self.embedder.model, self.embedder.dimensions)
        return record is not None and (record.model, record.dimensions) == mine


async def reindex_with(store: Store, model: NewModel, report: Report) -> bool:
    """Let the store answer with an index of another embedding model. It can be repeated after a failure or a kill.

    If it is cancelled before the new index answers, what was made is kept for the next run; `Indexes.abandon` deletes
    it. A cancellation afterwards has no effect.

    Returns:
        Whether another index answers than before; false if one of this model did already.

    Raises:
        UnavailableError: A store or the model does not answer, or the new index is not complete.
    """
    async with store.indexes.making:
        made = await _begun(store, model)
        if made is not None:
            try:
                await _made_and_switched(store, made, report)
            finally:
                await store.indexes.pause()
        report("delete the earlier index", 0, 0)
        await _deleted(store)
    return made is not None


async def _made_and_switched(store: Store, made: ModelIndex, report: Report) -> None:
    flushing = asyncio.create_task(_flush_often(made), name="memotree-reindex-flush")
    try:
        await _fill(store, made, report)
    finally:
        await cancel_and_wait([flushing])
    faults.point("reindex.filled")
    try:
        await finish_past_commit_point(partial(_switch, store, made))
    except asyncio.CancelledError:
        if store.current is not made:
            raise


async def _deleted(store: Store) -> None:
    """Wait until the earlier index is deleted; if this is cancelled, it is deleted all the same."""
    deleted = asyncio.Event()

    async def delete() -> None:
        try:
            await retry_until_done("earlier indexes are left", store.indexes.delete_retired)
        finally:
            deleted.set()

    store.background.start(delete())
    with suppress(asyncio.CancelledError):  # the new index answers, so the work is done
        await deleted.wait()


async def _begun(store: Store, model: NewModel) -> ModelIndex | None:
    """Return the index to be made, begun now or earlier; ``None`` if one of this model answers."""
    found = await _read(store)
    if model.is_of(found.current):
        if store.current.number != found.current.number:  # the answer to the switch was lost
            await store.indexes.answer_with(_opened(store, model, found.current.number))
        await store.indexes.drop_next()
        return None
    if found.next is not None and not model.is_of(found.next):
        await store.indexes.drop_next()
    await store.indexes.delete_retired()  # it may be of the same model, and then the points are in the same place
    await model.points.prepare()
    found = await _read(store)
    if found.next is not None:
        made = _opened(store, model, found.next.number)
        store.indexes.make(made)
        await made.indexer.forget_applied()  # the engine may have lost what it had not flushed
        return made
    for workspace_id in await _workspaces(store):  # points of an earlier use of the model, out of date by now
        await model.points.delete(workspace_id)
    async with store.database.transaction() as conn:
        begun = (await indexes.read_begun(conn)).with_next(model.embedder.model, model.embedder.dimensions)
        await indexes.write(conn, begun)
    made = _opened(store, model, begun.last_number)
    store.indexes.make(made)
    faults.point("reindex.begun")
    return made


async def _read(store: Store) -> IndexRecords:
    async with store.database.connection() as conn:
        return await indexes.read_begun(conn)


async def _workspaces(store: Store) -> list[str]:
    async with store.database.connection() as conn:
        return [each.workspace_id for each in await registry.list_workspaces(conn)]


def _opened(store: Store, model: NewModel, number: int) -> ModelIndex:
    return ModelIndex(store.database, model.points, model.embedder, store.entries, number)


async def _fill(store: Store, made: ModelIndex, report: Report) -> None:
    """Give the second index all that it should have, except for a few versions that were written just now."""
    for number in range(_ROUNDS):
        lacking = await _lacking(store, made, is_first=number == 0)
        waiting = await made.indexer.waiting()
        if number and not lacking and waiting < _FEW:
            return
        for workspace_id in lacking:
            await _enqueue(store, made, workspace_id)
        total, done = await made.indexer.waiting(), 0
        for workspace_id in sorted(await made.indexer.behind()):
            tell = partial(_tell, report, done, total)
            tell(0)
            done += await made.indexer.drain(workspace_id, tell)
            await _delete_surplus(store, made, workspace_id)
            faults.point("reindex.workspace-filled")
        await made.indexer.flush()
    if lacking := await _lacking(store, made, is_first=False):
        raise ReindexUnfinishedError(len(lacking))


async def _flush_often(made: ModelIndex) -> None:
    """Flush again and again, so that a kill takes back little of what was made."""
    while True:
        await asyncio.sleep(_FLUSH_SECONDS)
        try:
            await made.indexer.flush()
        except UnavailableError:  # whoever writes to it meets the same, and tells it
            continue
        faults.point("reindex.flushed")


def _tell(report: Report, before: int, total: int, more: int) -> None:
    report("index", min(before + more, total), total)


async def _lacking(store: Store, made: ModelIndex, *, is_first: bool) -> list[str]:
    """The workspaces of which the second index lacks something that is not in its outbox.

    After the first round, those are left out of which the other index lacks something, too: their texts are lost.
    """
    found = [each for each in await _workspaces(store) if not await made.agrees(each)]
    return found if is_first else [each for each in found if await store.current.agrees(each)]


async def _enqueue(store: Store, made: ModelIndex, workspace_id: str) -> None:
    """Put all versions of a workspace into the outbox, while no commit adds some."""
    async with store.locks.workspaces.of(workspace_id), store.database.transaction() as conn:
        with suppress(WorkspaceNotFoundError):  # it was deleted meanwhile
            await registry.lock_workspace(conn, workspace_id)
            await made.indexer.enqueue_all(conn, workspace_id)


async def _delete_surplus(store: Store, made: ModelIndex, workspace_id: str) -> None:
    """Delete points on lines that were removed meanwhile; no line can be opened while this looks."""
    async with store.locks.workspaces.of(workspace_id), store.database.transaction() as conn:
        with suppress(WorkspaceNotFoundError):
            await registry.lock_workspace(conn, workspace_id)
            await made.points.delete(workspace_id, keep_lines=await projector.line_ids(conn, workspace_id))


async def _switch(store: Store, made: ModelIndex, commit_point: CommitPoint) -> None:
    """Let the second index answer: from the end of one transaction on, also after a kill."""
    faults.point("reindex.switching")
    async with store.database.transaction() as conn:
        found = await indexes.read_begun(conn)
        # The earlier one is still told of everything, since searches that have begun use it.
        await indexes.write(conn, found.switched(), also_fed=[found.current])
        commit_point.reached = True
    faults.point("reindex.switched")
    await store.indexes.answer_with(made)
