"""A call costs what it touches, not what else there is; counted in rows, files and statements."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from integration.histories import branch
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror import tree_faults
from memotree_storage.model.node import Archive, new_id
from memotree_storage.postgres import archive_trees, archive_versions, sessions, staging, titles, tree
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.views import ViewKey

from memotree.canvas import view_rendering
from memotree.history import HistoryOperations
from memotree.request import lookup
from memotree.v1 import session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("STORE-9"), pytest.mark.own_store]  # plans depend on what other tests have stored

_FEW: Final = 200
_MANY: Final = 800
_FORKS: Final = 50

# What the planner knows of a table depends on all its rows; so tests that count what a plan reads share no store.


async def rows_fetched(world: World, call: Callable[[Snapshot], Awaitable[object]]) -> int:
    """The rows that PostgreSQL reads for a call at the head of the default branch."""
    commit_id = await world.head()
    async with world.store.database.transaction() as conn:
        await conn.execute("set local enable_seqscan = off")  # a small table is read whole, which a big one is not
        snapshot = Snapshot(conn, State(world.workspace, commit_id))
        await call(snapshot)  # the first time also reads the catalogue
        begun = await _rows(conn)
        await call(snapshot)
        return await _rows(conn) - begun


async def _rows(conn: Any) -> int:
    cursor = await conn.execute(
        "select coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0) from pg_stat_xact_user_tables"
    )
    return int((await cursor.fetchone())[0])


async def _add_archives(world: World, numbers: range) -> None:
    archives = [
        Archive(new_id(), f"archive {number:04}", attributes={"document_id": f"document {number}"})
        for number in numbers
    ]
    nodes = [replace(world.node(), archive_id=archive.id) for archive in archives]
    await world.put(*archives, *nodes)
    await _analyze(world)


async def _analyze(world: World) -> None:
    """As autovacuum does after 50 rows and a tenth of the table; it also ends plans that were made for a small one."""
    async with world.store.database.connection() as conn:
        await conn.execute("analyze mirror.line, mirror.commit, mirror.version, mirror.placement")


async def test_other_archives_cost_nothing(world: World) -> None:
    archive = world.archive

    async def view(snapshot: Snapshot) -> object:
        return await view_rendering.shown(snapshot, ViewKey(world.workspace, "main", "default"))

    calls: dict[str, Callable[[Snapshot], Awaitable[object]]] = {
        "by id": lambda snapshot: lookup.archive(snapshot, archive.id),
        "by name": lambda snapshot: lookup.archive(snapshot, archive.name),
        "by prefix": lambda snapshot: lookup.archive(snapshot, archive.id[:12]),
        "first page": lambda snapshot: archive_versions.archives(snapshot, limit=5),
        "next page": lambda snapshot: archive_versions.archives(snapshot, after=("archive 0010", ""), limit=5),
        "names": lambda snapshot: archive_versions.archives_named(snapshot, ["archive 0003", "none"]),
        "names that cannot be": lambda snapshot: archive_versions.archives_named(snapshot, ["\0", "\ud800"]),
        "document": lambda snapshot: archive_versions.documents(snapshot, ["document 7", "none"]),
        "view": view,
    }
    (node,) = world.nodes(1)
    await world.put(node)
    await _add_archives(world, range(_FEW))
    before = {name: await rows_fetched(world, call) for name, call in calls.items()}
    await _add_archives(world, range(_FEW, _MANY))
    after = {name: await rows_fetched(world, call) for name, call in calls.items()}
    assert {name: after[name] for name in calls if after[name] > before[name]} == {}
    assert max(after.values()) < _FEW
    assert await rows_fetched(world, lambda snapshot: archive_trees.ordered_nodes(snapshot, [archive.id])) < _FEW


async def test_later_commits_and_forks_of_few_changes_cost_the_reads_of_a_state_nothing(world: World) -> None:
    """The default branch then has one long line beside many short ones, the average of which is short.

    Children are not looked for on every line of the database, whose order is random; counted in blocks of the index.
    """
    nodes = world.nodes(_FEW)
    await world.put(*nodes)
    await _analyze(world)

    async def each(snapshot: Snapshot) -> None:
        for node in nodes[2:20]:
            assert await tree.one(snapshot, node.id) is not None
        assert len(await titles.titled(snapshot, nodes[3].title, limit=5)) == 1

    async def count_children() -> int:
        return await _blocks(world, tree._COUNTS, ids=[node.id for node in nodes])

    before, blocks_before = await rows_fetched(world, each), await count_children()
    history = HistoryOperations(world.store, world.pages, world.limits)
    for number in range(_FORKS):
        fork = f"fork-{number}"
        await branch(history, world, fork)
        await world.put(replace(nodes[0], title=f"Of fork {number}"), world.node(), branch=fork)
        await world.put(replace(nodes[1], title=f"Step {number}"), world.node())
    await _analyze(world)
    assert await rows_fetched(world, each) <= 1.5 * before
    assert await count_children() <= 1.2 * blocks_before


async def _blocks(world: World, statement: str, **arguments: Any) -> int:
    """The blocks that a statement reads at the head of the default branch."""
    plan = await _plan(world, statement, "analyze, buffers, timing off, ", **arguments)
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def _plan(world: World, statement: str, options: str = "", **arguments: Any) -> dict[str, Any]:
    """The plan of a statement at the head of the default branch, carried out if the options say so."""
    state = State(world.workspace, await world.head())
    async with world.store.database.transaction() as conn:
        for _ in range(2):  # the first time also reads the catalogue
            values = {**state.arguments(), **arguments}
            cursor = await conn.execute(f"explain ({options}format json) {statement}", values)
            row = await cursor.fetchone()
    assert row is not None
    return dict(row[0][0]["Plan"])


def _handled(plan: dict[str, Any]) -> float:
    """The rows that all steps of a plan handled when it was carried out, including those that they threw away."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return float(own + sum(_handled(part) for part in plan.get("Plans", ())))


async def test_archives_of_one_name_are_found_in_one_pass_also_before_statistics(world: World) -> None:
    """Right after a push of many archives, when the planner knows nothing of them."""
    await world.put(*(Archive(new_id(), f"archive {number}") for number in range(_MANY)))
    plan = await _plan(world, tree_faults._DOUBLES, "analyze, timing off, ")
    assert _handled(plan) < 20 * _MANY


async def test_many_staged_roots_of_others_make_no_room_for_millions_of_rows(world: World) -> None:
    """The planner makes room for the rows that it expects of a recursion; counted in these."""
    session_id = await world.open()
    await world.stage(session_id, *world.nodes(_FEW))
    async with world.store.database.connection() as conn:
        await conn.execute("analyze work.staged")
    statement = tree._TREE.replace("{top}", tree._ROOTS)
    plan = await _plan(world, statement, archive=world.archive.id, session=session_id)
    assert plan["Plan Rows"] < 100_000


async def test_a_page_of_archives_goes_on_where_the_one_before_ended(world: World) -> None:
    """In a session too, with archives that it adds, renames and deletes."""
    await _add_archives(world, range(12))
    async with world.store.database.connection() as conn:
        found = await archive_versions.archives(Snapshot(conn, State(world.workspace, await world.head())))
    session_id = await world.open()
    renamed, deleted = found[3].archive, found[5].archive
    await world.stage(session_id, replace(renamed, name="zebra"), Archive(new_id(), "archive 0004 b"))
    async with world.store.database.connection() as conn:
        nodes = [one for one in await tree.everything(_of(world, conn, session_id)) if one.archive_id == deleted.id]
    await world.stage(session_id, delete=[*(node.entry_id for node in nodes), deleted])
    async with world.store.database.connection() as conn:
        snapshot = _of(world, conn, session_id)
        whole = [(one.name, one.entry_id) for one in await archive_versions.archives(snapshot)]
        paged: list[tuple[str, str]] = []
        while page := await archive_versions.archives(snapshot, after=paged[-1] if paged else ("", ""), limit=3):
            paged += [(one.name, one.entry_id) for one in page]
    assert paged == whole == sorted(whole)
    names = [name for name, _ in whole]
    assert "zebra" in names
    assert "archive 0004 b" in names
    assert renamed.name not in names
    assert deleted.name not in names


async def test_a_page_of_archives_is_asked_for_as_long_as_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await _add_archives(world, range(12))
    asked: list[int | None] = []
    archives = archive_versions.archives

    def telling(snapshot: Snapshot, **options: Any) -> Awaitable[object]:
        asked.append(options.get("limit"))
        return archives(snapshot, **options)

    monkeypatch.setattr(archive_versions, "archives", telling)
    workspaces = WorkspaceOperations(world.store, world.pages, world.limits)
    order = workspace_service_pb2.ListArchivesRequest(workspace=world.workspace, page_size=3)
    page = await workspaces.list_archives(order)
    assert (len(page.archives), asked) == (3, [4])


def _of(world: World, conn: Any, session_id: str) -> Snapshot:
    return Snapshot(conn, State(world.workspace, "", session_id))


async def test_a_view_of_many_archives_shows_the_first_and_those_of_its_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_rendering, "_MOST_ARCHIVES", 3)
    await _add_archives(world, range(8))
    key = ViewKey(world.workspace, "main", "default")
    async with world.store.database.transaction() as conn:
        snapshot = Snapshot(conn, State(world.workspace, await world.head()))
        archives = await archive_versions.archives(snapshot)
        (last,) = await tree.first_below(snapshot, [archives[7].entry_id], 1)
        roots = await tree.first_below(snapshot, [last], 1)
        await view_rendering.views.set_levels(conn, key, {roots[last][0]: 4})
        shown = await view_rendering.shown(snapshot, key)
        named = await view_rendering.shown(snapshot, key, archives[5].name)
    assert [node.version.archive_id for node in shown.nodes] == [archives[n].entry_id for n in (0, 1, 2, 7)]
    assert any("Name an archive" in warning for warning in shown.warnings)
    assert [node.version.archive_id for node in named.nodes] == [archives[5].entry_id]
    assert named.warnings == []


async def test_a_staged_change_is_read_without_the_others(world: World) -> None:
    session_id = await world.open()
    node, *others = world.nodes(_FEW)
    await world.put(node)
    await world.stage(session_id, *others)

    async def one(snapshot: Snapshot) -> None:
        assert len(await staging.staged(snapshot.conn, session_id, ids=[others[7].id, node.id])) == 1

    assert await rows_fetched(world, one) < 10


async def test_a_page_of_sessions_costs_what_it_has(world: World) -> None:
    for _ in range(2):
        await world.open()
    for _ in range(40):
        closed = session_service_pb2.DiscardSessionRequest(workspace=world.workspace, session_id=await world.open())
        await world.sessions.discard_session(closed)
    await world.open()
    async with world.store.database.connection() as conn:
        newest = (await sessions.list_sessions(conn, world.workspace, closed=False))[0]
        await conn.execute("analyze work.session")
    last = (newest.used_at, newest.session_id)

    async def page(snapshot: Snapshot) -> None:
        assert len(await sessions.list_sessions(snapshot.conn, world.workspace, closed=False, before=last)) == 2
        assert len(await sessions.list_sessions(snapshot.conn, world.workspace, closed=True, before=last, limit=2)) == 2

    assert await rows_fetched(world, page) < 10


async def test_a_commit_reads_no_refs_of_sessions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each open session has a ref, which holds its base."""
    for _ in range(3):
        await world.open()
    listed: list[tuple[str, ...]] = []
    refs = GitRepository.refs

    def telling(self: GitRepository, *folders: str) -> dict[str, str]:
        listed.append(folders)
        return refs(self, *folders)

    monkeypatch.setattr(GitRepository, "refs", telling)
    (node,) = world.nodes(1)
    await world.put(node)
    await world.sessions.finish()
    assert listed
    assert set(listed) == {("refs/heads", "refs/tags")}
