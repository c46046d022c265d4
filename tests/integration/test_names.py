"""Ambiguous names: refused in calls, and told apart if they come from Git."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.node import new_id
from memotree_storage.postgres import registry, sessions

from memotree.server.app import Server

INVALID = "INVALID_ARGUMENT"


async def git(wire: Wire, server: Server, *arguments: str) -> str:
    """Change the workspace's repository as a person would, and let the mirror catch up."""
    path = Path(server._settings.data_folder) / (await wire("GetWorkspace")).workspace.repository
    command = ["git", "-C", str(path), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221, S603 - short
    await wire.open()
    return answer.strip()


async def two_commits(wire: Wire) -> tuple[str, str]:
    """Two commits on ``main`` behind each other."""
    await wire.create("First")
    first = await wire.commit()
    await wire.create("Second")
    return first, await wire.commit()


async def commit_at(wire: Wire, revision: str) -> str:
    """The commit that a revision reads."""
    return str((await wire("GetCommit", revision=revision)).commit.id)


# --- workspaces ---


@pytest.mark.requirement("CANVAS-15")
async def test_a_workspace_name_that_looks_like_an_id_is_refused(wire: Wire) -> None:
    first = (await wire("GetWorkspace")).workspace
    for name in (first.id, new_id()):
        for method in ("CreateWorkspace", "UpdateWorkspace"):
            refusal = await wire.refused(method, name=name)
            assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "CONFUSING_NAME", ("name",))
    assert (await wire("GetWorkspace", workspace=first.id)).workspace == first
    assert first in (await wire("ListWorkspaces", page_size=1000)).workspaces


@pytest.mark.own_store
@pytest.mark.requirement("CANVAS-15")
async def test_a_copied_workspace_named_like_another_ones_id_is_not_confused_with_it(world: World) -> None:
    own = world.workspace
    told = world.store.repositories.describe(own)
    impostor = replace(told, workspace_id=new_id(), name=own)
    world.store.repositories.create(impostor)
    session = await world.open("main")
    async with world.store.database.transaction() as conn:
        await registry.put_workspace(conn, impostor)
        assert (await registry.find_workspace(conn, own)).workspace_id == own
        assert (await registry.resolve(conn, own, "main"))[0].workspace_id == own
        assert (await sessions.hold_session(conn, own, session)).workspace_id == own
        assert (await registry.find_workspace(conn, told.name)).workspace_id == own
        assert (await registry.find_workspace(conn, impostor.workspace_id)).name == own


# --- branches and tags ---


@pytest.mark.requirement("GIT-3", "CANVAS-6")
async def test_a_branch_and_a_tag_never_share_a_name(wire: Wire) -> None:
    first, head = await two_commits(wire)
    await wire("CreateBranch", name="line", revision=first)
    await wire("CreateTag", name="v1", revision=first)
    await wire.create("Third")
    before = await wire.snapshot()
    for method, fields, field, taken in (
        ("CreateBranch", {"name": "v1"}, "name", "refs/tags/v1"),
        ("CreateTag", {"name": "line"}, "name", "refs/heads/line"),
        ("CreateTag", {"name": "main"}, "name", "refs/heads/main"),
        ("CommitChanges", {"message": "m", "create_tag": True, "tag_name": "line"}, "tag_name", "refs/heads/line"),
    ):
        refusal = await wire.refused(method, **fields)
        assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "CONFUSING_NAME", (field,))
        assert taken in refusal.message
        assert "hoose another" in refusal.message
    assert await wire.snapshot() == before
    assert await commit_at(wire, "v1") == await commit_at(wire, "line") == first
    assert await commit_at(wire, "main") == head
    await wire("DeleteTag", name="v1")
    assert (await wire("CreateBranch", name="v1")).branch.commit_id == head


@pytest.mark.requirement("GIT-3", "CANVAS-6")
@pytest.mark.parametrize(
    "name",
    ["f" * 40, "heads/main", "tags/v1", "main\u202e", "\ufeffmain", "ma\u200bin", "\u200d", "a/\u200d", "x\u2066y"],
)
async def test_a_branch_or_tag_name_that_git_could_read_differently_is_refused(untouched: Wire, name: str) -> None:
    for method, fields, field in (
        ("CreateBranch", {"name": name}, "name"),
        ("CreateTag", {"name": name}, "name"),
        ("CommitChanges", {"message": "m", "create_tag": True, "tag_name": name}, "tag_name"),
    ):
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "CONFUSING_NAME", (field,))


@pytest.mark.requirement("GIT-3")
async def test_names_of_characters_that_resemble_digits_are_allowed(wire: Wire) -> None:
    joined = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # a Persian word is written with a joiner
    for name in ("abc", "2024", "beef", "0123456789ab", "v2024", "2024-11", joined, "BEEF", "release/2024", "tagged"):
        await wire("CreateBranch", name=name)


@pytest.mark.requirement("GIT-3", "GIT-4")
async def test_a_name_of_both_a_branch_and_a_tag_must_be_a_full_ref_name(wire: Wire, wire_server: Server) -> None:
    first, head = await two_commits(wire)
    await git(wire, wire_server, "branch", "v1", head)
    await git(wire, wire_server, "tag", "v1", first)
    refusal = await wire.refused("GetCommit", revision="v1")
    assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "AMBIGUOUS_REVISION", ("revision",))
    assert "refs/heads/v1" in refusal.message
    assert "refs/tags/v1" in refusal.message
    refusal = await wire.refused("DiffRevisions", old_revision="v1", new_revision="main")
    assert (refusal.reason, refusal.fields) == ("AMBIGUOUS_REVISION", ("old_revision",))
    assert await commit_at(wire, "refs/heads/v1") == head
    assert await commit_at(wire, "refs/tags/v1") == first
    await wire.open(branch="v1")
    await wire("DeleteBranch", name="v1")
    assert await commit_at(wire, "v1") == first


@pytest.mark.requirement("GIT-3", "GIT-4")
async def test_a_tag_named_like_the_default_branch_does_not_block_it(wire: Wire, wire_server: Server) -> None:
    first, head = await two_commits(wire)
    await git(wire, wire_server, "tag", "main", first)
    assert await commit_at(wire, "") == head
    assert (await wire("ListArchives")).archives
    await wire.create("Third")
    third = await wire.commit()
    assert await commit_at(wire, "") == third
    assert (await wire.refused("GetCommit", revision="main")).reason == "AMBIGUOUS_REVISION"
    await wire("DeleteTag", name="main")
    assert await commit_at(wire, "main") == third


@pytest.mark.requirement("GIT-3", "GIT-4")
async def test_full_ref_names_and_commit_ids_have_precedence_over_refs_with_such_names(world: World) -> None:
    first, head = await world.put(world.node()), await world.put(world.node())
    repository: GitRepository = world.repository
    for ref in (f"refs/heads/{first}", "refs/heads/refs/heads/main", "refs/tags/refs/heads/main"):
        assert repository.move_ref(ref, None, head if ref.endswith(first) else first)
    await world.store.catch_up(world.workspace)
    async with world.store.database.connection() as conn:
        for revision, expected in ((first, first), ("refs/heads/main", head), (f"refs/heads/{first}", head)):
            found = (await registry.resolve(conn, world.workspace, revision))[1]
            assert found.state.commit_id == expected, revision


# --- relations of an archive that goes ---


@pytest.mark.requirement("CANVAS-15", "CANVAS-10")
async def test_deleting_an_archive_warns_about_relations_to_its_nodes(wire: Wire) -> None:
    await wire("CreateArchive", name="plans")
    goal = (await wire("CreateNode", archive_id="plans", title="Goal")).node
    step = (await wire("CreateNode", parent_id=goal.id, title="Step")).node
    note = await wire.create("Note")
    for source, target, kind in (
        (note, goal, "ABOUT"),
        (note, step, "REFERENCES"),
        (step, goal, "PART_OF"),
        (step, note, "EXTENDS"),
    ):
        await wire("AddRelation", node_id=source.id, relation={"type": f"RELATION_TYPE_{kind}", "target_id": target.id})
    answer = await wire("DeleteArchive", archive="plans")
    assert answer.deleted_nodes == 2
    assert sorted(answer.warnings) == sorted(
        [
            f"{note.id} (Note) has an ABOUT relation to {goal.id}, which is deleted.",
            f"{note.id} (Note) has a REFERENCES relation to {step.id}, which is deleted.",
        ]
    )
    await wire("CreateArchive", name="empty")
    await wire("CreateArchive", name="goals")
    goal = (await wire("CreateNode", archive_id="goals", title="Goal")).node
    assert list((await wire("DeleteArchive", archive="empty")).warnings) == []
    relations = [{"type": "RELATION_TYPE_ABOUT", "target_id": goal.id}]
    creates = [{"create": {"archive_id": "notes", "title": f"n{n}", "relations": relations}} for n in range(103)]
    await wire("BatchChangeNodes", changes=creates)
    warnings = (await wire("DeleteArchive", archive="goals")).warnings
    assert (len(warnings), warnings[-1].startswith("3 more relations ")) == (101, True), "the list is limited"


@pytest.mark.requirement("CANVAS-15")
async def test_a_full_archive_id_has_precedence_over_the_names_of_other_archives(wire: Wire) -> None:
    first = (await wire("CreateArchive", name="first")).archive
    second = (await wire("CreateArchive", name=first.id)).archive
    assert (await wire("GetArchive", revision=wire.session, archive=first.id)).archive.name == "first"
    assert (await wire("GetArchive", revision=wire.session, archive=second.id)).archive.name == first.id
