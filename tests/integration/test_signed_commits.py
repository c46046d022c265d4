"""With a key in the settings, everything that MemoTree commits is signed, whichever call made it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.git.signing import load_signer
from unit.storage.git.test_signing import made

from memotree.v1 import history_service_pb2

pytestmark = [pytest.mark.requirement("GIT-11"), pytest.mark.own_store]


def git(repository: Path, allowed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("-c", "safe.directory=*", "-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={allowed}")
    command = ["git", "--git-dir", str(repository), *options, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603


def signer(folder: Path) -> tuple[Path, Path]:
    """A new key, and the file of those who may sign."""
    key, allowed = made(folder / "key"), folder / "allowed-signers"
    allowed.write_text(f"memotree@localhost {key.with_name('key.pub').read_text()}")
    return key, allowed


@pytest.fixture
def allowed(world: World, tmp_path: Path) -> Path:
    """The file of those who may sign, after the world got a key."""
    key, file = signer(tmp_path)
    world.store.repositories.signer = load_signer(key)
    world.store.repositories.replaced(world.workspace)
    return file


def unsigned(world: World, allowed: Path, *revisions: str) -> list[str]:
    """The subjects of the commits without a good signature, the newest first."""
    shown = git(world.repository.path, allowed, "log", "--format=%G? %s", *revisions).stdout.splitlines()
    return [line[2:] for line in shown if not line.startswith("G ")]


async def test_commits_merges_reverts_records_and_tags_are_signed(sides: Sides, world: World, allowed: Path) -> None:
    before = await world.head()
    one, two = world.nodes(2)
    await sides.fork(one, two)
    ours = await world.put(replace(one, title="Ours"), tag="v1")
    await world.put(replace(two, title="Theirs"), branch="side")
    await sides.merge()
    await sides.revert(ours)
    world.store.repositories.update(world.store.repositories.describe(world.workspace), "Describe it again")
    await sides.history.create_tag(
        history_service_pb2.CreateTagRequest(workspace=world.workspace, name="v2", message="The second")
    )
    assert unsigned(world, allowed, f"{before}..main") == []
    assert unsigned(world, allowed, "-1", "refs/memotree/workspace") == []
    for tag in ("v1", "v2"):
        assert git(world.repository.path, allowed, "verify-tag", tag).returncode == 0
