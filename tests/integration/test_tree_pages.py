"""GetTree by pages: what a page costs, and where the next one begins if a session changed in between."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.tree_pages import Top

from memotree.canvas import NodeOperations, tree_pages
from memotree.request.messages import DETAIL, SUMMARY, TITLE
from memotree.v1 import node_service_pb2 as pb

SMALL, LARGE = 150, 1000
SHOWN = 50
MOST_ROWS = 10 * SHOWN
MOST_STATEMENTS = 4
READ = """
  select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
    from pg_stat_xact_user_tables where schemaname in ('mirror', 'work')"""


class Cost(NamedTuple):
    """What a page took; the rows are those that PostgreSQL looked at."""

    statements: int
    rows: int


async def first_page_cost(world: World, nodes: Sequence[Node], size: int) -> Cost:
    """The cost of the first page of an archive with these nodes."""
    archive = Archive(new_id(), f"{len(nodes)} nodes", "", "")
    entries = [archive, *(replace(node, archive_id=archive.id) for node in nodes)]
    commit_id = await commit_entries(world.store, world.workspace, "main", entries, "Import")
    async with world.store.database.connection() as conn:
        await conn.execute("analyze")
    async with world.store.database.repeatable_read() as conn:
        statements = 0
        execute = conn.execute

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal statements
            statements += 1
            return await execute(*args, **options)

        before = await rows_read(conn)
        conn.execute = counted  # type: ignore[method-assign]
        try:
            snapshot = Snapshot(conn, State(world.workspace, commit_id))
            found, more = await tree_pages.one_page(
                snapshot, world.store, Top(archive.id, is_archive=True), size, TITLE, None
            )
        finally:
            del conn.execute
        assert len(found.nodes) == size
        assert more is not None
        return Cost(statements, await rows_read(conn) - before)


async def rows_read(conn: Any) -> int:
    row = await (await conn.execute(READ)).fetchone()
    return int(row[0])


def chain(world: World, length: int) -> list[Node]:
    found = [world.node("Level 0")]
    for number in range(1, length):
        found.append(world.node(f"Level {number}", parent=found[-1]))
    return found


def flat(world: World, count: int) -> list[Node]:
    return world.nodes(count)


@pytest.mark.own_store
@pytest.mark.requirement("USE-10")
@pytest.mark.parametrize("shape", [flat, chain])
async def test_the_first_page_costs_what_it_shows_whatever_the_size_or_depth_of_the_archive_is(
    world: World, shape: Callable[[World, int], list[Node]]
) -> None:
    small = await first_page_cost(world, shape(world, SMALL), SHOWN)
    large = await first_page_cost(world, shape(world, LARGE), SHOWN)
    assert large.statements == small.statements <= MOST_STATEMENTS
    assert max(small.rows, large.rows) <= MOST_ROWS


@pytest.mark.own_store
@pytest.mark.requirement("STORE-9", "USE-10")
@pytest.mark.parametrize("count", [50, 100, 200])
async def test_no_node_of_a_page_reads_a_small_table_whole(world: World, count: int) -> None:
    """PostgreSQL reads a table of a few pages from its beginning if it takes random reads for much dearer."""
    whole = await first_page_cost(world, world.nodes(count + 1), count)
    assert whole.rows <= 10 * count


@pytest.mark.requirement("USE-10")
async def test_the_token_of_a_page_has_the_same_size_at_any_depth(world: World) -> None:
    await commit_entries(world.store, world.workspace, "main", chain(world, SMALL), "Import")
    nodes = NodeOperations(world.store, world.pages, world.limits)
    request = pb.GetTreeRequest(workspace=world.workspace, archive="notes", page_size=SHOWN)
    titles: list[str] = []
    sizes = set()
    while not titles or request.page_token:
        answer = await nodes.get_tree(request)
        titles += [item.node.title for item in answer.nodes]
        request.page_token = answer.next_page_token
        sizes.add(len(answer.next_page_token))
        assert answer.truncated == 0
    assert titles == [f"Level {number}" for number in range(SMALL)]
    assert len(sizes - {0}) == 1


@pytest.mark.requirement("USE-10")
async def test_a_page_begins_after_the_place_of_a_node_that_was_removed_or_moved_meanwhile(wire: Wire) -> None:
    top = await wire.create("Top")
    first, second, third = [await wire.create(f"Child {number}", parent_id=top.id) for number in range(3)]
    await wire.create("Below", parent_id=second.id)
    two = {"revision": wire.session, "node_id": top.id, "page_size": 2}
    token = (await wire("GetTree", **two)).next_page_token
    await wire("MoveNode", node_id=first.id, session_id=wire.session, parent_id=third.id)
    assert await titles(wire, **two, page_token=token) == ["Child 1", "Below"]
    await wire("DeleteNode", node_id=first.id, session_id=wire.session)
    assert await titles(wire, **two, page_token=token) == ["Child 1", "Below"]


@pytest.mark.requirement("USE-10")
async def test_a_page_whose_place_was_removed_with_its_parent_says_that_the_listing_must_begin_again(
    wire: Wire,
) -> None:
    top = await wire.create("Top")
    parent = await wire.create("Parent", parent_id=top.id)
    for number in range(3):
        await wire.create(f"Child {number}", parent_id=parent.id)
    three = {"revision": wire.session, "node_id": top.id, "page_size": 3}
    token = (await wire("GetTree", **three)).next_page_token
    await wire("DeleteNode", node_id=parent.id, session_id=wire.session, recursive=True)
    refusal = await wire.refused("GetTree", **three, page_token=token)
    assert refusal.reason == "PAGE_PLACE_REMOVED"
    assert "from its first page" in refusal.message


async def titles(wire: Wire, **fields: Any) -> list[str]:
    return [item.node.title for item in (await wire("GetTree", **fields)).nodes]


async def test_pages_with_contents_end_when_they_are_long(world: World) -> None:
    archive = Archive(new_id(), "long", "", "")
    long = [
        Node(new_id(), archive.id, None, f"a{letter}", title=letter, content=letter * (1 << 20)) for letter in "bcdefg"
    ]
    top = Node(new_id(), archive.id, None, "aa", type="summary_node", title="top")
    below = Node(new_id(), archive.id, top.id, "a0", title="below", content="Below.")
    await commit_entries(world.store, world.workspace, "main", [archive, top, below, *long], "Import")
    pages: list[list[pb.TreeNode]] = []
    token = ""
    while token or not pages:
        request = pb.GetTreeRequest(
            workspace=world.workspace, archive=archive.id, level=DETAIL, page_size=1000, page_token=token
        )
        answer = await NodeOperations(world.store, world.pages, world.limits).get_tree(request)
        pages.append(list(answer.nodes))
        token = answer.next_page_token
    found = [each.node for page in pages for each in page]
    assert [(node.title, node.content) for node in found] == [
        ("top", ""),
        ("below", "Below."),
        *((node.title, node.content) for node in long),
    ]
    assert {node.level for node in found} == {DETAIL}
    assert [len(page) for page in pages] == [6, 2]


async def test_contents_are_given_in_pages_alone(world: World) -> None:
    archive = Archive(new_id(), "short", "", "")
    node = Node(new_id(), archive.id, None, "aa", title="one", content="Some text.")
    await commit_entries(world.store, world.workspace, "main", [archive, node], "Import")
    request = pb.GetTreeRequest(workspace=world.workspace, archive=archive.id, level=DETAIL)
    answer = await NodeOperations(world.store, world.pages, world.limits).get_tree(request)
    assert [(each.node.content, each.node.level) for each in answer.nodes] == [("", SUMMARY)]
