"""Who may call, in memory: this process is the only one that changes the tables, so only what it changes is read."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog
from memotree_storage.concurrency.cancellation import retry_until_done
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres import access
from memotree_storage.postgres.access import AccessRows, KeyRow
from memotree_storage.postgres.database import Connection, Database

from memotree.identity.access_tables import AccessTables, is_over
from memotree.identity.api_keys import digest, is_key
from memotree.identity.bearer import CERTIFICATE_PREFIX
from memotree.identity.errors import (
    CertificateRefusedError,
    KeyRefusedError,
    LastAdministratorError,
    NotAuthenticatedError,
    TokenRefusedError,
)
from memotree.request.principal import Principal

_NOTE_SECONDS: Final = 60.0
"""How often it is written down when keys were last used."""

Work = Callable[[Connection], Awaitable[Collection[str]]]
"""Changes the tables, and returns the names of the principals that it touched."""

_log = structlog.get_logger("memotree.access")


class Access:
    """The principals, their keys and their roles.

    Args:
        database: The database with the tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables = AccessTables()
        self._changing = asyncio.Lock()
        self._used: dict[str, datetime] = {}
        self._unnoted: set[str] = set()
        self._noting: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.changes = 0
        """How often it was changed who may call and what; keys that end by themselves change nothing."""
        self.deletions = 0
        """How many principals were deleted: a name may mean somebody else from then on."""

    async def open(self) -> None:
        """Read the tables, and begin to note when keys are used."""
        async with self._database.transaction() as conn:
            self._tables = AccessTables(await access.read_all(conn))
        self._noting = asyncio.create_task(self._note_often())

    async def close(self) -> None:
        """Finish the changes that have begun, and write down when keys were last used."""
        if self._noting is not None:
            self._noting.cancel()
            with suppress(asyncio.CancelledError):
                await self._noting
            await self._note()
        await asyncio.gather(*self._running, return_exceptions=True)

    def principal_of_key(self, text: str) -> Principal:
        """Whose key a text is; reads no table.

        Raises:
            KeyRefusedError: It is no key, or is valid no more.
        """
        key = self._tables.key_of_digest(digest(text)) if is_key(text) else None
        found = self._proved_by(key)
        self._used[found.key_id] = datetime.now(UTC)
        self._unnoted.add(found.key_id)
        return found

    def renewed(self, who: Principal) -> Principal:
        """The principal with the roles that it has now; its proof is looked at again.

        A call proves who makes it when it begins, and may wait for its request, for a place, or for calls before it.

        Raises:
            NotAuthenticatedError: It has not proved who it is.
            KeyRefusedError: Its key is valid no more.
            TokenRefusedError: Its token is valid no more.
            CertificateRefusedError: Its certificate is valid no more.
        """
        if not who.is_known:
            raise NotAuthenticatedError
        if who.key_id:
            return self._proved_by(self._tables.key(who.key_id))
        if who.has_ended:
            refused = CertificateRefusedError if who.name.startswith(CERTIFICATE_PREFIX) else TokenRefusedError
            raise refused("it has expired")
        found = self.acting(who.name)
        return replace(found, email=found.email or who.email, expires_at=who.expires_at)

    def _proved_by(self, key: KeyRow | None) -> Principal:
        found = None if key is None or is_over(key.expires_at) else self._tables.proved_by(key)
        if found is None:
            raise KeyRefusedError
        return found

    def find(self, name: str) -> Principal | None:
        """The principal of a name; ``None`` if there is none."""
        return self._tables.find(name)

    def acting(self, name: str) -> Principal:
        """Who does work that goes on without its call, by name.

        If there is no principal of that name, such as one that was deleted, the answer is a principal of that name
        without roles: it counts as known, so that it never acts as `LOCAL`, and may do nothing.
        """
        return self._tables.find(name) or Principal(name)

    def all_principals(self) -> Sequence[Principal]:
        """All principals, by name."""
        return sorted(self._tables, key=lambda each: each.name)

    def key(self, key_id: str) -> KeyRow | None:
        """The key of an id; ``None`` if there is none."""
        return self._tables.key(key_id)

    def has_key(self, digest: bytes) -> bool:
        """Whether there is a key with a digest, valid or not."""
        return self._tables.key_of_digest(digest) is not None

    def keys_of(self, name: str) -> Sequence[KeyRow]:
        """The keys of a principal, the oldest first; their last use may be older than it was (`last_use`)."""
        return self._tables.keys_of(name)

    def all_keys(self) -> Sequence[KeyRow]:
        """All keys, in no order; their last use may be older than it was (`last_use`)."""
        return self._tables.all_keys()

    def last_use(self, key: KeyRow) -> datetime | None:
        """When a key was last used; ``None`` if it never was."""
        return self._used.get(key.key_id, key.used_at)

    async def change(self, work: Work) -> None:
        """Change the tables, one change after the other. Operations that begin when this returns see the change.

        A change that has begun is finished, also if its call is cancelled: else the tables could have it, and memory
        not. It reads and replaces what belongs to the principals that it touched, however many others there are.

        Args:
            work: Changes the tables, and returns the names of the principals whose address, keys or roles it changed;
                what it raises takes the change back. It checks who asks for it, since that may have changed while it
                waited.

        Raises:
            LastAdministratorError: Nobody could administer the server after the change.
        """
        task = asyncio.create_task(self._change(work))
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # it was raised where the change was asked for, unless that call has left

    def forget_workspace(self, workspace_id: str) -> None:
        """Forget the roles in a workspace, which was deleted with them."""
        self._tables.forget_workspace(workspace_id)
        self.changes += 1

    async def _change(self, work: Work) -> None:
        async with self._changing:
            try:
                async with self._database.transaction() as conn:
                    names = await work(conn)
                    rows = await access.read_of(conn, names)
                    if self._tables.ends_administration(names, rows):
                        raise LastAdministratorError
            except UnavailableError:  # the commit may have happened
                again = asyncio.create_task(retry_until_done("roles may be out of date", self._read_again))
                self._running.add(again)
                again.add_done_callback(self._ended)
                raise
            self._replace(names, rows)

    async def _read_again(self) -> None:
        async with self._changing, self._database.transaction() as conn:
            rows = await access.read_all(conn)
            names = {each.name for each in self._tables} | {row.name for row in rows.principals}
            self._replace(names, rows)

    def _replace(self, names: Collection[str], rows: AccessRows) -> None:
        there = [name for name in names if self._tables.find(name) is not None]
        keys = [key.key_id for name in there for key in self._tables.keys_of(name)]
        self._tables.replace(names, rows)
        self.changes += 1
        self.deletions += sum(self._tables.find(name) is None for name in there)
        for key_id in keys:
            if self._tables.key(key_id) is None:
                self._used.pop(key_id, None)

    async def _note_often(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_SECONDS)
            await self._note()

    async def _note(self) -> None:
        noting, self._unnoted = self._unnoted, set()
        used = {key_id: self._used[key_id] for key_id in noting & self._used.keys()}
        if not used:
            return
        try:
            async with self._changing, self._database.transaction() as conn:
                await access.note_used(conn, used)
        except MemoTreeError as error:
            self._unnoted |= noting
            _log.warning("when keys were last used was not noted", why=error.message)
        except asyncio.CancelledError:  # close() notes them once more
            self._unnoted |= noting
            raise
