"""Carrying the outbox into the index: every committed version becomes a point, every ended one is closed.

The transaction that moves rows writes the outbox, and a search first waits until nothing is pending for its workspace;
so it sees the caller's last commit without a second way to score. A row of the outbox goes only after the index has
flushed it; when the index comes back from a crash, all rows that are still there are applied again.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from memotree_storage import faults
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.errors import MemoTreeError
from memotree_storage.index import frequencies, leaf_features
from memotree_storage.index.features import FeatureMaker, FeatureSlice, Prefetcher, VersionFeatures
from memotree_storage.index.frequencies import ALL_DOCUMENTS
from memotree_storage.index.term_worker import TermMaker
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.model.tokens import in_pieces
from memotree_storage.ports import Embedder, IndexPoint, IndexWriter
from memotree_storage.postgres import outbox
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.outbox import Pending

_NAMESPACE: Final = uuid.UUID("6f1d8b52-7d43-5b8e-9c63-2f0a4e9d1c77")
_BATCH: Final = 16_000
_BATCH_TOKENS: Final = 8_000_000
"""Versions, and tokens of their contents, that one transaction applies: seconds of work."""

_SLICE: Final = 500
_SLICE_TOKENS: Final = 1_000_000
"""Versions and tokens that are in memory at once, times those made ahead."""

_STALL_SECONDS: Final = 1.0
"""How long a transaction waits for the next slice; one that takes longer is waited for outside of any."""

_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY: Final = 16.0
_GATHER_SECONDS: Final = 0.2
"""How long the background waits for more commits to index together; a search that needs them does not."""

_log = structlog.get_logger(__name__)


def point_id(workspace_id: str, entry_id: str, blob: str, commit_id: str) -> str:
    """The id of a version's point: from names that Git alone decides, so that it survives every rebuild."""
    return str(uuid.uuid5(_NAMESPACE, f"{workspace_id}/{entry_id}/{blob}/{commit_id}"))


class Indexer:
    """Applies the outbox of every workspace to the index, at once when a search waits and in the background else."""

    def __init__(self, database: Database, index: IndexWriter, embedder: Embedder, entries: EntryReader) -> None:
        self._database = database
        self._index = index
        self._remote = embedder.remote
        self._terms = TermMaker()
        self._maker = FeatureMaker(embedder, entries, self._terms)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[str] = set()
        self._turns: dict[tuple[str, bool], asyncio.Lock] = {}
        self._worded: dict[str, int] = {}
        """The last row of each workspace up to which the words of all are in the index, vectors or not."""

    def start(self) -> None:
        """Begin to work in the background."""
        self._task = asyncio.create_task(self._work(), name="memotree-indexer")

    async def stop(self) -> None:
        """Stop the work in the background; what is pending stays in the outbox."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait([task])
        await self._terms.stop()

    def notice(self, workspace_id: str) -> None:
        """Tell that a commit has put rows into the outbox of a workspace."""
        self._waiting.add(workspace_id)
        self._wake.set()

    async def current(self, workspace_id: str, *, meaning: bool = True) -> None:
        """Return when the index reflects every row of the workspace that was committed before.

        Args:
            workspace_id: The workspace.
            meaning: Whether vectors are needed. Words alone never wait for a model on another machine.

        Raises:
            IndexUnavailableError: The index does not answer.
            UnavailableError: Vectors are needed, and the embedding model does not answer.
        """
        only_words = self._remote and not meaning
        after = self._worded.get(workspace_id, 0) if only_words else 0
        async with self._database.connection() as conn:
            behind = await outbox.is_behind(conn, workspace_id, after=after)
        if behind:
            await self._drain(workspace_id, lambda _: None, only_words=only_words)

    async def drain(self, workspace_id: str, tell: Callable[[int], None] = lambda _: None) -> int:
        """Apply all pending rows of a workspace; how many they were is returned, and told in between."""
        return await self._drain(workspace_id, tell, only_words=False)

    async def _drain(self, workspace_id: str, tell: Callable[[int], None], *, only_words: bool) -> int:
        # Batch by batch in turns: who waited in PostgreSQL would wait for all batches in one statement, and time out.
        # Words have turns of their own, since somebody may wait for a model while it is another one's turn.
        turn = self._turns.setdefault((workspace_id, only_words), asyncio.Lock())
        done = 0
        while True:
            async with turn:
                applied = await self._apply(workspace_id, only_words=only_words)
            if not applied:
                return done
            faults.point("index.applied")
            done += applied
            tell(done)

    async def flush(self) -> None:
        """Let the index write everything to stable storage, then forget the outbox rows that it holds now."""
        async with self._database.connection() as conn:
            # Exactly these: a row with a lower number may be applied while the flush is under way.
            rows = await (await conn.execute("select outbox_id from mirror.outbox where applied")).fetchall()
            if not rows:
                return
            await self._index.flush()
            faults.point("index.flushed")
            await conn.execute(
                "delete from mirror.outbox where applied and outbox_id = any(%s)", ([row[0] for row in rows],)
            )

    async def forget_applied(self) -> None:
        """The index came back from a crash: apply again what it may not have kept."""
        async with self._database.transaction() as conn:
            cursor = await conn.execute("update mirror.outbox set applied = false where applied returning workspace_id")
            again = {row[0] for row in await cursor.fetchall()}
        self._worded = {}  # another one: who puts words at this moment notes them in the old one
        for workspace_id in again:
            self.notice(workspace_id)

    async def enqueue_all(self, conn: Connection, workspace_id: str) -> int:
        """Ask for every committed version of a workspace anew, and count its terms from nothing."""
        await conn.execute("delete from mirror.outbox where workspace_id = %s", (workspace_id,))
        await conn.execute("delete from mirror.term where workspace_id = %s", (workspace_id,))
        cursor = await conn.execute(
            "insert into mirror.outbox (workspace_id, version_id, ends) select l.workspace_id, v.version_id, false"
            " from mirror.version v join mirror.line l using (line_id) where l.workspace_id = %s"
            " and not v.dead and not v.is_archive order by v.version_id",
            (workspace_id,),
        )
        return cursor.rowcount

    async def pending(self, workspace_id: str) -> int:
        """Rows of a workspace that the index does not have yet."""
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select count(*) from mirror.outbox where workspace_id = %s and not applied", (workspace_id,)
            )
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def backlog(self) -> int:
        """Rows that the index has not flushed yet."""
        async with self._database.connection() as conn:
            row = await (await conn.execute("select count(*) from mirror.outbox")).fetchone()
            return int(row[0]) if row else 0

    async def _work(self) -> None:
        known, pause = False, _RETRY_SECONDS
        while True:
            try:
                if not known:
                    self._waiting |= await self._behind()
                    known = True
                await self._round()
                pause = _RETRY_SECONDS
                self._wake.clear()
                if not self._waiting:
                    await self._wake.wait()
                await asyncio.sleep(_GATHER_SECONDS)
            except MemoTreeError as error:  # such as a model that is away, or refuses our key
                _log.warning("the index waits", why=error.message, seconds=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
            except Exception:  # noqa: BLE001 - background work goes on, whatever one round met
                _log.exception("the indexer failed and tries again")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)

    async def _behind(self) -> set[str]:
        async with self._database.connection() as conn:
            cursor = await conn.execute("select distinct workspace_id from mirror.outbox")
            return {row[0] for row in await cursor.fetchall()}

    async def _round(self) -> None:
        """Drain each waiting workspace once, then flush: one that fails keeps none of the others waiting."""
        failed: Exception | None = None
        for workspace_id in sorted(self._waiting):
            self._waiting.discard(workspace_id)
            try:
                await self.drain(workspace_id)
            except Exception as error:  # noqa: BLE001 - raised again when all others had their turn
                self._waiting.add(workspace_id)
                failed = error
        await self.flush()
        await self._terms.rest()
        if failed is not None:
            raise failed

    async def _apply(self, workspace_id: str, *, only_words: bool) -> int:
        """Apply the next rows of a workspace, or put their words; how many they were.

        The texts are read and embedded before the rows are held: a model that is slow or away keeps no transaction
        open, which a rebuild, and every commit behind it, would wait for.

        With words alone nothing is closed: a point has to be closed after it was put whole, and only one of both is
        done in turns. Until then SQL tells a search that such a version has ended.
        """
        worded = self._worded
        after = worded.get(workspace_id, 0) if only_words else 0
        async with self._database.connection() as conn:
            found = await outbox.pending(conn, workspace_id, limit=_BATCH, after=after)
        rows = next(in_pieces(found, _BATCH, _BATCH_TOKENS), [])
        fresh = [row for row in rows if not row.ends]
        ids = {row.outbox_id for row in (fresh if only_words else rows)}
        ahead = Prefetcher(
            in_pieces(fresh, _SLICE, _SLICE_TOKENS),
            lambda piece: self._maker.made(workspace_id, piece, only_words=only_words),
        )
        try:
            while ids:
                first = await ahead.take()
                async with self._database.transaction() as conn:
                    # First of all, so that this and a rebuild, which takes the workspace away, wait in one order.
                    await conn.execute(
                        "select from mirror.workspace where workspace_id = %s for key share", (workspace_id,)
                    )
                    held = await outbox.held(conn, workspace_id, ids)
                    put = await self._put(conn, workspace_id, held, first, ahead)
                    ended = await self._close(workspace_id, held)
                    await outbox.note(conn, counted=put, applied=set() if only_words else put | ended)
                ids = ids - put - ended if not ahead.over else set()
        finally:
            await ahead.stop()
        if only_words and rows:
            worded[workspace_id] = rows[-1].outbox_id
        return len(rows)

    async def _put(
        self,
        conn: Connection,
        workspace_id: str,
        held: Mapping[int, Pending],
        first: FeatureSlice | None,
        ahead: Prefetcher[list[Pending], FeatureSlice],
    ) -> set[int]:
        """Put points and passages and count terms while slices come soon; the rows that are done with are returned.

        The next slices are made while the index takes one.
        """
        counts: Counter[int] = Counter()
        done: set[int] = set()
        putting = asyncio.create_task(self._index.upsert([]))  # nothing yet
        try:
            part = first
            while part is not None:
                # What a rebuild or another caller has taken care of meanwhile is not held.
                made = [(held[number], each) for number, each in part.features.items() if number in held]
                await putting
                putting = asyncio.create_task(self._index.upsert([_point(workspace_id, *pair) for pair in made]))
                await leaf_features.put(conn, {row.version_id: each.leaf for row, each in made})
                for row, each in made:
                    if not row.counted:
                        counts.update(each.terms.ids)
                        counts[ALL_DOCUMENTS] += 1
                done.update(part.ids)
                part = await ahead.take_soon(_STALL_SECONDS)
            await putting
        finally:
            await cancel_and_wait([putting])
        await frequencies.add(conn, workspace_id, counts)
        return done

    async def _close(self, workspace_id: str, held: Mapping[int, Pending]) -> set[int]:
        """Close the points of what has ended, and tell of which rows; a point that is put later has its end with it."""
        ended = [row for row in held.values() if row.ends]
        await self._index.close_versions(
            [
                (point_id(workspace_id, row.entry_id, row.blob, row.commit_id), row.to_seq)
                for row in ended
                if row.to_seq is not None
            ]
        )
        faults.point("index.put")
        return {row.outbox_id for row in ended}


def _point(workspace_id: str, row: Pending, features: VersionFeatures) -> IndexPoint:
    """The point of a version."""
    return IndexPoint(
        point_id=point_id(workspace_id, row.entry_id, row.blob, row.commit_id),
        workspace_id=workspace_id,
        node_id=row.entry_id,
        line_id=row.line_id,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        archive_id=row.archive_id,
        type=row.type,
        tags=tuple(row.tags),
        vector=features.vector,
        terms=features.terms,
    )
