"""Verification names what Git has lost or damaged, whatever the server remembers of it."""

import pytest
from integration.damage import differences
from integration.pushes import push
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import TagDraft
from memotree_storage.verify import Difference, Step, verify


def lose(repository: GitRepository, *object_ids: str) -> None:
    """Delete the packs that have these objects; each has the pack of its commit or tag."""
    for index in (repository.path / "objects" / "pack").glob("*.idx"):
        if any(bytes.fromhex(object_id) in index.read_bytes() for object_id in object_ids):
            index.with_suffix(".pack").unlink()
            index.unlink()


@pytest.mark.requirement("STORE-4")
async def test_what_git_has_lost_is_named_though_the_server_has_read_it(lived_in: World) -> None:
    repository = lived_in.repository
    commit_id = push(lived_in, "lost", lived_in.node("Lost"), parent=await lived_in.head())
    tag_id = repository.write_tag(TagDraft("lost", "Lost\n", service_signature()), await lived_in.head())
    assert repository.move_ref("refs/tags/lost", None, tag_id)
    await lived_in.store.catch_up(lived_in.workspace)
    assert await differences(lived_in) == []
    lose(repository, commit_id, tag_id)
    assert repository.peel(commit_id) == commit_id, "the server still has it"
    found = [one.description for one in await differences(lived_in) if (one.store, one.what) == ("git", "ref")]
    for ref, object_id in (("refs/heads/lost", commit_id), ("refs/tags/lost", tag_id)):
        (told,) = (one for one in found if one.startswith(f"{ref} points to an object that is missing"))
        assert object_id in told


@pytest.mark.requirement("STORE-4")
async def test_a_commit_that_is_damaged_after_the_walk_is_a_difference(lived_in: World) -> None:
    head = push(lived_in, "main", lived_in.node("Damaged"))
    await lived_in.store.catch_up(lived_in.workspace)
    found: list[Difference | Step] = []
    async for each in verify(lived_in.store, lived_in.workspace):
        found.append(each)
        if isinstance(each, Step) and (each.name, each.done) == ("commits", 0):
            damage(lived_in.repository, head)
    (told,) = (each for each in found if isinstance(each, Difference) and each.commit_id == head)
    assert (told.store, told.what) == ("git", "object")
    assert told.description.startswith(f"Commit {head} cannot be read completely. Object {head}")
    assert isinstance(found[-1], Step)
    assert found[-1].name == "index", "everything else was compared"


def damage(repository: GitRepository, object_id: str) -> None:
    """Overwrite the pack that has this object, where it is."""
    for index in (repository.path / "objects" / "pack").glob("*.idx"):
        if bytes.fromhex(object_id) in index.read_bytes():
            pack = index.with_suffix(".pack")
            pack.chmod(0o600)
            with pack.open("r+b") as file:
                file.write(bytes(pack.stat().st_size))
