"""The conversations of queries: the turns before a question, and the question itself once it is answered.

What tools returned is not kept: the answer names the nodes that it is from. A conversation is found by the name of its
principal, so nobody reads that of another.
"""

from datetime import datetime
from typing import Final

from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.postgres import conversations, registry
from memotree_storage.postgres.conversations import ConversationKey, ConversationRow, ConversationTurn
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.principal import principal

MOST_NAME: Final = 200
_MOST_KEPT: Final = 16_000
"""The most characters of an answer that are kept."""


class ConversationNotFoundError(NotFoundError):
    """Whoever calls has no conversation of this name in the workspace."""

    reason = "CONVERSATION_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"You have no conversation {name[:MOST_NAME]!r} in this workspace; list those that you have.")


class Conversation:
    """A conversation of whoever asks; one without a name has no turns, and keeps none.

    Args:
        store: Has the turns.
        workspace: The workspace, by name or id.
        name: The name that the caller gave it.

    Raises:
        InvalidInputError: The name is too long, or has a character that is no text.
    """

    def __init__(self, store: Store, workspace: str, name: str) -> None:
        if len(name) > MOST_NAME or "\x00" in name:
            raise InvalidInputError.at("conversation_id", f"must be a text of at most {MOST_NAME} characters.")
        self._store = store
        self._workspace = workspace
        self._name = name
        self._key: ConversationKey | None = None
        self._since: datetime | None = None
        self._continued: int | None = None

    async def turns(self) -> list[ConversationTurn]:
        """The turns so far, in order."""
        if not self._name:
            return []
        async with self._store.database.connection() as conn:
            place = await lookup.read_revision(self._store, conn, self._workspace, "")
            self._key = ConversationKey(place.workspace.workspace_id, principal().owner, self._name)
            self._since = await conversations.moment(conn)
            self._continued = await conversations.row_key(conn, self._key)
            return await conversations.turns(conn, self._key)

    async def keep(self, question: str, answer: str) -> bool:
        """Keep a question with its answer, after `turns`; return whether nothing speaks against it.

        What speaks against it: since then something was erased, or the conversation, the workspace or whoever asks was
        deleted.
        """
        if self._key is None or self._since is None or not answer:
            return True
        turn = ConversationTurn(question, answer[:_MOST_KEPT].replace("\x00", "").encode("utf-8", "replace").decode())
        async with self._store.database.transaction() as conn:
            if not await conversations.hold_owners(conn, self._key, self._since):
                return False
            if await conversations.erased_since(conn, self._key.workspace_id, self._since):
                return False
            kept = await conversations.row_key(conn, self._key, hold=True)
            if self._continued not in {None, kept}:
                return False
            await conversations.add_turn(conn, self._key, turn)
            return True


class KeptConversations:
    """The conversations of whoever calls in a workspace.

    Args:
        store: Has the turns.
        workspace: The workspace, by name or id.
    """

    def __init__(self, store: Store, workspace: str) -> None:
        self._store = store
        self._workspace = workspace

    async def all(self) -> list[ConversationRow]:
        """All of them, the one that was used last first."""
        async with self._store.database.connection() as conn:
            found = await registry.find_workspace(conn, self._workspace)
            return await conversations.of_principal(conn, found.workspace_id, principal().owner)

    async def one(self, name: str) -> tuple[ConversationRow, list[ConversationTurn]]:
        """One of them, with its turns.

        Raises:
            ConversationNotFoundError: There is none of this name.
        """
        async with self._store.database.transaction() as conn:
            key = await self._key(conn, name)
            rows = await conversations.of_principal(conn, key.workspace_id, key.principal, name)
            if not rows:
                raise ConversationNotFoundError(name)
            return rows[0], await conversations.turns(conn, key)

    async def delete(self, name: str) -> None:
        """Delete one of them.

        Raises:
            ConversationNotFoundError: There is none of this name.
        """
        async with self._store.database.transaction() as conn:
            if not await conversations.delete(conn, await self._key(conn, name)):
                raise ConversationNotFoundError(name)

    async def _key(self, conn: Connection, name: str) -> ConversationKey:
        if "\x00" in name:
            raise ConversationNotFoundError(name)
        found = await registry.find_workspace(conn, self._workspace)
        return ConversationKey(found.workspace_id, principal().owner, name)
