"""A backup has all that is acknowledged, also what is not committed; after an older one nothing newer answers."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from integration.backups import lose_rows, only, put_back, restore_with, save
from integration.pushes import OpenAgain, differences, rows, run, session_of
from integration.sides import Sides, changes
from integration.worlds import World
from memotree_storage.backup.restoring import BackupTooNewError, restore_backup
from memotree_storage.git import restored as restored_mark
from memotree_storage.git.backup_file import digest_of, ending, extract, member, open_backup, read_list
from memotree_storage.git.backup_list import BackupList
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres import access, jobs, views
from memotree_storage.postgres.access import GrantRow
from memotree_storage.postgres.jobs import NewJob
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.sessions import SessionClosedError
from memotree_storage.store import Store

from memotree.history import HistoryOperations
from memotree.memory import MemoryOperations
from memotree.v1 import memory_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("GIT-11", "USE-8", "STORE-2"), pytest.mark.own_store]


async def remember(world: World, text: str, request_id: str) -> memory_service_pb2.RememberResponse:
    request = memory_service_pb2.RememberRequest(workspace=world.workspace, text=text, request_id=request_id)
    return await MemoryOperations(world.store, world.limits).remember(request)


@asynccontextmanager
async def restored(world: World, file: Path, again: OpenAgain, lost: str = "") -> AsyncIterator[World]:
    """The world after a restore, in a database that has lost everything if its address is given."""
    await put_back(world.store, [file])
    if lost:
        await lose_rows(lost)
    async with again() as store:
        yield world.on(store)


async def give_access(store: Store, workspace: str) -> None:
    """Roles of four principals: in the workspace, in another one, in all, and in both ways on the same branches."""
    async with store.database.transaction() as conn:
        for number, (name, *places) in enumerate(
            [("ada", workspace), ("bob", "elsewhere"), ("carol", "*"), ("dave", "*", workspace)]
        ):
            await access.put_principal(conn, name, f"{name}@example.org")
            await access.add_key(conn, f"key-{name}", name, bytes([number] * 32), label="of the tests")
            for place in places:
                await access.put_grant(conn, GrantRow(name, place, "*", "reader" if place == workspace else "writer"))


async def access_of(store: Store) -> tuple[dict[str, bytes], set[tuple[str, ...]]]:
    """The digests of the keys by principal, and the grants."""
    async with store.database.transaction() as conn:
        found = await access.read_all(conn)
    assert {each.name for each in found.principals} >= {each.principal for each in found.keys}
    grants = {(each.principal, each.workspace_id, each.branches, each.role) for each in found.grants}
    return {each.principal: each.digest for each in found.keys}, grants


async def staged_changes(world: World) -> AsyncGenerator[None, World]:
    kept, changed, gone = world.nodes(3)
    await world.put(kept, changed, gone)
    session = await world.open()
    staged = world.node("Staged", position="a9")
    await world.stage(session, staged, delete=[gone], note="Because.")
    before = await world.alive(await world.head(), session)
    yield
    after = yield
    assert await after.alive(await after.head(), session) == before
    assert after.repository.ref(f"{KEEP_PREFIX}{session}") == (await session_of(after, session)).base_commit
    await after.commit(session)
    alive = await after.alive(await after.head())
    assert staged.id in alive
    assert gone.id not in alive
    assert await differences(after.store, after.workspace) == []


async def conflicts_and_a_merge_that_waits_for_their_resolution(world: World) -> AsyncGenerator[None, World]:
    node = world.node("A node")
    sides = Sides(world, HistoryOperations(world.store, world.pages, world.limits))
    await sides.fork(node)
    await world.put(replace(node, title="Ours"))
    await world.put(replace(node, title="Theirs"), branch="side")
    session = await world.open()
    await sides.merge(session_id=session)
    conflicts = await rows(world.store, "select * from work.conflict where session_id = %s", session)
    assert conflicts
    merged = (await session_of(world, session)).merged
    yield
    after = yield
    assert await rows(after.store, "select * from work.conflict where session_id = %s", session) == conflicts
    assert (await session_of(after, session)).merged == merged


async def the_first_results_of_repeated_calls(world: World) -> AsyncGenerator[None, World]:
    order = workspace_service_pb2.CreateWorkspaceRequest(name="desert", request_id="new")
    made = await WorkspaceOperations(world.store, world.pages, world.limits).create_workspace(order)
    first = await remember(world, "Noted before the backup.", "early")
    opened = await world.open(request_id="open")
    yield
    after = yield
    assert await remember(after, "Noted before the backup.", "early") == first
    assert await after.open(request_id="open") == opened
    assert await WorkspaceOperations(after.store, after.pages, after.limits).create_workspace(order) == made


async def views_and_jobs_in_their_order_and_what_ran_is_queued(world: World) -> AsyncGenerator[None, World]:
    node = world.node("A node")
    await world.put(node)
    key = views.ViewKey(world.workspace, await world.head(), "mine")
    async with world.store.database.transaction() as conn:
        await views.set_levels(conn, key, {node.id: 2})
        first = await jobs.create(conn, NewJob(world.workspace, "act", b"1"), {"document": b"\x00\\tab\t\xff"})
        second = await jobs.create(conn, NewJob(world.workspace, "act", b"2"), {})
        await jobs.put_note(conn, first, "paid", b"for")
        await conn.execute("update work.job set state = 'running', owner = 'me' where job_id = %s", (first,))
    yield
    after = yield
    async with after.store.database.connection() as conn:
        assert {one: level.level for one, level in (await views.levels(conn, key)).items()} == {node.id: 2}
        assert await jobs.read_input(conn, first, "document") == b"\x00\\tab\t\xff"
        assert await jobs.read_note(conn, first, "paid") == b"for"
    found = "select job_id, state, owner from work.job where workspace_id = %s order by number"
    assert await rows(after.store, found, after.workspace) == [(first, "queued", ""), (second, "queued", "")]
    async with after.store.database.transaction() as conn:
        await views.set_levels(conn, views.ViewKey(world.workspace, "", "another"), {node.id: 1})


async def a_role_in_all_workspaces_as_one_in_this_workspace(world: World) -> AsyncGenerator[None, World]:
    """The server of a restore may be another one."""
    await give_access(world.store, world.workspace)
    yield
    after = yield
    keys, grants = await access_of(after.store)
    assert keys == {"ada": bytes(32), "carol": b"\2" * 32, "dave": b"\3" * 32}
    assert {grant for grant in grants if grant[1] == world.workspace} == {
        ("ada", world.workspace, "*", "reader"),
        ("carol", world.workspace, "*", "writer"),
        ("dave", world.workspace, "*", "reader"),
    }
    assert not {"*", "elsewhere"} & {grant[1] for grant in grants}


async def test_what_is_acknowledged_comes_back_when_postgres_is_lost(
    world: World, tmp_path: Path, again: OpenAgain, database_url: str
) -> None:
    cases = [
        staged_changes,
        conflicts_and_a_merge_that_waits_for_their_resolution,
        the_first_results_of_repeated_calls,
        views_and_jobs_in_their_order_and_what_ran_is_queued,
        a_role_in_all_workspaces_as_one_in_this_workspace,
    ]
    await restore_with(cases, world, tmp_path / "a.backup", again, database_url)


async def a_newer_session_stays_and_a_committed_one_goes_back_to_the_backup(
    world: World,
) -> AsyncGenerator[None, World]:
    staged, later = world.nodes(2)
    committed, newer = await world.open(), await world.open()
    await world.stage(committed, staged)
    yield
    await world.stage(newer, later)
    await world.commit(committed)
    after = yield
    assert staged.id not in await after.alive(await after.head())
    assert later.id in await after.alive(await after.head(), newer)
    assert staged.id in await after.alive(await after.head(), committed)
    for session in (newer, committed):
        assert (await session_of(after, session)).state == "open"
        await after.commit(session)
    assert {staged.id, later.id} <= (await after.alive(await after.head())).keys()


async def a_discarded_session_is_open_again_and_has_its_whole_time_to_live(world: World) -> AsyncGenerator[None, World]:
    node = world.node("Staged")
    session = await world.open()
    await world.stage(session, node)
    await run(world.store, "update work.session set used_at = now() - interval '6 days' where session_id = %s", session)
    yield
    request = session_service_pb2.DiscardSessionRequest(workspace=world.workspace, session_id=session)
    await world.sessions.discard_session(request)
    after = yield
    assert node.id in await after.alive(await after.head(), session)
    is_recent = "select from work.session where session_id = %s and used_at > now() - interval '1 hour'"
    assert await run(after.store, is_recent, session) == 1


async def what_was_taken_away_since_does_not_come_back(world: World) -> AsyncGenerator[None, World]:
    await world.put(world.node("A node"))
    await give_access(world.store, world.workspace)
    yield
    async with world.store.database.transaction() as conn:
        await access.delete_key(conn, "key-ada")
        await access.delete_principal(conn, "dave")
        await access.delete_grant(conn, "ada", world.workspace, "*")
    before = await access_of(world.store)
    after = yield
    assert await access_of(after.store) == before


async def test_a_restore_over_rows_that_are_newer_keeps_what_only_they_have(
    world: World, tmp_path: Path, again: OpenAgain
) -> None:
    cases = [
        a_newer_session_stays_and_a_committed_one_goes_back_to_the_backup,
        a_discarded_session_is_open_again_and_has_its_whole_time_to_live,
        what_was_taken_away_since_does_not_come_back,
    ]
    await restore_with(cases, world, tmp_path / "a.backup", again)


async def test_in_a_backup_that_is_made_while_sessions_commit_each_change_is_staged_or_committed(
    world: World, tmp_path: Path, again: OpenAgain, database_url: str
) -> None:
    """Never both, and none is missing that came before another one: rows and refs are of one moment."""
    session = await world.open()
    nodes = world.nodes(30)

    async def commit_all() -> None:
        for node in nodes:
            await world.stage(session, node)
            await world.commit(session)

    writing = asyncio.create_task(commit_all())
    files = [await save(world.store, tmp_path / f"{number}.backup") for number in range(4)]
    await writing
    async with restored(world, files[2], again, database_url) as after:
        committed = await after.alive(await after.head())
        staged = {row[0] for row in await rows(after.store, "select entry_id from work.staged")}
        assert not staged & committed.keys()
        is_there = [node.id in committed or node.id in staged for node in nodes]
        assert is_there == sorted(is_there, reverse=True)
        assert (await session_of(after, session)).base_commit == await after.head()
        assert await differences(after.store, after.workspace) == []


async def test_without_postgres_a_backup_has_git_alone_and_says_so(
    world: World, tmp_path: Path, again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.node("A node")
    await world.put(node)

    def away() -> None:
        raise DatabaseUnavailableError("PostgreSQL does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(world.store.database, "repeatable_read", away)
        file = await save(world.store, tmp_path / "a.backup")
    assert only(open_backup(file)).tables is None
    async with restored(world, file, again) as after:
        assert node.id in await after.alive(await after.head())


async def test_another_principal_of_the_same_name_gets_no_role_and_no_key_of_a_backup(
    world: World, tmp_path: Path, again: OpenAgain, database_url: str
) -> None:
    await give_access(world.store, world.workspace)
    file = await save(world.store, tmp_path / "a.backup")
    await put_back(world.store, [file])
    repository = world.store.repositories.path(world.workspace)
    aside = tmp_path / repository.name
    repository.rename(aside)
    await lose_rows(database_url)
    async with again() as store, store.database.transaction() as conn:
        await access.put_principal(conn, "ada", "another@example.org")
        await access.add_key(conn, "other", "ada", b"o" * 32)
    aside.rename(repository)
    async with again() as store:
        keys, grants = await access_of(store)
    assert keys == {"ada": b"o" * 32, "carol": b"\2" * 32, "dave": b"\3" * 32}
    assert {each[0] for each in grants} == {"carol", "dave"}


async def test_a_backup_of_the_first_format_is_still_read(world: World, tmp_path: Path, again: OpenAgain) -> None:
    node = world.node("A node")
    await world.put(node)
    backup = open_backup(await save(world.store, tmp_path / "new.backup"))
    bundle = tmp_path / "bundle"
    extract(backup, only(backup).bundle, bundle)
    listed = ending(BackupList(backup.listed.workspaces, backup.listed.created_at, "0.1"))
    old = tmp_path / "old.backup"
    old.write_bytes(b"".join(member(only(backup).bundle, bundle)) + of_first_format(listed, tmp_path))
    assert only(open_backup(old)).tables is None
    async with restored(world, old, again) as after:
        assert node.id in await after.alive(await after.head())


def of_first_format(tail: bytes, folder: Path) -> bytes:
    """The end of a backup as format 1 had it."""
    (folder / "tail.tar").write_bytes(tail)

    fields = json.loads(read_list(folder / "tail.tar"))
    entries = [
        {key: each[key] for key in ("id", "name", "bundle", "bytes", "sha256", "refs")} for each in fields["workspaces"]
    ]
    old = {"format": 1, "memotree": "0.1", "created_at": fields["created_at"], "workspaces": entries}
    text = folder / "backup.json"
    text.write_text(json.dumps(old))
    (folder / "backup.json.sha256").write_text(f"{digest_of(text)}  backup.json\n")
    parts = [b"".join(member(name, folder / name)) for name in ("backup.json", "backup.json.sha256")]
    return b"".join(parts) + bytes(1024)


async def test_a_backup_with_rows_of_a_later_format_is_refused(world: World, tmp_path: Path) -> None:
    backup = open_backup(await save(world.store, tmp_path / "a.backup"))
    later = BackupList(backup.listed.workspaces, backup.listed.created_at, "9.9", "", 1000)
    (tmp_path / "b.backup").write_bytes(ending(later))
    with pytest.raises(BackupTooNewError, match=r"MemoTree 9\.9 made this backup"):
        restore_backup([tmp_path / "b.backup"], tmp_path / "elsewhere")


async def test_columns_that_are_no_more_are_passed_over(world: World, tmp_path: Path, again: OpenAgain) -> None:
    node = world.node("Staged")
    session = await world.open()
    await world.stage(session, node)
    await run(world.store, "alter table work.staged add column of_old text not null default 'old'")
    file = await save(world.store, tmp_path / "a.backup")
    await run(world.store, "delete from work.session")
    await run(world.store, "alter table work.staged drop column of_old")
    async with restored(world, file, again) as after:
        assert node.id in await after.alive(await after.head(), session)


# --- What came after the backup ----------------------------------------------


async def a_repeated_call_is_answered_from_the_backup_or_makes_again_what_it_lacks(
    world: World,
) -> AsyncGenerator[None, World]:
    kept = await remember(world, "Noted before the backup.", "early")
    yield
    lost = await remember(world, "Noted after the backup.", "late")
    after = yield
    repeated = await remember(after, "Noted before the backup.", "early")
    assert (repeated.commit_id, repeated.node.id) == (kept.commit_id, kept.node.id)
    assert await after.head() == kept.commit_id
    made = await remember(after, "Noted after the backup.", "late")
    assert made.commit_id != lost.commit_id
    assert after.repository.exists(made.commit_id)
    assert made.node.id in await after.alive(await after.head())
    assert await remember(after, "Noted after the backup.", "late") == made
    folder = after.store.repositories.path(after.workspace)
    assert restored_mark.backup_time(folder) is None, "the next start forgets nothing any more"
    assert await differences(after.store, after.workspace) == []


async def a_repeated_call_makes_the_workspace_that_the_backup_lacks(world: World) -> AsyncGenerator[None, World]:
    order = workspace_service_pb2.CreateWorkspaceRequest(name="desert", request_id="new")
    yield
    lost = (await WorkspaceOperations(world.store, world.pages, world.limits).create_workspace(order)).workspace.id
    world.store.repositories.discard(lost)
    after = yield
    made = (await WorkspaceOperations(after.store, after.pages, after.limits).create_workspace(order)).workspace.id
    assert after.store.repositories.path(made).is_dir()


async def a_commit_is_lost_and_its_session_is_closed_with_the_reason_and_its_changes_can_be_read(
    world: World,
) -> AsyncGenerator[None, World]:
    yield
    late = world.node("Late")
    lost = await world.put(late)
    session = await world.open()
    await world.stage(session, replace(late, title="Late and changed"), world.node("New here", position="a5"))
    after = yield
    assert await run(after.store, "select from mirror.commit where commit_id = %s", lost) == 0
    assert late.id not in await after.alive(await after.head())
    assert (await session_of(after, session)).state == "detached"
    assert sorted(change.title for change in await changes(after, session)) == ["Late and changed", "New here"]
    rebase = session_service_pb2.RebaseSessionRequest(workspace=after.workspace, session_id=session)
    for call in (after.commit(session), after.sessions.rebase_session(rebase), after.stage(session, late)):
        with pytest.raises(SessionClosedError, match=r"was restored from a backup of \d{4}-.*Open a new one"):
            await call
    discard = session_service_pb2.DiscardSessionRequest(workspace=after.workspace, session_id=session)
    await after.sessions.discard_session(discard)
    assert await changes(after, session) == []


async def a_session_whose_base_is_in_the_backup_goes_on_and_its_base_is_protected_again(
    world: World,
) -> AsyncGenerator[None, World]:
    yield
    session, node = await world.open(), world.node("Staged before the restore")
    await world.stage(session, node)
    await world.put(world.node("Late", position="a5"))
    after = yield
    found = await session_of(after, session)
    assert found.state == "open"
    assert after.repository.refs()[f"{KEEP_PREFIX}{session}"] == found.base_commit
    await after.commit(session)
    assert node.id in await after.alive(await after.head())


async def test_what_came_after_the_backup_is_gone_and_what_is_there_works_on(
    world: World, tmp_path: Path, again: OpenAgain
) -> None:
    cases = [
        a_repeated_call_is_answered_from_the_backup_or_makes_again_what_it_lacks,
        a_repeated_call_makes_the_workspace_that_the_backup_lacks,
        a_commit_is_lost_and_its_session_is_closed_with_the_reason_and_its_changes_can_be_read,
        a_session_whose_base_is_in_the_backup_goes_on_and_its_base_is_protected_again,
    ]
    await restore_with(cases, world, tmp_path / "early.backup", again)
