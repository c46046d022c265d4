"""What one commit of many changes computes does not keep the event loop from other calls."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from integration.pushes import push_files
from integration.worlds import World
from memotree_storage.commit import session_commit, write_path
from memotree_storage.mirror import staged_merge
from memotree_storage.model import codec
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import new_id
from memotree_storage.model.paths import entry_path, node_path
from memotree_storage.postgres import database, projector, version_rows

pytestmark = pytest.mark.requirement("STORE-9")

_MANY: Final = 300


async def test_merging_checking_encoding_and_composing_leave_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = world.nodes(_MANY)
    await world.put(*nodes)
    session_id = await world.open()
    await world.stage(session_id, *(replace(node, title=f"{node.title} again") for node in nodes))
    await world.put(*(replace(node, content="Another content.") for node in nodes))
    here, calls = threading.get_ident(), {"loop": 0, "thread": 0}

    def told(function: Callable[..., Any]) -> Callable[..., Any]:
        def telling(*args: Any, **kwargs: Any) -> Any:
            calls["loop" if threading.get_ident() == here else "thread"] += 1
            return function(*args, **kwargs)

        return telling

    monkeypatch.setattr(staged_merge, "merge_entries", told(staged_merge.merge_entries))
    monkeypatch.setattr(staged_merge, "check_node", told(staged_merge.check_node))
    monkeypatch.setattr(session_commit, "compose", told(session_commit.compose))
    monkeypatch.setattr(codec, "_read_node", told(codec._read_node))
    monkeypatch.setattr(write_path, "_entry_change", told(write_path._entry_change))
    monkeypatch.setattr(projector, "row_of", told(projector.row_of))
    await world.commit(session_id)
    assert calls["thread"] > 5 * _MANY
    assert calls["loop"] == 0


async def test_rows_of_a_long_result_are_built_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other calls run between the pieces."""
    await world.put(*world.nodes(_MANY))
    monkeypatch.setattr(database, "_FETCHED_AT_ONCE", 10)
    turns = 0
    sleep, reader = asyncio.sleep, asyncio.current_task()

    async def counted(seconds: float) -> None:
        nonlocal turns
        turns += asyncio.current_task() is reader  # work in the background fetches rows, too
        await sleep(seconds)

    monkeypatch.setattr(database.asyncio, "sleep", counted)
    assert len(await world.alive(await world.head())) == _MANY + 1
    assert turns == _MANY // 10


async def test_rows_of_a_big_commit_are_written_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of nodes, and those of files that are no entries."""
    written: list[int] = []
    in_turns = projector.in_turns
    for module in (projector, version_rows):
        monkeypatch.setattr(module, "in_turns", lambda rows: (written.append(len(rows)), in_turns(rows))[1])
    nodes = {entry_path(node): encode_entry(node) for node in world.nodes(_MANY)}
    push_files(world, nodes | {node_path(new_id()): b"no entry" for _ in range(2 * _MANY)})
    await world.store.catch_up(world.workspace)
    assert written == [_MANY, _MANY, 2 * _MANY], "versions, placements, faults"
