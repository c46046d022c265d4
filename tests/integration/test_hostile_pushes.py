"""What anybody can push: values that no store can take stop neither their workspace nor another one, and are told."""

import secrets
from typing import Any

import psycopg
import pytest
from integration.pushes import OpenAgain, differences, push, rows
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import CommitNotMirroredError
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft, CommitInfo, Signature
from memotree_storage.postgres.database import DatabaseFullError
from memotree_storage.store import Store

from memotree.maintenance import MaintenanceOperations
from memotree.v1 import maintenance_service_pb2 as maintenance_pb

pytestmark = pytest.mark.requirement("STORE-8")


def noise(characters: int) -> str:
    """Text that no compression shortens."""
    return secrets.token_hex(characters // 2)


def commit_by_hand(repository: GitRepository, message: str, *, name: str = "A person") -> str:
    """A commit on main that changes no file."""
    head = repository.refs()["refs/heads/main"]
    by = Signature(name, "person@example.org", service_signature().when)
    made = repository.write_commit(CommitDraft(head, {}, message, by, by)).commit_id
    assert repository.move_ref("refs/heads/main", head, made)
    return made


async def reasons(store: Store, limits: object) -> dict[str, str]:
    """What `GetStatus` says about workspaces that take no changes."""
    status = await MaintenanceOperations(store, limits).get_status(maintenance_pb.GetStatusRequest())  # type: ignore[arg-type]
    return {each.workspace_id: each.reason for each in status.set_aside}


async def test_trailers_that_are_no_ids_are_not_taken_for_ids(world: World, again: OpenAgain) -> None:
    long = push(world, "main", world.node(), request=noise(6000), session=noise(6000))
    odd = push(world, "main", world.node(), request="a\x07b", session="not an id")
    assert await world.put(world.node())
    found = await rows(
        world.store, "select session_id, request_id from mirror.commit where commit_id = any(%s)", [long, odd]
    )
    assert found == [(None, None), (None, None)]
    assert await differences(world.store, world.workspace) == []
    async with again() as store:
        assert store.set_aside == {}
        assert await differences(store, world.workspace) == []


async def test_a_ref_with_a_name_that_is_too_long_is_ignored_and_told(world: World, again: OpenAgain) -> None:
    head = world.repository.refs()["refs/heads/main"]
    packed = world.repository.path / "packed-refs"
    name = "refs/heads/" + "/".join(noise(200) for _ in range(18))
    packed.write_text(f"# pack-refs with: peeled fully-peeled sorted\n{head} {name}\n")
    assert await world.put(world.node())
    [told] = await differences(world.store, world.workspace)
    assert "longer than 1024 bytes; rename it with git" in told
    assert len(told) < 500
    async with again() as store:
        assert store.set_aside == {}


async def test_long_names_and_messages_are_cut_in_the_mirror_alone(world: World) -> None:
    message = f"A subject\n\n{'word ' * 100_000}\n\nMemoTree-Request: of-a-program\n"
    made = commit_by_hand(world.repository, message, name="name " * 10_000)
    assert await world.put(world.node())
    [(name, kept, request)] = await rows(
        world.store, "select author_name, message, request_id from mirror.commit where commit_id = %s", made
    )
    assert (len(name), request) == (1000, "of-a-program")
    assert kept.startswith("A subject\n\nword ")
    assert kept.endswith("\n…\n\nMemoTree-Request: of-a-program\n")
    assert len(kept) <= 32_768
    assert world.repository.commit_info(made).message == message
    assert await differences(world.store, world.workspace) == []


async def test_a_commit_that_postgresql_refuses_sets_only_its_workspace_aside(world: World, again: OpenAgain) -> None:
    """Whatever the next unforeseen value is: the others go on, and the way out is told."""
    other = await World.create(world.store, world.pages, world.limits, name="other")
    await refuse_messages(world.store, "Bad%")
    before = world.repository.refs()["refs/heads/main"]
    bad = commit_by_hand(world.repository, "Bad luck\n")
    with pytest.raises(CommitNotMirroredError, match=f"Commit {bad} cannot be mirrored") as refused:
        await world.put(world.node())
    assert await other.put(other.node())
    assert await reasons(world.store, world.limits) == {world.workspace: refused.value.message}
    assert any("takes no changes" in told for told in await differences(world.store, world.workspace))
    async with again() as store:
        assert set(store.set_aside) == {world.workspace}
        assert await other.on(store).put(other.node())
    assert world.repository.move_ref("refs/heads/main", bad, before)  # the way out that the error names
    assert await world.put(world.node())
    assert await reasons(world.store, world.limits) == {}
    assert await differences(world.store, world.workspace) == []


@pytest.mark.requirement("GIT-8")
async def test_a_push_while_refs_are_followed_hides_no_branch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new tip is not mirrored yet, so the branch stays where it was in the mirror, until it is."""
    node = world.node()
    await world.put(node)
    during = PushDuring(monkeypatch, world)
    push(world, "main", world.node())
    await world.store.catch_up(world.workspace)
    assert during.pushed == 1
    assert await world.head()
    assert await world.put(world.node())  # mirrors what was pushed, and goes on from there
    during.again()
    await world.store.rebuild(world.workspace)
    assert during.pushed == 2
    assert node.id in await world.alive(await world.head())
    assert await world.put(world.node())
    assert await differences(world.store, world.workspace) == []


class PushDuring:
    """Pushes to main once after the commits to mirror were listed, and before the refs are followed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        self.pushed = 0
        self._due = True
        history = GitRepository.history

        def listed(repository: GitRepository, *arguments: Any) -> list[CommitInfo]:
            found = history(repository, *arguments)
            if self._due:
                self._due = False
                self.pushed += 1
                push(world, "main", world.node())
            return found

        monkeypatch.setattr(GitRepository, "history", listed)

    def again(self) -> None:
        """Push once more."""
        self._due = True


async def refuse_messages(store: Store, pattern: str) -> None:
    async with store.database.connection() as conn:
        await conn.execute(
            f"alter table mirror.commit add constraint unforeseen check (message not like '{pattern}')".encode()
        )


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (psycopg.errors.ProgramLimitExceeded, psycopg.errors.ProgramLimitExceeded),
        (psycopg.errors.DiskFull, DatabaseFullError),
        (psycopg.errors.OutOfMemory, DatabaseFullError),
    ],
)
async def test_only_a_lost_connection_is_called_one(
    world: World, error: type[psycopg.Error], becomes: type[Exception]
) -> None:
    with pytest.raises(becomes):
        async with world.store.database.transaction():
            raise error
