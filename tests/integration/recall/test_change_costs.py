"""What a change costs the next recall, in statements: as few as say what changed, and none for what did not."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from integration.recall.talks import Forest

from memotree.forest.recall import view_cache

pytestmark = pytest.mark.requirement("FOREST-8")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Returns the statements of this test since it was called last, except for that which ends a transaction.

    The index works at the same time, and its statements are not counted.
    """
    sent: list[tuple[asyncio.Task[Any] | None, str]] = []
    real = psycopg.AsyncCursor.execute

    async def execute(self: Any, query: Any, *args: Any, **fields: Any) -> Any:
        sent.append((asyncio.current_task(), " ".join(str(query).split())))
        return await real(self, query, *args, **fields)

    def since() -> list[str]:
        found = [query for task, query in sent if task is asyncio.current_task()]
        sent.clear()
        return found

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", execute)
    return since


async def test_a_recall_after_a_commit_sends_six_statements_more(
    forest: Forest, statements: Callable[[], list[str]]
) -> None:
    await forest()
    for turn in ("The ferry sank.", "The ferry was raised."):
        await forest.world.put(replace(forest.ferry[1], content=f"Cid: {turn}"))
        statements()
        assert f"Cid: {turn}" in await forest.contents()
        changed = statements()
        await forest()
        # What changed, numbers of leaves, what is superseded, the changed nodes, their features, the shown versions.
        assert len(changed) - len(statements()) <= 6, changed
        assert not any(each.startswith("begin") for each in changed)


async def test_a_recall_after_a_staged_change_sends_eight_statements_more(
    forest: Forest, statements: Callable[[], list[str]]
) -> None:
    await forest()
    session = await forest.world.open()
    for turn in ("The ferry sank.", "The ferry was raised."):
        await forest.world.stage(session, replace(forest.ferry[1], content=f"Cid: {turn}"))
        statements()
        assert f"Cid: {turn}" in await forest.contents(revision=session)
        changed = statements()
        await forest.contents(revision=session)
        # Two transactions, each with the digest; what is staged, what it supersedes, the changed nodes, their texts.
        assert len(changed) - len(statements()) <= 8, changed


async def test_the_archive_of_a_changed_node_is_not_read_again(forest: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    real = view_cache.tree.versions

    async def versions(snapshot: Any, ids: Any) -> Any:
        asked.append(sorted(ids))
        return await real(snapshot, ids)

    monkeypatch.setattr(view_cache.tree, "versions", versions)
    await forest()
    await forest.world.put(replace(forest.ferry[1], content="Cid: The ferry sank."))
    asked.clear()
    await forest()
    assert [forest.sea.id] not in asked
    await forest.world.put(replace(forest.sea, name="The ocean"))
    asked.clear()
    await forest()
    assert [forest.sea.id] in asked
