"""Pages of lists: all read the commit of the first one, what a page of a tree costs, and where the next one begins."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from integration.pushes import push
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.tree_pages import Top

from memotree.canvas import NodeOperations, tree_pages
from memotree.history import HistoryOperations
from memotree.maintenance.faults import list_faults
from memotree.request.lookup import PageOutdatedError
from memotree.request.messages import DETAIL, SUMMARY, TITLE
from memotree.v1 import history_service_pb2 as history_pb
from memotree.v1 import maintenance_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.v1 import node_service_pb2 as pb
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("CANVAS-15", "GIT-4", "USE-10")

SMALL, LARGE = 150, 1000
SHOWN = 50
MOST_ROWS = 10 * SHOWN
MOST_STATEMENTS = 4
READ = """
  select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
    from pg_stat_xact_user_tables where schemaname in ('mirror', 'work')"""
Page = Callable[[World, str, str], Awaitable[tuple[list[str], str]]]
"""What a page of a list has, and the token of the next one."""


async def _children(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = pb.ListChildrenRequest(
        workspace=world.workspace, archive=world.archive.id, revision=revision, page_size=2, page_token=token
    )
    found = await NodeOperations(world.store, world.pages, world.limits).list_children(request)
    return [node.title for node in found.nodes], found.next_page_token


async def _tree(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = pb.GetTreeRequest(
        workspace=world.workspace, archive=world.archive.id, revision=revision, page_size=2, page_token=token
    )
    found = await NodeOperations(world.store, world.pages, world.limits).get_tree(request)
    return [node.node.title for node in found.nodes], found.next_page_token


async def _archives(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = workspace_service_pb2.ListArchivesRequest(
        workspace=world.workspace, revision=revision, page_size=2, page_token=token
    )
    found = await WorkspaceOperations(world.store, world.pages, world.limits).list_archives(request)
    return [archive.name for archive in found.archives], found.next_page_token


async def _differences(world: World, session_id: str, token: str) -> tuple[list[str], str]:
    request = history_pb.DiffRevisionsRequest(
        workspace=world.workspace, new_revision=session_id, page_size=2, page_token=token
    )
    found = await HistoryOperations(world.store, world.pages, world.limits).diff_revisions(request)
    return [change.title for change in found.changes], found.next_page_token


async def _rest(world: World, listed: Page, revision: str, token: str) -> list[str]:
    """What the next pages have."""
    seen: list[str] = []
    while token:
        more, token = await listed(world, revision, token)
        seen += more
    return seen


async def test_what_moves_to_the_front_is_on_a_later_page_all_the_same(world: World) -> None:
    nodes, archives = world.nodes(5), [Archive(new_id(), f"archive {number}") for number in range(4)]
    await world.put(*nodes, *archives)
    lists = (_children, _tree, _archives)
    first = [await listed(world, "", "") for listed in lists]
    await world.put(replace(nodes[4], position="Zz"), replace(archives[3], name="a first one"), delete=[nodes[3]])
    rest = [await _rest(world, listed, "", token) for listed, (_, token) in zip(lists, first, strict=True)]
    titles, names = [node.title for node in nodes], [archive.name for archive in archives]
    assert [seen + more for (seen, _), more in zip(first, rest, strict=True)] == [titles, titles, [*names, "notes"]]
    for listed in (_children, _tree):
        assert (await listed(world, "", ""))[0] == ["Node 4", "Node 0"]


@pytest.mark.parametrize("gone", [False, True], ids=["a node moved out", "the top was deleted"])
async def test_the_history_of_a_subtree_is_that_of_its_nodes_at_the_first_page(
    world: World, history: HistoryOperations, gone: bool
) -> None:
    top = world.node("Top")
    child = world.node("Child", parent=top)
    await world.put(top, child)
    made = [await world.put(replace(child, content=f"Text {number}.")) for number in range(4)]
    request = history_pb.ListCommitsRequest(workspace=world.workspace, subtree_id=top.id, page_size=2)
    page = await history.list_commits(request)
    seen = [commit.id for commit in page.commits]
    outside = replace(child, parent_id=None, content="Text 3.")
    await world.put(outside, delete=[top] if gone else [])
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = await history.list_commits(request)
        seen += [commit.id for commit in page.commits]
    assert seen[:-1] == made[::-1]


async def test_the_next_pages_of_commits_are_of_the_branch_as_it_was(world: World, history: HistoryOperations) -> None:
    made = await world.put_all(world.nodes(4))
    request = history_pb.ListCommitsRequest(workspace=world.workspace, page_size=2)
    page = await history.list_commits(request)
    await world.put(world.node("Later"))
    request.page_token = page.next_page_token
    following = await history.list_commits(request)
    assert [commit.id for commit in [*page.commits, *following.commits]] == made[::-1]


async def test_the_next_pages_of_a_diff_begin_after_what_was_told(world: World, history: HistoryOperations) -> None:
    nodes = sorted(world.nodes(5), key=lambda node: node.id)
    first = await world.head()
    await world.put(*nodes)
    request = history_pb.DiffRevisionsRequest(workspace=world.workspace, old_revision=first, page_size=2)
    seen = []
    for _ in range(3):
        page = await history.diff_revisions(request)
        seen.append([change.node_id for change in page.changes])
        await world.put(replace(nodes[4], title="Else"), delete=[nodes[3]])
        await world.put(*nodes[3:])
        request.page_token = page.next_page_token
    assert seen == [[node.id for node in part] for part in (nodes[:2], nodes[2:4], nodes[4:])]
    assert not request.page_token


async def test_faults_are_listed_at_the_commit_of_the_first_page(world: World) -> None:
    orphans = sorted((world.node(f"Orphan {number}", parent=new_id()) for number in range(3)), key=lambda node: node.id)
    push(world, "main", *orphans)
    request = maintenance_service_pb2.ListFaultsRequest(workspace=world.workspace, page_size=1)
    page = await list_faults(world.store, world.pages, request)
    assert not page.faults, "what was pushed is not mirrored yet"
    await world.store.catch_up(world.workspace)
    page = await list_faults(world.store, world.pages, request)
    seen = [fault.node_id for fault in page.faults]
    await world.put(*(replace(node, parent_id=None) for node in orphans))
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = await list_faults(world.store, world.pages, request)
        seen += [fault.node_id for fault in page.faults]
    assert seen == [node.id for node in orphans]


@pytest.mark.parametrize("how", ["commit", "rebase"])
async def test_pages_of_a_session_that_got_another_base_are_refused(world: World, how: str) -> None:
    """Its changes are in the base now, and the changes of others, too: a node may be on none of the pages."""
    nodes = world.nodes(5)
    await world.put(*nodes)
    session_id = await world.open()
    await world.stage(session_id, *(replace(node, title="Else") for node in nodes))
    lists = (_children, _tree, _differences)
    tokens = [(await listed(world, session_id, ""))[1] for listed in lists]
    await world.put(world.node("Of somebody else"))
    if how == "commit":
        await world.commit(session_id)
    else:
        request = session_service_pb2.RebaseSessionRequest(workspace=world.workspace, session_id=session_id)
        await world.sessions.rebase_session(request)
    for listed, token in zip(lists, tokens, strict=True):
        with pytest.raises(PageOutdatedError):
            await listed(world, session_id, token)


async def test_pages_of_a_session_show_what_it_changes(world: World) -> None:
    nodes = world.nodes(5)
    await world.put(*nodes)
    session_id = await world.open()
    seen, token = await _children(world, session_id, "")
    await world.stage(session_id, replace(nodes[3], title="Renamed"))
    seen += await _rest(world, _children, session_id, token)
    assert seen == ["Node 0", "Node 1", "Node 2", "Renamed", "Node 4"]


# --- Pages of a tree --------------------------------------------------------------------------------------------------


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


@pytest.mark.own_store
@pytest.mark.parametrize("shape", [World.nodes, chain])
async def test_the_first_page_costs_what_it_shows_whatever_the_size_or_depth_of_the_archive_is(
    world: World, shape: Callable[[World, int], list[Node]]
) -> None:
    small = await first_page_cost(world, shape(world, SMALL), SHOWN)
    large = await first_page_cost(world, shape(world, LARGE), SHOWN)
    assert large.statements == small.statements <= MOST_STATEMENTS
    assert max(small.rows, large.rows) <= MOST_ROWS


@pytest.mark.own_store
@pytest.mark.requirement("STORE-9")
@pytest.mark.parametrize("count", [50, 100, 200])
async def test_no_node_of_a_page_reads_a_small_table_whole(world: World, count: int) -> None:
    """PostgreSQL reads a table of a few pages from its beginning if it takes random reads for much dearer."""
    whole = await first_page_cost(world, world.nodes(count + 1), count)
    assert whole.rows <= 10 * count


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


async def test_contents_are_given_in_pages_alone_which_end_when_they_are_long(world: World) -> None:
    archive = Archive(new_id(), "long", "", "")
    long = [
        Node(new_id(), archive.id, None, f"a{letter}", title=letter, content=letter * (1 << 20)) for letter in "bcdefg"
    ]
    top = Node(new_id(), archive.id, None, "aa", type="summary_node", title="top")
    below = Node(new_id(), archive.id, top.id, "a0", title="below", content="Below.")
    await commit_entries(world.store, world.workspace, "main", [archive, top, below, *long], "Import")
    nodes = NodeOperations(world.store, world.pages, world.limits)
    request = pb.GetTreeRequest(workspace=world.workspace, archive=archive.id, level=DETAIL)
    whole = (await nodes.get_tree(request)).nodes
    assert {(each.node.content, each.node.level) for each in whole} == {("", SUMMARY)}
    pages: list[list[pb.TreeNode]] = []
    request.page_size = 1000
    while request.page_token or not pages:
        answer = await nodes.get_tree(request)
        pages.append(list(answer.nodes))
        request.page_token = answer.next_page_token
    found = [each.node for page in pages for each in page]
    assert [(node.title, node.content) for node in found] == [
        ("top", ""),
        ("below", "Below."),
        *((node.title, node.content) for node in long),
    ]
    assert {node.level for node in found} == {DETAIL}
    assert [len(page) for page in pages] == [6, 2]
