"""A backup, a restore and the start after it are killed: files, folders and rows are whole, the old or the new ones."""

import asyncio
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from crash.filled_folders import FilledFolders
from crash.service import Service, forked, running
from memotree_storage.backup.restoring import restore_backup
from memotree_storage.git.backup_file import digest_of, ending, member
from memotree_storage.git.backup_list import BackupList, SavedWorkspace
from memotree_storage.git.bundles import check_objects, write_bundle
from memotree_storage.git.unpacking import clear_unfinished, finish_restore
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import WorkspaceInfo
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import AsyncClient, SessionState

pytestmark = pytest.mark.requirement("USE-8", "STORE-2", "GIT-11")


def refs_in(data: Path) -> dict[str, dict[str, str]]:
    """The refs of each workspace in a data folder by its id, after what a start does first."""
    finish_restore(data)
    clear_unfinished(data)
    repositories = Repositories(data / "workspaces", data / "trash")
    try:
        for each in repositories.ids():
            check_objects(repositories.path(each))
        return {each: repositories.get(each).refs() for each in repositories.ids()}
    finally:
        repositories.close()


def back_up(data: Path, file: Path) -> None:
    """Write a backup of a data folder without rows."""
    repositories, saved, parts = Repositories(data / "workspaces", data / "trash"), [], []
    for each in repositories.ids():
        refs, bundle = repositories.get(each).refs(), file.with_name(f"{each}.bundle")
        write_bundle(repositories.path(each), bundle, refs)
        parts += member(bundle.name, bundle)
        saved.append(SavedWorkspace(each, f"of {each}", bundle.name, bundle.stat().st_size, digest_of(bundle), refs))
    file.write_bytes(b"".join(parts) + ending(BackupList(tuple(saved), datetime.now(UTC))))
    repositories.close()


async def garden(service: Service) -> str:
    """Make a workspace with a note; the id of its commit."""
    async with AsyncClient(service.address) as client:
        await client.create_workspace("garden")
        noted = await client.workspace("garden").remember("Noted before the backup.", request_id="early")
    return noted.commit_id


@pytest.mark.parametrize(
    ("fault", "is_restored"),
    [
        ("restore.unpacked", False),
        ("restore.ready", True),
        ("restore.discarded", True),
        ("restore.discarded:2", True),
        ("restore.placed", True),
        ("restore.placed:2", True),
        ("", True),
    ],
)
def test_a_restore_that_is_killed_changes_every_workspace_or_none(
    tmp_path: Path, fault: str, *, is_restored: bool
) -> None:
    data, file = tmp_path / "data", tmp_path / "early.backup"
    repositories = Repositories(data / "workspaces", data / "trash")
    for name in ("garden", "desert"):
        repositories.create(WorkspaceInfo(new_id(), name, "", datetime.now(UTC).replace(microsecond=0)))
    early = refs_in(data)
    back_up(data, file)
    for each in repositories.ids():
        info = repositories.describe(each)
        repositories.update(replace(info, description="Later."), "Describe it")
    repositories.create(WorkspaceInfo(new_id(), "made later", "", datetime.now(UTC).replace(microsecond=0)))
    repositories.close()
    late = refs_in(data)
    restoring = forked(restore_backup, [file], data, replace=True, fault=fault)
    restoring.start()
    restoring.join()
    assert restoring.exitcode == (-signal.SIGKILL if fault else 0)
    found = refs_in(data)
    assert found == ({**late, **early} if is_restored else late)
    assert {each.name for each in data.iterdir()} <= {"workspaces", "trash"}
    assert len(list((data / "trash").glob("*.git"))) == (2 if is_restored else 0)


async def test_a_server_that_is_killed_in_a_backup_leaves_nothing_of_it(filled: FilledFolders, tmp_path: Path) -> None:
    data, log, file = tmp_path / "data", tmp_path / "server.log", tmp_path / "a.backup"
    await filled.copy(data, garden)
    async with running(data, log, fault="backup.workspace-written") as service:
        ran = await asyncio.to_thread(CliRunner().invoke, app, ["backup", str(file), "--address", service.address])
        assert ran.exit_code != 0
        await service.has_killed_itself()
    assert not await asyncio.to_thread(lambda: list(tmp_path.glob("*.backup*")))
    async with running(data, log):
        assert not await asyncio.to_thread(lambda: list(data.glob("backup*")))


async def test_a_kill_after_the_results_were_forgotten_leaves_no_answer_of_a_lost_commit(
    filled: FilledFolders, tmp_path: Path
) -> None:
    data, log, file = tmp_path / "data", tmp_path / "server.log", tmp_path / "early.backup"
    kept = await filled.copy(data, garden)
    async with running(data, log) as service:
        async with AsyncClient(service.address) as client:
            workspace = client.workspace("garden")
            chunks = [chunk async for chunk in client.back_up()]
            await asyncio.to_thread(file.write_bytes, b"".join(chunks))
            lost = await workspace.remember("Noted after the backup.", request_id="late")
            session = (await workspace.session()).id
        assert await service.stop() == 0
    await asyncio.to_thread(restore_backup, [file], data, replace=True)
    killed = Service(data, log, fault="restore.forgotten")
    killed.begin()
    await killed.has_killed_itself()
    async with running(data, log) as service, AsyncClient(service.address) as client:
        workspace = client.workspace("garden")
        assert (await workspace.remember("Noted before the backup.", request_id="early")).commit_id == kept
        again = await workspace.remember("Noted after the backup.", request_id="late")
        assert again.commit_id != lost.commit_id
        assert (await workspace.node(again.node.id)).content == "Noted after the backup."
        assert (await workspace.resume(session).info()).state is SessionState.DETACHED
        assert not await asyncio.to_thread(lambda: list(data.glob("workspaces/*/memotree/restored")))
