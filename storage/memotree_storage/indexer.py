"""Carrying the outbox into the index: every committed version becomes a point, every ended one is closed.

The transaction that moves rows writes the outbox, and a search first waits until nothing is pending for its workspace;
so it sees the caller's last commit without a second way to score. A row of the outbox goes only after the index has
flushed it; when the index comes back from a crash, all rows that are still there are applied again.
"""

import asyncio
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from psycopg.rows import args_row

from memotree_storage import faults, frequencies, passages
from memotree_storage.codec import node_path
from memotree_storage.entries import EntryReader
from memotree_storage.errors import CorruptError, UnavailableError
from memotree_storage.frequencies import ALL_DOCUMENTS
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.node import Node
from memotree_storage.passages import Passage
from memotree_storage.ports import Embedder, IndexPoint, TermVector, Vector, VectorIndex
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.shield import cancel
from memotree_storage.term_worker import TermMaker
from memotree_storage.tokens import in_pieces

_NAMESPACE: Final = uuid.UUID("6f1d8b52-7d43-5b8e-9c63-2f0a4e9d1c77")
_BATCH: Final = 16_000
_BATCH_TOKENS: Final = 8_000_000
"""Versions, and tokens of their contents, that one transaction applies: seconds of work."""

_SLICE: Final = 500
_SLICE_TOKENS: Final = 1_000_000
"""Versions and tokens that are in memory at once, times those made ahead."""

_AHEAD: Final = 2
_SUMMARY_CHARS: Final = 2000
_RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.2
"""How long the background waits for more commits to index together; a search that needs them does not."""

_log = structlog.get_logger(__name__)

_PENDING: Final = """
  select o.outbox_id, o.ends, o.counted, v.entry_id, v.blob, v.archive_id, v.type, v.tags, v.tokens, c.commit_id,
         v.line_id, v.from_seq, v.to_seq, v.version_id
    from mirror.outbox o
    join mirror.version v using (version_id)
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where o.workspace_id = %(workspace)s and not o.applied
   order by o.outbox_id limit %(limit)s for update of o"""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the outbox with what the index has to know of its version."""

    outbox_id: int
    ends: bool
    counted: bool
    entry_id: str
    blob: str
    archive_id: str
    type: str
    tags: list[str]
    tokens: int
    commit_id: str
    line_id: int
    from_seq: int
    to_seq: int | None
    version_id: int

    def point_id(self, workspace_id: str) -> str:
        """The id of the version's point."""
        return point_id(workspace_id, self.entry_id, self.blob, self.commit_id)

    def point(self, workspace_id: str, vector: Vector, terms: TermVector) -> IndexPoint:
        """The version's point."""
        return IndexPoint(
            point_id=self.point_id(workspace_id),
            workspace_id=workspace_id,
            node_id=self.entry_id,
            line_id=self.line_id,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            archive_id=self.archive_id,
            type=self.type,
            tags=tuple(self.tags),
            vector=vector,
            terms=terms,
        )


_Made = tuple[_Row, IndexPoint, Passage | None]


def point_id(workspace_id: str, entry_id: str, blob: str, commit_id: str) -> str:
    """The id of a version's point: from names that Git alone decides, so that it survives every rebuild."""
    return str(uuid.uuid5(_NAMESPACE, f"{workspace_id}/{entry_id}/{blob}/{commit_id}"))


def embedded_text(node: Node) -> str:
    """What the vector of a node is made from: its title and summary."""
    return f"{node.title}\n{node.summary or node.brief or node.content[:_SUMMARY_CHARS]}"


class Indexer:
    """Applies the outbox of every workspace to the index, at once when a search waits and in the background else."""

    def __init__(self, database: Database, index: VectorIndex, embedder: Embedder, entries: EntryReader) -> None:
        self._database = database
        self._index = index
        self._embedder = embedder
        self._entries = entries
        self._terms = TermMaker()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}

    def start(self) -> None:
        """Begin to work in the background."""
        self._task = asyncio.create_task(self._work(), name="memotree-indexer")

    async def stop(self) -> None:
        """Stop the work in the background; what is pending stays in the outbox."""
        task, self._task = self._task, None
        if task is not None:
            await cancel([task])
        await self._terms.stop()

    def notice(self, workspace_id: str) -> None:
        """Tell that a commit has put rows into the outbox of a workspace."""
        self._waiting.add(workspace_id)
        self._wake.set()

    async def current(self, workspace_id: str) -> None:
        """Return when the index reflects every row of the workspace that was committed before.

        Raises:
            IndexUnavailableError: The index does not answer.
        """
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select exists (select from mirror.outbox where workspace_id = %s and not applied)", (workspace_id,)
            )
            row = await cursor.fetchone()
        if row and row[0]:
            await self.drain(workspace_id)

    async def drain(self, workspace_id: str, tell: Callable[[int], None] = lambda _: None) -> int:
        """Apply all pending rows of a workspace; how many they were is returned, and told in between."""
        # Batch by batch in turns: who waited in PostgreSQL would wait for all batches in one statement, and time out.
        turn = self._turns.setdefault(workspace_id, asyncio.Lock())
        done = 0
        while True:
            async with turn, self._database.transaction() as conn:
                # First of all, so that this and a rebuild, which takes the workspace away, wait in one order.
                await conn.execute(
                    "select from mirror.workspace where workspace_id = %s for key share", (workspace_id,)
                )
                rows = await self._pending(conn, workspace_id)
                if not rows:
                    return done
                await self._apply(conn, workspace_id, rows)
            faults.point("index.applied")
            done += len(rows)
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
            for (workspace_id,) in await cursor.fetchall():
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
        known = False
        while True:
            try:
                if not known:
                    self._waiting |= await self._behind()
                    known = True
                await self._round()
                self._wake.clear()
                if not self._waiting:
                    await self._wake.wait()
                await asyncio.sleep(_GATHER_SECONDS)
            except UnavailableError as error:
                _log.warning("the index waits", why=error.message)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - background work goes on, whatever one round met
                _log.exception("the indexer failed and tries again")
                await asyncio.sleep(_RETRY_SECONDS)

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

    @staticmethod
    async def _pending(conn: Connection, workspace_id: str) -> list[_Row]:
        async with conn.cursor(row_factory=args_row(_Row)) as cursor:
            await cursor.execute(_PENDING, {"workspace": workspace_id, "limit": _BATCH})
            rows = await cursor.fetchall()
        return next(in_pieces(rows, _BATCH, _BATCH_TOKENS), [])

    async def _apply(self, conn: Connection, workspace_id: str, rows: Sequence[_Row]) -> None:
        """Put what begins, then close what ends; the points of one slice are made while the one before is put."""
        counts = await self._put(conn, workspace_id, [row for row in rows if not row.ends])
        ended = [(row.point_id(workspace_id), row.to_seq) for row in rows if row.ends]
        await self._index.close_versions([(point, to_seq) for point, to_seq in ended if to_seq is not None])
        faults.point("index.put")
        await frequencies.add(conn, workspace_id, counts)
        await conn.execute(
            "update mirror.outbox set applied = true, counted = true where outbox_id = any(%s)",
            ([row.outbox_id for row in rows],),
        )

    async def _put(self, conn: Connection, workspace_id: str, fresh: Sequence[_Row]) -> Counter[int]:
        """Put points and passages in slices; how many points hold each term is returned, those counted before left out.

        The points of the next slices are made while the index takes one.
        """
        counts: Counter[int] = Counter()
        slices = deque(in_pieces(fresh, _SLICE, _SLICE_TOKENS))
        making: deque[asyncio.Task[list[_Made]]] = deque()
        putting = asyncio.create_task(self._index.upsert([]))  # nothing yet
        try:
            while slices or making:
                while slices and len(making) < _AHEAD:
                    making.append(asyncio.create_task(self._made(workspace_id, slices.popleft())))
                made = await making[0]
                making.popleft()
                await putting
                putting = asyncio.create_task(self._index.upsert([point for _, point, _ in made]))  # noqa: RUF006 - awaited below
                await passages.put(conn, {row.version_id: passage for row, _, passage in made})
                for row, point, _ in made:
                    if not row.counted:
                        counts.update(point.terms.ids)
                        counts[ALL_DOCUMENTS] += 1
            await putting
        finally:
            await cancel([*making, putting])
        return counts

    async def _made(self, workspace_id: str, rows: Sequence[_Row]) -> list[_Made]:
        """The points of versions; one whose text Git has lost has none, and `verify` names it."""
        read = await self._read(workspace_id, rows)
        nodes = [node for _, node in read]
        vectors, own, terms = await asyncio.gather(
            self._embedder.embed([embedded_text(node) for node in nodes]),
            passages.content_vectors(nodes, self._embedder),
            self._terms.terms_of(nodes),
        )
        return [
            (row, row.point(workspace_id, vector, term), passages.made(row.tokens, passage, content))
            for (row, _), vector, content, (term, passage) in zip(read, vectors, own, terms, strict=True)
        ]

    async def _read(self, workspace_id: str, rows: Sequence[_Row]) -> list[tuple[_Row, Node]]:
        try:
            entries = await self._entries.read(workspace_id, {row.blob: node_path(row.entry_id) for row in rows})
        except (ObjectMissingError, CorruptError) as error:
            if len(rows) > 1:
                return [pair for row in rows for pair in await self._read(workspace_id, [row])]
            _log.error("a version is not indexed", workspace=workspace_id, node=rows[0].entry_id, why=error.message)
            return []
        return [(row, node) for row in rows if isinstance(node := entries[row.blob], Node)]
