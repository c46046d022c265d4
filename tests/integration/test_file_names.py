"""In the repository, a person sees titles, and the identity of a file is the id in its name."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from by_hand import file_changes
from integration.histories import git
from integration.pushes import differences, push, push_files, rows
from integration.worlds import World
from memotree_storage.git.entry_files import entry_files
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.paths import archive_path, entry_path, node_path
from memotree_storage.model.readme import FORMAT_VERSION, README_PATH, describe_layout, read_format_version
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-2")


def names(world: World, commit_id: str, *entries: Entry) -> list[str]:
    """The paths of all files of entries in a commit."""
    found = entry_files(world.repository, commit_id, [entry.id for entry in entries])
    return [file.path for entry in entries for file in found[entry.id]]


async def told(world: World) -> list[str]:
    """The paths of the faults in the mirror."""
    faults = "select path from mirror.fault where workspace_id = %s order by path"
    return [path for (path,) in await rows(world.store, faults, world.workspace)]


async def title(world: World, node: Node) -> str:
    """The title of a node at the head of main."""
    async with world.store.database.connection() as conn:
        found = await tree.versions(Snapshot(conn, State(world.workspace, await world.head())), [node.id])
    return found[node.id].title


# --- what MemoTree writes --------------------------------------------------------------------------------------------


async def test_git_log_shows_the_titles_of_the_changed_nodes(world: World) -> None:
    await world.put(world.node("Why we chose Git"), world.node("上下文管理器"), world.node("🎉"))
    stat = git(world, "log", "-1", "--stat=200", "--format=", "main")
    assert "-why-we-chose-git.md" in stat
    assert "-上下文管理器.md" in stat
    assert git(world, "ls-tree", "--name-only", "-r", "main", "archives") == entry_path(world.archive) + "\n"
    assert entry_path(world.archive).endswith("-notes.md")
    renamed = replace(world.archive, name="Old decisions")
    assert names(world, await world.put(renamed), renamed) == [archive_path(world.archive.id, "old-decisions")]


async def test_a_new_title_moves_the_file_in_the_same_commit(world: World) -> None:
    node = world.node("First title", content="A text.\n" * 9)
    await world.put(node)
    renamed = replace(node, title="Second title")
    commit_id = await world.put(renamed)
    moved = git(world, "show", "--format=", "--name-status", "-M", commit_id)
    assert moved.split("\t")[1:] == [entry_path(node), entry_path(renamed) + "\n"]
    assert await differences(world.store, world.workspace) == []


async def test_the_life_of_a_node_can_be_followed_by_its_id(world: World, history: HistoryOperations) -> None:
    node = world.node("First", content="One.\n" * 9)
    others = [world.node("First"), world.node("Second")]
    commits = [await world.put(node, *others)]
    second = replace(node, title="Second")
    for number, changed in enumerate((second, replace(second, content="Two."), replace(node, title="🎉"))):
        commits.append(await world.put(changed))
        await world.put(replace(others[0], title=f"Other {number}"))
    gone = await world.put(delete=[node])
    every = f"{node_path(node.id).removesuffix('.md')}*"
    assert git(world, "log", "--format=%H", "main", "--", every).split() == [gone, *commits[::-1]]
    request = pb.ListNodeRevisionsRequest(workspace=world.workspace, node_id=node.id, revision=commits[-1])
    revisions = (await history.list_node_revisions(request)).revisions
    assert [one.commit.id for one in revisions] == commits[::-1]
    assert names(world, gone, node) == []


# --- what people write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["", "-", "-the old title", "-Größe (1)"])
async def test_a_file_with_any_slug_is_the_node_and_gets_its_title_at_the_next_change(world: World, rest: str) -> None:
    node = world.node("A title", content="Text.")
    path = node_path(node.id).removesuffix(".md") + rest + ".md"
    push_files(world, {path: encode_entry(node)})
    await world.store.catch_up(world.workspace)
    assert await title(world, node) == "A title"
    assert await differences(world.store, world.workspace) == []
    commit_id = await world.put(replace(node, content="Other text."))
    assert names(world, commit_id, node) == [entry_path(node)]
    assert await differences(world.store, world.workspace) == []


async def test_a_file_that_got_another_name_is_no_change_of_the_node(world: World) -> None:
    node = world.node("A title")
    commit_id = await world.put(node)
    push_files(world, {entry_path(node): None, node_path(node.id, "another name"): encode_entry(node)})
    await world.store.catch_up(world.workspace)
    assert await rows(world.store, "select count(*) from mirror.version where entry_id = %s", node.id) == [(1,)]
    assert await world.alive(await world.head()) == await world.alive(commit_id)
    assert await differences(world.store, world.workspace) == []
    assert names(world, await world.put(delete=[node]), node) == [], "it is removed under the name that it has"


async def test_of_two_files_with_one_id_the_first_is_the_node_and_the_other_is_reported(world: World) -> None:
    node = world.node("B title", content="The node.")
    await world.put(node)
    second, first = node_path(node.id), node_path(node.id, "a title")
    push_files(world, {second: encode_entry(replace(node, title="Plain"))})
    await world.store.catch_up(world.workspace)
    assert await title(world, node) == "B title"
    assert await told(world) == [second]
    (sentence,) = await differences(world.store, world.workspace)
    assert "is not read" in sentence
    assert node.id in sentence

    push_files(world, {first: encode_entry(replace(node, title="A title"))})
    await world.store.catch_up(world.workspace)
    assert await title(world, node) == "A title", "whatever was there before, the state follows from the commit"
    before = await world.alive(await world.head())
    await world.store.rebuild(world.workspace)
    assert await world.alive(await world.head()) == before
    assert len(set(await differences(world.store, world.workspace))) == 2

    commit_id = await world.put(replace(node, title="C title"))
    assert names(world, commit_id, node) == [node_path(node.id, "c-title")], "a change leaves one file"
    assert await differences(world.store, world.workspace) == []


async def test_a_renamed_file_that_cannot_be_read_is_reported_under_its_present_name(world: World) -> None:
    node_id = new_id()
    push_files(world, {node_path(node_id, "a"): b"nothing"})
    await world.store.catch_up(world.workspace)
    push_files(world, {node_path(node_id, "a"): None, node_path(node_id, "b"): b"nothing"})
    await world.store.catch_up(world.workspace)
    (sentence,) = await differences(world.store, world.workspace)
    assert node_path(node_id, "b") in sentence


async def test_names_that_are_no_text_or_very_long_are_read_and_reported_like_others(world: World) -> None:
    node, broken = world.node("A title"), new_id()
    odd = node_path(node.id).removesuffix(".md").encode() + b"-caf\xe9.md"
    long = node_path(broken).removesuffix(".md").encode() + b"-" + b"x" * 3000 + b"\xff.md"
    parts = [b"commit refs/heads/main\ncommitter P <p> 1 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"]
    for path, text in ((odd, encode_entry(node)), (long, b"no")):
        parts.append(b"M 644 inline %s\ndata %d\n%s\n" % (path, len(text), text))
    command = ["git", "-C", str(world.repository.path), "fast-import", "--quiet"]
    subprocess.run(command, check=True, input=b"".join(parts))  # noqa: ASYNC221, S603 - our own
    await world.store.catch_up(world.workspace)
    assert await title(world, node) == "A title"
    (path_told,) = await told(world)
    assert path_told.startswith(node_path(broken).removesuffix(".md"))
    (sentence,) = await differences(world.store, world.workspace)
    assert broken in sentence
    commit_id = await world.put(replace(node, title="Better"))
    assert names(world, commit_id, node) == [node_path(node.id, "better")]


async def test_a_merge_by_hand_of_a_new_title_and_a_new_text_has_both(world: World, tmp_path: Path) -> None:
    node = world.node("First title", content="".join(f"Line {number} of the text.\n" for number in range(20)))
    base = await world.put(node)
    assert world.repository.move_ref("refs/heads/side", None, base)
    await world.store.catch_up(world.workspace)
    edited = replace(node, content=node.content.replace("Line 17", "The line 17"))
    await world.put(edited, branch="side")
    await world.put(replace(node, title="Second title"))
    clone = str(tmp_path / "clone")
    who = ["-c", "user.name=P", "-c", "user.email=p@example.org"]
    git(world, "clone", "-q", ".", clone)
    git(world, "-C", clone, *who, "merge", "-q", "--no-edit", "origin/side")
    git(world, "-C", clone, "push", "-q")
    await world.store.catch_up(world.workspace)
    merged = replace(edited, title="Second title")
    assert names(world, await world.head(), node) == [entry_path(merged)]
    assert world.repository.read_path(await world.head(), entry_path(merged)) == encode_entry(merged)
    assert await title(world, node) == "Second title"
    assert await differences(world.store, world.workspace) == []


async def test_a_session_that_lost_the_race_to_a_rename_is_merged(world: World) -> None:
    node = world.node("First", content="Text.")
    await world.put(node)
    session = await world.open()
    await world.stage(session, replace(node, content="New text."))
    push(world, "main", replace(node, title="Second"))
    commit_id = await world.commit(session)
    assert names(world, commit_id, node) == [node_path(node.id, "Second")]
    assert await title(world, node) == "Second"
    assert await differences(world.store, world.workspace) == []


# --- repositories of version 1 ---------------------------------------------------------------------------------------


async def of_version_1(world: World, *entries: Entry, readme: bytes | None = None) -> str:
    """Make the repository one of version 1, whose files are named by ids alone."""
    old = describe_layout().replace(b"Format version: %d" % FORMAT_VERSION, b"Format version: 1")
    changes = file_changes(
        world.repository,
        world.repository.refs()["refs/heads/main"],
        {entry.id: entry for entry in (world.archive, *entries)},
        lambda entry: archive_path(entry.id) if isinstance(entry, Archive) else node_path(entry.id),
    )
    commit_id = push_files(world, {**changes, README_PATH: readme or old})
    await world.store.catch_up(world.workspace)
    return commit_id


async def test_a_repository_with_files_named_by_ids_is_used_without_a_migration(world: World) -> None:
    one, two = world.node("One", position="a0"), world.node("Two", position="a1")
    base = await of_version_1(world, one, two)
    assert await differences(world.store, world.workspace) == []
    commit_id = await world.put(replace(one, content="Changed."))
    assert names(world, commit_id, one, two) == [entry_path(one), node_path(two.id)]
    changed = {change.path for change in world.repository.diff(base, commit_id)}
    assert changed == {node_path(one.id), entry_path(one), README_PATH}
    assert await differences(world.store, world.workspace) == []


async def test_the_first_commit_says_that_older_programs_cannot_read_the_names(world: World) -> None:
    edited = b"# Ours\n\nFormat version: 1\nKept.\n"
    await of_version_1(world, readme=edited)
    commit_id = await world.put(world.node("One"))
    readme = world.repository.read_path(commit_id, README_PATH)
    assert readme == edited.replace(b"1", b"2")
    assert read_format_version(readme) == FORMAT_VERSION
    again = await world.put(world.node("Two"))
    assert README_PATH not in {change.path for change in world.repository.diff(commit_id, again)}
