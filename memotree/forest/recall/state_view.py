"""One state as recall sees it: its archives, and which snapshots of them were read."""

from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from memotree_storage.errors import UnavailableError
from memotree_storage.postgres import sessions
from memotree_storage.postgres.archive_trees import Changes
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import ArchiveVersion
from memotree_storage.postgres.superseding import Superseding
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.recall.superseded import Superseded, superseded


class SessionMovedError(UnavailableError):
    """The session changed while its trees were read, in every attempt."""

    reason = "SESSION_MOVED"

    def __init__(self) -> None:
        super().__init__("The session was changed while its trees were read. Send the same call again.")


@dataclass
class StateView:
    """One state: its archives, and the cache keys of those archive snapshots that were read.

    Attributes:
        key: The key of the view in the cache.
        generation: The generation of the rows that it was read from (`Store.generations`).
        state: The state; for a session, with its base commit at that moment.
        digest: For a session, a digest of its staged changes; another digest means another state.
        touched: For a session, the archives that its staged changes touch.
        below: For a session, the view of its base.
        archives: The archives by id.
        gone: The archives that are gone while files of alive nodes still name them, after a push.
        keys: The cache key of each archive's snapshot.
        earlier: For archives without one, a commit at which there was one, and its key.
        changes: What differs between other commits and this one, by commit, until it is used.
        counts: The estimated number of leaves of each archive; for a base only.
        superseding: The SUPERSEDES relations of the nodes of each archive that has any.
    """

    key: str
    generation: int
    state: State
    digest: str
    touched: frozenset[str]
    below: "StateView | None"
    archives: Mapping[str, ArchiveVersion]
    keys: dict[str, str] = field(default_factory=dict)
    earlier: dict[str, tuple[str, str]] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)
    counts: dict[str, int] | None = None
    superseding: Mapping[str, Sequence[Superseding]] = field(default_factory=dict)
    gone: AbstractSet[str] = frozenset()

    @property
    def archive_ids(self) -> list[str]:
        """The archives that the alive nodes name: those that there are by name, then those that are gone."""
        return [*self.archives, *sorted(self.gone)]

    @cached_property
    def superseded(self) -> Mapping[str, Superseded]:
        """The superseded nodes by id."""
        return superseded(chain.from_iterable(self.superseding.values()))

    @cached_property
    def supersedes(self) -> Mapping[str, Sequence[Superseding]]:
        """The relations of each superseding node, by its id."""
        found: dict[str, list[Superseding]] = {}
        for one in chain.from_iterable(self.superseding.values()):
            found.setdefault(one.entry_id, []).append(one)
        return found

    def name(self, archive_id: str) -> str:
        """Returns the name of an archive, or ``""`` if the state does not have it."""
        return self.archives[archive_id].name if archive_id in self.archives else ""


@asynccontextmanager
async def reading(store: Store, view: StateView) -> AsyncIterator[Connection]:
    """A connection that sees what a view says; any one for a commit, whose rows never change.

    Raises:
        SessionMovedError: If the view is that of a session, which has changed since.
    """
    if not view.digest:
        async with store.database.connection() as conn:
            yield conn
        return
    async with store.database.repeatable_read() as conn:
        await check_digest(Snapshot(conn, view.state), view.digest)
        yield conn


async def read_digest(snapshot: Snapshot) -> tuple[State, str]:
    """A session's state with its base of now, and a digest of what it has staged: "" for nothing."""
    found = await sessions.staged_digest(snapshot)
    if found is None:
        raise SessionMovedError
    return State(snapshot.state.workspace_id, found.base_commit, snapshot.state.session_id), found.digest


async def check_digest(snapshot: Snapshot, digest: str) -> None:
    """Refuse a session that has another base or other changes than before."""
    if await read_digest(snapshot) != (snapshot.state, digest):
        raise SessionMovedError
