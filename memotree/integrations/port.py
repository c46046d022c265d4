"""The few operations of MemoTree that the stores need: read, list, recall, and change in one commit.

Over the blocking client the coroutines never suspend, so that `memotree.client.blocking.run` finishes them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final

from memotree.client import (
    AsyncWorkspace,
    Change,
    FailedPreconditionError,
    Level,
    MemoTreeClientError,
    Node,
    NotFoundError,
    RecalledNode,
    RecallStrategy,
    Workspace,
)
from memotree.client.blocking import coroutines_of

_MOST_CHANGES: Final = 1000
_LIFETIME: Final = timedelta(hours=1)
"""How long a session stays open if its process ends before its commit."""


def is_absent(error: NotFoundError) -> bool:
    """Whether a node or the archive is missing, and not the workspace, which nobody creates by the way."""
    return error.reason in {"NODE_NOT_FOUND", "ARCHIVE_NOT_FOUND"}


class ArchivePort:
    """One archive at the head of the workspace's default branch.

    Args:
        workspace: The workspace, of either client.
        archive: The name of the archive; the first change creates it.
        agent: The author of the commits.
    """

    def __init__(self, workspace: Workspace | AsyncWorkspace, archive: str, agent: str) -> None:
        if not isinstance(workspace, (Workspace, AsyncWorkspace)):
            given = type(workspace).__name__
            raise TypeError(
                f"A workspace is needed, such as client.workspace('main'), not {workspace!r:.60} ({given})."
            )
        self._is_blocking = isinstance(workspace, Workspace)
        self._workspace = coroutines_of(workspace) if isinstance(workspace, Workspace) else workspace
        self._archive = archive
        self._agent = agent

    async def nodes(self, node_ids: Sequence[str]) -> list[Node | None]:
        """Returns the nodes with their content, ``None`` for each one that is not alive; a call for each."""
        if self._is_blocking:
            return [await self._node(node_id) for node_id in node_ids]
        return await asyncio.gather(*map(self._node, node_ids))

    async def _node(self, node_id: str) -> Node | None:
        try:
            return await self._workspace.node(node_id)
        except NotFoundError as error:
            if not is_absent(error):
                raise
            return None

    async def was_used(self, node_id: str) -> bool:
        """Whether a node of this id is alive or was deleted; a new node can't have its id."""
        try:
            async for _ in self._workspace.revisions(node_id):
                return True
        except NotFoundError as error:
            if not is_absent(error):
                raise
        return False

    async def children(self, parent_id: str, *, with_content: bool, page_size: int = 0) -> AsyncIterator[Node]:
        """Yields the nodes directly below a node, or the roots for ``""``, in their order; none if it is not alive."""
        try:
            async for node in self._workspace.children(
                parent_id or None,
                archive=None if parent_id else self._archive,
                level=Level.DETAIL if with_content else Level.TITLE,
                page_size=page_size,
            ):
                yield node
        except NotFoundError as error:
            if not is_absent(error):
                raise

    async def recall(self, query: str, *, under: str, node_type: str, limit: int) -> tuple[RecalledNode, ...]:
        """Returns the best nodes of a type below a node (anywhere for ``""``) by words and meaning, in one call.

        Raises:
            NotFoundError: If ``under`` is not alive, or the archive does not exist.
        """
        answer = await self._workspace.recall(
            query,
            strategy=RecallStrategy.COLLAPSED,
            top_k=limit,
            archives=[self._archive],
            node_types=[node_type],
            under=under or None,
        )
        return answer.nodes

    async def change(self, changes: Sequence[Change], message: str) -> bool:
        """Makes one commit of all changes or of none, in a session that is closed at the end.

        Returns:
            Whether there was anything to commit.

        Raises:
            NotFoundError: If a change needs a node that is not alive.
            AlreadyExistsError: If a change creates a node whose id was used.
            AbortedError: If another writer changed the same nodes meanwhile.
        """
        session = await self._workspace.session(agent=self._agent, ttl=_LIFETIME)
        try:
            for start in range(0, len(changes), _MOST_CHANGES):
                batch = changes[start : start + _MOST_CHANGES]
                try:
                    await session.apply(batch)
                except NotFoundError as error:
                    if error.reason != "ARCHIVE_NOT_FOUND":
                        raise
                    await session.create_archive(self._archive, model_id=self._agent)
                    await session.apply(batch)
            await session.commit(message)
        except FailedPreconditionError as error:
            if error.reason != "NOTHING_TO_COMMIT":  # everything is as the changes want it
                raise
            return False
        else:
            return True
        finally:
            with contextlib.suppress(MemoTreeClientError):  # it expires by itself
                await session.discard()
