"""Restore: what was forgotten comes back where it belongs, or the call says why it cannot."""

from dataclasses import replace
from typing import Any

import pytest
from integration.memory.conftest import Memory
from integration.pushes import differences
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Archive, Relation, new_id
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas.edits import HasChildrenError
from memotree.canvas.valid_time import SupersedingCycleError
from memotree.memory.restoring import HomeGoneError, NothingToRestoreError
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError

pytestmark = pytest.mark.requirement("USE-1")


async def test_a_forgotten_note_comes_back_with_its_id_and_all_below_it(memory: Memory) -> None:
    top = memory.world.node("Top")
    below = memory.world.node("Below", parent=top)
    lowest = memory.world.node("Lowest", parent=below)
    alive_at = await memory.world.put(top, below, lowest)
    before = await memory.world.alive(alive_at)
    with pytest.raises(HasChildrenError):
        await memory.forget(top.id)
    gone = await memory.forget(top.id, recursive=True)
    assert gone.node.title == "Top"
    assert list(gone.forgotten_ids) == [top.id, below.id, lowest.id]
    assert top.id not in await memory.world.alive(gone.commit_id)
    back = await memory.restore(top.id)
    assert list(back.restored_ids) == [top.id, below.id, lowest.id]
    assert await memory.world.alive(back.commit_id) == before
    assert await memory.subject() == "Restore: Top"
    assert f"As it was at commit {alive_at}." in memory.repository.commit_info(back.commit_id).message
    assert await differences(memory.store, memory.world.workspace) == []


@pytest.mark.requirement("USE-10")
async def test_a_forgotten_note_comes_back_by_the_title_that_it_had_last(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.", title="Budget")
    await memory.revise(node_id=made.node.id, title="Costs")
    await memory.forget(made.node.id)
    with pytest.raises(NoNodeNamedError, match="'Budget'"):
        await memory.restore("Budget")
    back = await memory.restore("Costs")
    assert back.node.id == made.node.id
    with pytest.raises(NothingToRestoreError, match="not forgotten"):
        await memory.restore("Costs")
    back = await memory.restore("Costs", revision=made.commit_id)
    assert (back.node.id, back.node.title) == (made.node.id, "Budget")


@pytest.mark.requirement("USE-10")
async def test_a_title_that_several_forgotten_notes_had_lists_them_with_their_ids(memory: Memory) -> None:
    made = [(await memory.remember(f"It is {number}.", title="Budget")).node.id for number in range(2)]
    for node_id in made:
        await memory.forget(node_id)
    with pytest.raises(AmbiguousNodeNameError) as refused:
        await memory.restore("Budget")
    assert sorted(node.entry_id for node in refused.value.nodes) == sorted(made)
    assert all(f"{node_id} (forgotten)" in refused.value.message for node_id in made)
    await memory.restore(made[0])
    assert (await memory.restore("Budget")).node.id == made[1]


async def test_a_note_is_set_back_to_a_revision_at_its_present_place(memory: Memory) -> None:
    made = await memory.remember("The budget is 40k.", title="Budget", tags=["money"])
    await memory.revise(node_id=made.node.id, text="The budget is 45k.", title="Costs")
    back = await memory.restore(made.node.id, revision=made.commit_id)
    assert (back.node.title, list(back.node.tags)) == ("Budget", ["money"])
    assert await memory.content(made.node.id) == "The budget is 40k."
    with pytest.raises(NothingToRestoreError):
        await memory.restore(made.node.id, revision=made.commit_id)
    with pytest.raises(NothingToRestoreError):
        await memory.restore(made.node.id)


async def test_what_stood_below_a_forgotten_note_asks_for_that_one_first(memory: Memory) -> None:
    top = memory.world.node("Top")
    below = memory.world.node("Below", parent=top)
    await memory.world.put(top, below)
    await memory.forget(below.id)
    await memory.forget(top.id)
    with pytest.raises(HomeGoneError, match=top.id):
        await memory.restore(below.id)
    await memory.restore(top.id)
    await memory.restore(below.id[:6])
    assert await memory.content(below.id) == below.content


async def test_a_deleted_archive_comes_back_with_the_note(memory: Memory) -> None:
    made = await memory.remember("It was here.", archive="attic")
    session = await memory.world.open()
    await memory.world.stage(session, delete=[made.node.id, made.node.archive_id])
    await memory.world.commit(session)
    back = await memory.restore(made.node.id)
    assert back.node.archive_id == made.node.archive_id
    assert any("attic" in warning for warning in back.warnings)
    assert (await memory.remember("And this.", archive="attic")).node.archive_id == made.node.archive_id


async def test_what_comes_back_below_a_node_that_has_moved_is_in_its_archive(memory: Memory) -> None:
    world = memory.world
    top = world.node("Top")
    moved = world.node("Moved", parent=top)
    below = world.node("Below", parent=moved)
    before = await world.put(top, moved, below)
    other = Archive(new_id(), "elsewhere", "", "")
    await world.put(other, replace(moved, archive_id=other.id, parent_id=None), replace(below, archive_id=other.id))
    await memory.forget(below.id)
    await memory.forget(top.id)
    back = await memory.restore(top.id, revision=before)
    assert set(back.restored_ids) == {top.id, below.id}
    state = State(world.workspace, back.commit_id)
    async with memory.store.database.connection() as conn:
        now = await tree.versions(Snapshot(conn, state), [top.id, moved.id, below.id])
    assert now[top.id].archive_id == world.archive.id
    assert (now[below.id].parent_id, now[below.id].archive_id) == (moved.id, other.id)


async def test_a_restored_note_closes_no_circle_of_notes_that_supersede_each_other(memory: Memory) -> None:
    old = await memory.remember("The server is in Berlin.")
    new = await memory.remember("The server is in Oslo.", supersedes=[old.node.id])
    world = memory.world
    entries = await _nodes(memory, old.node.id, new.node.id)
    swapped = replace(entries[old.node.id], relations=(Relation(SUPERSEDES, new.node.id, ""),))
    head = await world.put(replace(entries[new.node.id], relations=()), swapped)
    with pytest.raises(SupersedingCycleError) as refused:
        await memory.restore(new.node.id, revision=new.commit_id)
    assert refused.value.violations[0].field == "node_id"
    assert await world.head() == head


async def test_a_session_is_no_revision_to_restore_from(memory: Memory) -> None:
    note = await memory.remember("As committed.")
    session_id = await memory.world.open()
    staged = replace((await _nodes(memory, note.node.id))[note.node.id], content="Only staged.")
    await memory.world.stage(session_id, staged)
    with pytest.raises(InvalidInputError) as refused:
        await memory.restore(note.node.id, revision=session_id)
    assert refused.value.violations[0].field == "revision"


async def test_a_restored_relation_to_a_deleted_note_is_told(memory: Memory) -> None:
    target = await memory.remember("About this.")
    note = await memory.remember("A remark.", about=[target.node.id])
    await memory.forget(note.node.id)
    await memory.forget(target.node.id)
    back = await memory.restore(note.node.id)
    (warning,) = back.warnings
    assert target.node.id in warning


async def _nodes(memory: Memory, *ids: str) -> dict[str, Any]:
    state = State(memory.world.workspace, await memory.world.head())
    async with memory.store.database.connection() as conn:
        versions = await tree.versions(Snapshot(conn, state), ids)
    found = await memory.store.entries.load(memory.world.workspace, versions.values())
    return {entry.id: entry for entry in found.values()}
