"""Applies the outbox to the index: every committed version becomes a point, which changes when the version ends.

The transaction that changes mirror rows also writes the outbox, and a search first waits until nothing is pending for
its workspace. So it sees the caller's last commit without a second way of scoring. A row of the outbox is deleted only
after the index has flushed it; after a crash of the index, all rows that are still there are applied again.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import psycopg
import structlog

from memotree_storage import faults
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.concurrency.threads import in_store_thread, in_store_thread_if
from memotree_storage.errors import MemoTreeError
from memotree_storage.index import frequencies, leaf_features
from memotree_storage.index.feature_worker import EncodedSlice
from memotree_storage.index.features import FeatureMaker, FeatureSlice, Prefetcher, VersionFeatures
from memotree_storage.index.frequencies import ALL_DOCUMENTS
from memotree_storage.index.points import index_point, overrides_of, point_id
from memotree_storage.index.term_counts import add_counts
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.model.tokens import in_pieces
from memotree_storage.ports import Embedder, EncodedIndexWriter, IndexWriter
from memotree_storage.postgres import outbox
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.pending import Pending

_BATCH: Final = 16_000
_BATCH_TOKENS: Final = 8_000_000
"""Versions, and tokens of their contents, that one transaction applies: seconds of work."""

_SLICE: Final = 500
_SLICE_TOKENS: Final = 1_000_000
"""Versions, and tokens of their contents, in one slice; a few slices are in memory at the same time."""

_FEW_TERMS: Final = 5000
"""More terms than these are counted in a thread, so that other calls go on meanwhile."""

_STALL_SECONDS: Final = 1.0
"""How long a transaction waits for the next slice; a slower slice is waited for outside of any transaction."""

_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY: Final = 16.0
_GATHER_SECONDS: Final = 0.2
"""How long the background work waits to index several commits together; a search does not wait for it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Rows that are applied together.

    Attributes:
        workspace_id: The workspace.
        rows: The rows as they were read.
        fresh: Those of new versions.
        ahead: Makes the features of these.
        only_words: Whether only their words are applied.
        is_last: Whether there were no more rows.
    """

    workspace_id: str
    rows: list[Pending]
    fresh: list[Pending]
    ahead: Prefetcher[list[Pending], FeatureSlice | EncodedSlice]
    only_words: bool
    is_last: bool


class Indexer:
    """Applies the outbox of every workspace to an index: immediately for a waiting search, else in the background.

    Args:
        database: The database.
        index: The index.
        embedder: Makes its vectors.
        entries: Reads the texts.
        number: The number of the index, by which its rows in the database are known.
    """

    def __init__(
        self, database: Database, index: IndexWriter, embedder: Embedder, entries: EntryReader, number: int = 1
    ) -> None:
        self.number = number
        self._database = database
        self._index = index
        self._is_slow = embedder.is_slow
        self._maker = FeatureMaker(embedder, entries, index)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[str] = set()
        self._locks: dict[tuple[str, bool], asyncio.Lock] = {}
        self._next: dict[str, _Batch] = {}
        """By workspace, the batch after the one that was applied last, whose texts are being processed already."""
        self._late: dict[str, set[asyncio.Task[None]]] = {}
        """By workspace, writes to the index that go on although their transactions have failed."""
        self._worded: dict[str, int] = {}
        """By workspace, the last outbox row up to which the words of all rows are in the index, with or without
        vectors."""

    def start(self) -> None:
        """Start the background work."""
        self._task = asyncio.create_task(self._work(), name="memotree-indexer")

    async def stop(self) -> None:
        """Stop the background work; pending rows stay in the outbox."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait([task])
        await cancel_and_wait(writing for late in self._late.values() for writing in late)
        await self._maker.stop()

    def notice(self, workspace_id: str) -> None:
        """Signal that a commit has written rows to the outbox of a workspace."""
        self._waiting.add(workspace_id)
        self._wake.set()

    async def current(self, workspace_id: str, *, meaning: bool = True) -> None:
        """Return when the index reflects every row of the workspace that was committed before this call.

        Args:
            workspace_id: The workspace.
            meaning: Whether vectors are needed. Words alone never wait for a slow model.

        Raises:
            IndexUnavailableError: The index does not answer.
            UnavailableError: Vectors are needed, and the embedding model does not answer.
        """
        async with self._database.connection() as conn:
            after = self.known_until(workspace_id, meaning=meaning)
            behind = await outbox.is_behind(conn, self.number, workspace_id, after=after)
        if behind:
            await self._drain(workspace_id, lambda _: None, only_words=self._is_slow and not meaning)

    def known_until(self, workspace_id: str, *, meaning: bool) -> int:
        """Return the outbox row up to which the index has what a search needs, although rows may not count as applied.

        That is 0 unless the search needs words alone, and the words were written while a slow model was away.
        """
        return self._worded.get(workspace_id, 0) if self._is_slow and not meaning else 0

    async def drain(self, workspace_id: str, tell: Callable[[int], None] = lambda _: None) -> int:
        """Apply all pending rows of a workspace; return their number. ``tell`` gets the progress."""
        return await self._drain(workspace_id, tell, only_words=False)

    async def _drain(self, workspace_id: str, tell: Callable[[int], None], *, only_words: bool) -> int:
        # The lock is taken per batch: a caller that waited in PostgreSQL instead would wait for all batches in one
        # statement, and time out. Words have their own lock, since another holder may be waiting for a model.
        lock = self._locks.setdefault((workspace_id, only_words), asyncio.Lock())
        done = 0
        try:
            while True:
                async with lock:
                    applied = await self._apply_next(workspace_id, only_words=only_words)
                if not applied:
                    return done
                faults.point("index.applied")
                done += applied
                tell(done)
        except BaseException:
            if not only_words and (following := self._next.pop(workspace_id, None)) is not None:
                await following.ahead.stop()
            raise

    async def _apply_next(self, workspace_id: str, *, only_words: bool) -> int:
        """Apply the next batch of a workspace, or only its words; return the number of its rows."""
        worded = self._worded
        await self.settle(workspace_id)
        batch = None if only_words else self._next.pop(workspace_id, None)
        if batch is None:
            async with self._database.connection() as conn:
                after = worded.get(workspace_id, 0) if only_words else 0
                batch = await self._begin(conn, workspace_id, only_words=only_words, after=after)
        try:
            await self._apply(batch)
        finally:
            await batch.ahead.stop()
        if only_words and batch.rows:
            worded[workspace_id] = batch.rows[-1].outbox_id
        return len(batch.rows)

    async def flush(self) -> None:
        """Let the index flush everything to stable storage, then delete the outbox rows that it had applied."""
        async with self._database.connection() as conn:
            # Exactly these rows: a row with a lower number may be applied while the flush is running.
            cursor = await conn.execute(
                "select outbox_id from mirror.outbox where applied and index_number = %s", (self.number,)
            )
            rows = await cursor.fetchall()
            if not rows:
                return
            await self._index.flush()
            faults.point("index.flushed")
            await outbox.delete(conn, [row[0] for row in rows])

    async def forget_applied(self) -> None:
        """Apply again, after a crash of the index, what it may have lost."""
        async with self._database.transaction() as conn:
            cursor = await conn.execute(
                "update mirror.outbox set applied = false where applied and index_number = %s returning workspace_id",
                (self.number,),
            )
            again = {row[0] for row in await cursor.fetchall()}
        self._worded = {}  # a new dictionary: a call that is writing words right now updates the old one
        for workspace_id in again:
            self.notice(workspace_id)

    async def enqueue_all(self, conn: Connection, workspace_id: str) -> int:
        """Put all committed versions of a workspace into the outbox again; the index that answers counts them anew."""
        await outbox.lock(conn, workspace_id)
        return await outbox.put_all(conn, self.number, workspace_id)

    async def make_again(self, workspace_id: str, version_ids: Collection[int]) -> None:
        """Have the points and leaf features of versions made again, since a reader has missed some; it never fails."""
        try:
            async with self._database.transaction() as conn:
                await outbox.put_again(conn, workspace_id, version_ids)
        except (MemoTreeError, psycopg.Error):
            _log.exception("what the index lacks could not be noted", workspace=workspace_id, versions=len(version_ids))
        else:
            _log.warning("leaf features are made again", workspace=workspace_id, versions=len(version_ids))
            self.notice(workspace_id)

    async def pending(self, workspace_id: str) -> int:
        """Return the number of rows of a workspace that the index does not have yet."""
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select count(*) from mirror.outbox where workspace_id = %s and index_number = %s and not applied",
                (workspace_id, self.number),
            )
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def waiting(self) -> int:
        """Return the number of rows of all workspaces that the index does not have yet."""
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select count(*) from mirror.outbox where index_number = %s and not applied", (self.number,)
            )
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def backlog(self) -> int:
        """Return the number of rows that the index has not flushed yet."""
        async with self._database.connection() as conn:
            cursor = await conn.execute("select count(*) from mirror.outbox where index_number = %s", (self.number,))
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def _work(self) -> None:
        known, pause = False, _RETRY_SECONDS
        while True:
            try:
                if not known:
                    self._waiting |= await self.behind()
                    known = True
                await self._round()
                pause = _RETRY_SECONDS
                self._wake.clear()
                if not self._waiting:
                    await self._wake.wait()
                await asyncio.sleep(_GATHER_SECONDS)
            except MemoTreeError as error:  # for example, a model that is away or refuses our key
                _log.warning("indexing paused", why=error.message, seconds=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
            except Exception:  # noqa: BLE001 - background work continues after any failure
                _log.exception("indexing failed; trying again")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)

    async def behind(self) -> set[str]:
        """Return the workspaces of which the index lacks something, or has not flushed it."""
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select distinct workspace_id from mirror.outbox where index_number = %s", (self.number,)
            )
            return {row[0] for row in await cursor.fetchall()}

    async def _round(self) -> None:
        """Drain each waiting workspace once, then flush; one that fails does not hold up the others."""
        failed: Exception | None = None
        for workspace_id in sorted(self._waiting):
            self._waiting.discard(workspace_id)
            try:
                await self.drain(workspace_id)
            except Exception as error:  # noqa: BLE001 - raised again after all others were drained
                self._waiting.add(workspace_id)
                failed = error
        await self.flush()
        await self._maker.rest()
        if failed is not None:
            raise failed

    async def _begin(self, conn: Connection, workspace_id: str, *, only_words: bool, after: int) -> "_Batch":
        """Read the next rows of a workspace after an id; the texts of the first ones are processed from then on."""
        found = await outbox.pending(conn, self.number, workspace_id, limit=_BATCH, after=after)
        rows = next(in_pieces(found, _BATCH, _BATCH_TOKENS), [])
        fresh = [row for row in rows if not row.changed]

        async def make(piece: list[Pending]) -> FeatureSlice | EncodedSlice:
            if only_words:
                return await self._maker.made(workspace_id, piece, only_words=True)
            return await self._maker.encoded(self.number, workspace_id, piece, among=len(fresh))

        ahead = Prefetcher(in_pieces(fresh, _SLICE, _SLICE_TOKENS), make, self._maker.ahead(len(fresh)))
        ahead.begin()
        return _Batch(workspace_id, rows, fresh, ahead, only_words, is_last=len(rows) == len(found) < _BATCH)

    async def _apply(self, batch: "_Batch") -> None:
        """Apply the rows of a batch, or only their words.

        Texts are read and embedded before the rows are locked. Otherwise a model that is slow or away would keep a
        transaction open, and a rebuild would wait for it, and every commit would wait behind the rebuild.

        With words alone, no point is changed: a point must be changed after it was written completely, and only one of
        the two locks protects that. Until then, SQL filters out a version that has ended or is overridden.
        """
        left = deque(row.outbox_id for row in (batch.fresh if batch.only_words else batch.rows))
        while left:
            first = await batch.ahead.take()
            async with self._database.transaction() as conn:
                # First, so that this transaction and a rebuild, which deletes the workspace row, lock in one order.
                await conn.execute(
                    "select from mirror.workspace where workspace_id = %s for key share", (batch.workspace_id,)
                )
                put, changed = await self._put(conn, batch, left, first)
                await self._change(batch.workspace_id, changed)
                done = {row.outbox_id for row in changed} | put
                await outbox.note(conn, counted=put, applied=set() if batch.only_words else done)

    async def _put(
        self, conn: Connection, batch: "_Batch", left: deque[int], first: FeatureSlice | EncodedSlice | None
    ) -> tuple[set[int], list[Pending]]:
        """Write points and leaf features and count terms while slices are ready soon.

        The next slices are prepared while the index processes one, and those of the next batch while the rest of this
        one is written. Rows are locked slice by slice, in the order of their ids, and leave ``left`` then: a slice that
        is late costs no more than that.

        Returns:
            The rows of versions that are done, and the locked rows of versions that have changed.
        """
        counts: Counter[int] = Counter()
        done: set[int] = set()
        changed: list[Pending] = []
        putting = asyncio.create_task(self._index.upsert([]))  # nothing to wait for yet
        try:
            part = first
            while part is not None:
                held = await self._hold(conn, batch.workspace_id, left, part.ids[-1])
                changed += (row for row in held.values() if row.changed)
                # Not the others: one may have passed to another index since, which must count it.
                done.update(number for number in part.ids if number in held)
                if isinstance(part, EncodedSlice) and not part.fits(held):
                    # A version has ended in the meantime, or a rebuild or another caller has processed it.
                    rows = [held[number] for number in part.ids if number in held]
                    part = await self._maker.made(batch.workspace_id, rows)
                await asyncio.shield(putting)
                putting = asyncio.create_task(self._put_points(batch.workspace_id, held, part))
                await self._put_features(conn, held, part, counts)
                part = await batch.ahead.take_soon(_STALL_SECONDS)
            if batch.ahead.over:
                held = await self._hold(conn, batch.workspace_id, left, None)
                changed += (row for row in held.values() if row.changed)
                await self._begin_following(conn, batch)
            await asyncio.shield(putting)
        except BaseException:
            self._leave(batch.workspace_id, putting)
            raise
        await frequencies.add(conn, batch.workspace_id, counts)
        return done, changed

    def _leave(self, workspace_id: str, putting: asyncio.Task[None]) -> None:
        """Let a write to the index go on whose transaction has failed; what follows waits for it in `settle`.

        If it were cancelled, the index could carry it out all the same, and after a later request.
        """
        late = self._late.setdefault(workspace_id, set())
        late.add(putting)

        def end(ended: asyncio.Task[None]) -> None:
            late.discard(ended)
            if not late and self._late.get(workspace_id) is late:
                del self._late[workspace_id]
            if not ended.cancelled() and (error := ended.exception()) is not None:
                _log.debug("a write to the index failed as its transaction did", why=repr(error))

        putting.add_done_callback(end)

    async def settle(self, workspace_id: str) -> None:
        """Wait for the writes of a workspace that go on although their transactions have failed."""
        if late := self._late.get(workspace_id):
            await asyncio.wait(late)

    async def _hold(
        self, conn: Connection, workspace_id: str, left: deque[int], until: int | None
    ) -> dict[int, Pending]:
        """Lock the rows up to an id, or all that are left; return those that are not applied yet, by id."""
        ids = []
        while left and (until is None or left[0] <= until):
            ids.append(left.popleft())
        return await outbox.held(conn, self.number, workspace_id, ids) if ids else {}

    async def _begin_following(self, conn: Connection, batch: "_Batch") -> None:
        if batch.is_last or batch.only_words:
            return
        following = await self._begin(conn, batch.workspace_id, only_words=False, after=batch.rows[-1].outbox_id)
        if following.rows:  # if there are none, rows may still be committed that have a lower id
            self._next[batch.workspace_id] = following

    async def _put_points(
        self, workspace_id: str, held: Mapping[int, Pending], part: FeatureSlice | EncodedSlice
    ) -> None:
        if isinstance(part, EncodedSlice):
            assert isinstance(self._index, EncodedIndexWriter)  # noqa: S101 - or there would be no such slice
            await self._index.upsert_encoded(part.encoded.points)
            return
        await self._index.upsert(
            [index_point(workspace_id, row, features.terms, features.vector) for row, features in part.held(held)]
        )

    async def _put_features(
        self, conn: Connection, held: Mapping[int, Pending], part: FeatureSlice | EncodedSlice, counts: Counter[int]
    ) -> None:
        """Write leaf features, and add the terms of versions that are not counted yet."""
        if isinstance(part, EncodedSlice):
            encoded = part.encoded
            await leaf_features.put_rows(conn, self.number, encoded.leaf_versions, encoded.leaf_rows)
            await in_store_thread(add_counts, counts, encoded.terms, encoded.documents)
            counts[ALL_DOCUMENTS] += encoded.counted
            return
        made = part.held(held)
        await leaf_features.put(conn, self.number, {row.version_id: features.leaf for row, features in made})
        fresh = [features for row, features in made if not row.counted]
        is_much = sum(len(features.terms.ids) for features in fresh) > _FEW_TERMS
        await in_store_thread_if(is_much, _count, counts, fresh)

    async def _change(self, workspace_id: str, rows: Iterable[Pending]) -> None:
        """Change the points of versions that ended or were overridden.

        A point that is written later already has its end and its overrides.
        """
        changed = {point_id(workspace_id, row.entry_id, row.blob, row.commit_id): row for row in rows}
        await self._index.close_versions(
            [(point, row.to_seq) for point, row in changed.items() if row.to_seq is not None]
        )
        await self._index.override_versions(
            [(point, overrides_of(row)) for point, row in changed.items() if row.overrides]
        )
        faults.point("index.put")


def _count(counts: Counter[int], versions: Iterable[VersionFeatures]) -> None:
    """Add the terms of versions to the counts."""
    for features in versions:
        counts.update(features.terms.ids)
        counts[ALL_DOCUMENTS] += 1
