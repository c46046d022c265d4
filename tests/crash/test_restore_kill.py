"""The first start after a restore is killed before it ends; the next one completes what that one began."""

import asyncio
import signal
from pathlib import Path

import pytest
from crash.service import Service, start
from memotree_storage.git.backup import restore_backup

from memotree.client import AsyncClient, SessionState

pytestmark = pytest.mark.requirement("USE-8", "STORE-2")


async def test_a_kill_after_the_results_were_forgotten_leaves_no_answer_of_a_lost_commit(tmp_path: Path) -> None:
    data, log, file = tmp_path / "data", tmp_path / "server.log", tmp_path / "early.backup"
    service = await start(data, log)
    try:
        async with AsyncClient(service.address) as client:
            await client.create_workspace("garden")
            garden = client.workspace("garden")
            kept = await garden.remember("Noted before the backup.", request_id="early")
            chunks = [chunk async for chunk in client.back_up()]
            await asyncio.to_thread(file.write_bytes, b"".join(chunks))
            lost = await garden.remember("Noted after the backup.", request_id="late")
            session = (await garden.session()).id
        assert await service.stop() == 0
        await asyncio.to_thread(restore_backup, file, data, replace=True)
        service = Service(data, log, fault="restore.forgotten")
        service.begin()
        assert await service.exit_status() == -signal.SIGKILL
        service = await start(data, log)
        async with AsyncClient(service.address) as client:
            garden = client.workspace("garden")
            assert (await garden.remember("Noted before the backup.", request_id="early")).commit_id == kept.commit_id
            again = await garden.remember("Noted after the backup.", request_id="late")
            assert again.commit_id != lost.commit_id
            assert (await garden.node(again.node.id)).content == "Noted after the backup."
            assert (await garden.resume(session).info()).state is SessionState.DETACHED
        assert not list(data.glob("workspaces/*/memotree/restored"))
    finally:
        service.kill()
