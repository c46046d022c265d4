"""The differences between two states."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from campaigns import budget, dice
from hypothesis import given
from hypothesis import strategies as st
from integration.histories import CREATED, DELETED, UPDATED, branch, diff, kinds, log
from integration.pushes import push_files
from integration.worlds import World
from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Relation, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.postgres import registry

from memotree.history import HistoryOperations
from memotree.history import diff as diffs
from memotree.history.text_diff import unified
from memotree.request.lookup import NodeNotFoundError
from memotree.v1 import history_service_pb2 as pb


@pytest.mark.requirement("GIT-5")
async def test_a_diff_lists_each_changed_field(world: World, history: HistoryOperations) -> None:
    other = world.node("Other")
    text = "\n".join(f"Line {number}" for number in range(40))
    node = world.node("Title", content=text, summary="Old.", attributes={"a": "1"}, tags=("one",))
    first = await world.put(node, other)
    changed = replace(
        node,
        title="Headline",
        content=text.replace("Line 20", "Line twenty"),
        summary="New.",
        attributes={"a": "2", "b": "3"},
        tags=("one", "two"),
        relations=(Relation("EXTENDS", other.id, "why"),),
        parent_id=other.id,
    )
    await world.put(changed)
    (change,) = await diff(history, world, old_revision=first, include_fields=True)
    fields = {field.field: field for field in change.fields}
    assert list(fields) == ["title", "summary", "tags", "attributes", "relations", "content", "parent"]
    assert (fields["title"].old_value, fields["title"].new_value, fields["title"].diff) == ("Title", "Headline", "")
    assert fields["content"].diff == (
        "@@ -18,7 +18,7 @@\n Line 17\n Line 18\n Line 19\n-Line 20\n+Line twenty\n Line 21\n Line 22\n Line 23\n"
    )
    assert (fields["content"].old_value, fields["content"].new_value) == ("", "")
    assert (fields["summary"].old_value, fields["summary"].new_value) == ("Old.", "New.")
    assert "-Old." in fields["summary"].diff
    assert (fields["tags"].old_value, fields["tags"].new_value) == ("one", "one, two")
    assert fields["attributes"].new_value == "a: 2\nb: 3"
    assert fields["relations"].new_value == f"EXTENDS {other.id} why"
    assert (fields["parent"].old_value, fields["parent"].new_value) == (
        f"(root of archive {world.archive.id})",
        other.id,
    )
    assert change.summary == (
        f"Changed title, summary, tags, attributes, relations and content. Moved below {other.id}."
    )
    (change,) = await diff(history, world, old_revision=first, include_fields=True, by_words=True)
    by_words = {field.field: field for field in change.fields}
    kept, removed, added, omitted = list(pb.TextPartKind.values())[1:]
    parts = [(part.kind, part.text) for part in by_words["content"].parts]
    assert [kind for kind, _ in parts] == [omitted, kept, removed, added, kept, omitted]
    assert parts[2:4] == [(removed, "20"), (added, "twenty")]
    assert [part.kind for part in by_words["title"].parts] == [removed, added]
    assert (by_words["summary"].old_value, by_words["summary"].new_value) == ("Old.", "New.")
    assert (list(by_words["tags"].parts), by_words["tags"].new_value) == ([], "one, two")
    assert not any(field.diff for field in change.fields)


async def test_by_default_a_diff_compares_with_the_state_that_the_newer_one_is_based_on(
    world: World, history: HistoryOperations
) -> None:
    first, second, third = world.nodes(3)
    await world.put(first)
    tagged = await world.put(second, tag="v1")
    session = await world.open()
    await world.stage(session, third, delete=[first])
    assert kinds(await diff(history, world)) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision="v1")) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision=tagged)) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision=session)) == {third.id: CREATED, first.id: DELETED}
    root = (await log(history, world))[-1]
    assert await diff(history, world, new_revision=root) == []


async def test_a_diff_between_sessions_has_the_staged_changes_of_both(world: World, history: HistoryOperations) -> None:
    node, other = world.nodes(2)
    await world.put(node, other)
    one, two = await world.open(), await world.open()
    await world.stage(one, replace(node, content="One."))
    await world.stage(two, replace(node, content="Two."), delete=[other])
    (change, _) = await diff(history, world, old_revision=one, new_revision=two, include_fields=True, page_size=1)
    changes = {each.node_id: each for each in await diff(history, world, old_revision=one, new_revision=two)}
    assert kinds(list(changes.values())) == {node.id: UPDATED, other.id: DELETED}
    assert change.node_id == min(node.id, other.id)
    (texts,) = await diff(history, world, old_revision=one, new_revision=two, include_fields=True, node_id=node.id[:9])
    assert texts.fields[0].diff.splitlines()[1::2] == ["-One.", "+Two."]
    assert await diff(history, world, old_revision=one, new_revision=one) == []


async def test_equal_states_do_not_differ(world: World, history: HistoryOperations) -> None:
    node = world.node()
    first = await world.put(node)
    await world.put(replace(node, title="Else"))
    (change,) = await diff(history, world)
    assert (change.title, change.summary, len(change.fields)) == ("Else", "Changed title.", 0), "without fields"
    await world.put(node)
    assert await diff(history, world, old_revision=first, new_revision="main") == []
    request = pb.DiffRevisionsRequest(workspace=world.workspace, old_revision="main", new_revision="main")
    assert (await history.diff_revisions(request)).summary == "Nothing differs."


async def test_one_sentence_counts_all_differences_on_every_page(world: World, history: HistoryOperations) -> None:
    nodes = world.nodes(4)
    first = await world.put(*nodes)
    await world.put(replace(nodes[0], title="Else"), world.node(), delete=nodes[1:3])
    request = pb.DiffRevisionsRequest(workspace=world.workspace, old_revision=first, page_size=3)
    response = await history.diff_revisions(request)
    assert response.summary == "4 entries differ: 1 created, 1 changed, 2 deleted."
    request.page_token = response.next_page_token
    assert (await history.diff_revisions(request)).summary == response.summary


async def test_files_that_only_look_otherwise_are_told_in_pages(world: World, history: HistoryOperations) -> None:
    nodes = sorted(world.nodes(4), key=lambda node: node.id)
    first = await world.put(*nodes)
    head = await world.put(replace(nodes[3], title="Else"))
    alike = {entry_path(node): encode_entry(node).replace(b"---\n", b"---\n# seen\n", 1) for node in nodes[:3]}
    push_files(world, alike)
    await world.store.catch_up(world.workspace)
    for size in (1, 3, 50):
        changes = await diff(history, world, old_revision=first, page_size=size, include_fields=True)
        assert [change.node_id for change in changes] == [node.id for node in nodes]
        assert {change.summary for change in changes[:3]} == {"Its file was written in another form; no value changed."}
        assert [len(change.fields) for change in changes] == [0, 0, 0, 1]
    (one,) = await diff(history, world, old_revision=head, node_id=nodes[0].id)
    assert one.kind == UPDATED
    commit = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace))
    assert {change.summary for change in commit.changes} == {one.summary}


def patched(old: str, hunks: str) -> str:
    """The text that a unified diff makes from another, as the program ``patch`` would."""
    before = [line + "\n" for line in old.split("\n")[:-1]] + [line for line in old.split("\n")[-1:] if line]
    after: list[str] = []
    position = 0
    lines = hunks.split("\n")[:-1]
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start, _, count = line.split(" ")[1][1:].partition(",")
            begin = int(start) - (0 if count == "0" else 1)
            after += before[position:begin]
            position = begin
        elif not line.startswith("\\"):
            unended = number + 1 < len(lines) and lines[number + 1].startswith("\\")
            text = line[1:] + ("" if unended else "\n")
            if line[0] != "+":
                assert before[position] == text
                position += 1
            if line[0] != "-":
                after.append(text)
    return "".join(after + before[position:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "-", "+", "@@ ", "\\ No", ""]), max_size=14)


@given(LINES, LINES, LINES)
def test_a_diff_makes_the_new_text_from_the_old(common: list[str], before: list[str], after: list[str]) -> None:
    old, new = ("\n".join([*common, *part, *common]) for part in (before, after))
    assert patched(old, unified(old, new)) == new


async def test_for_texts_too_long_to_compare_a_diff_gives_their_sizes(world: World, history: HistoryOperations) -> None:
    node = world.node(content="same\n" * 40_000)
    first = await world.put(node)
    await world.put(replace(node, content="other\n" * 30_000))
    (change,) = await diff(history, world, old_revision=first, include_fields=True)
    assert "too long to compare" in change.fields[0].diff


_MANY_DIFFS = 40  # more than there are threads or connections


@pytest.mark.requirement("STORE-8")
async def test_long_diffs_keep_neither_a_thread_nor_a_connection_from_other_calls(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.node(content="a line\n" * 5000)
    await world.put(node)
    await world.put(replace(node, content="another\n" * 5000))
    over, waiting, all_wait = threading.Event(), 0, asyncio.Event()

    async def counted(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        def compare() -> Any:
            over.wait(60)
            return function(*given, **named)

        nonlocal waiting
        waiting += 1
        if waiting == _MANY_DIFFS:
            all_wait.set()
        return await in_comparison_thread(compare)

    monkeypatch.setattr(diffs, "in_comparison_thread", counted)
    many = [asyncio.create_task(diff(history, world, include_fields=True)) for _ in range(_MANY_DIFFS)]
    try:
        async with asyncio.timeout(60):
            await all_wait.wait()
            assert not any(task.done() for task in many)
            await world.put(world.node())
            assert len(await diff(history, world, include_fields=True)) == 1
    finally:
        over.set()
        answers = await asyncio.gather(*many)
    assert {answer[0].fields[0].field for answer in answers} == {"content"}


async def test_an_id_that_is_in_neither_state_is_refused(world: World, history: HistoryOperations) -> None:
    node = world.node()
    first = await world.head()
    there = await world.put(node)
    gone = await world.put(delete=[node])
    with pytest.raises(NodeNotFoundError):
        await diff(history, world, old_revision="main", node_id="zzzz")
    for node_id in (new_id(), node.id):
        with pytest.raises(NodeNotFoundError, match="in either of the two states"):
            await diff(history, world, old_revision=first, new_revision=gone, node_id=node_id)
    (change,) = await diff(history, world, old_revision=first, new_revision=there, node_id=node.id)
    assert change.node_id == node.id


@pytest.mark.requirement("GIT-4", "GIT-5")
@pytest.mark.parametrize("seed", range(budget(1)))
async def test_every_diff_equals_the_difference_of_the_two_trees(
    world: World, history: HistoryOperations, seed: int
) -> None:
    """Random commits on random branches; any two states are compared with the difference of their whole trees."""
    chance = dice("diff", seed)
    known = world.nodes(8)
    branches, commits = ["main"], [await world.put(*known[:5])]
    for number in range(14):
        if chance.random() < 0.3:
            name = f"branch-{number}"
            await branch(history, world, name, chance.choice(commits))
            branches.append(name)
        name = chance.choice(branches)
        alive = await world.alive(await world.head(name))
        chosen = chance.sample(known, 3)
        gone = [node for node in chosen if node.id in alive and chance.random() < 0.3]
        written = [replace(node, title=f"{number} {chance.random()}") for node in chosen if node not in gone]
        commits.append(await world.put(*written, delete=gone, branch=name))
    session = await world.open(chance.choice(branches))
    await world.stage(session, replace(known[0], title="Staged"), world.node("Staged, too"))
    states = {commit_id: await world.alive(commit_id) for commit_id in commits}
    async with world.store.database.connection() as conn:
        _, resolved = await registry.resolve(conn, world.workspace, session)
    states[session] = await world.alive(resolved.state.commit_id, session)
    for _ in range(25):
        old, new = chance.choice(list(states)), chance.choice(list(states))
        before, after = states[old], states[new]
        expected = dict.fromkeys(after.keys() - before.keys(), CREATED)
        expected |= dict.fromkeys(before.keys() - after.keys(), DELETED)
        expected |= {entry: UPDATED for entry in before.keys() & after.keys() if before[entry] != after[entry]}
        size = chance.choice([0, 1, 2])
        assert kinds(await diff(history, world, old_revision=old, new_revision=new, page_size=size)) == expected
