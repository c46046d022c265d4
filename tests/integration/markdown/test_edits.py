"""Edits of an export come back as exactly those edits, whatever was committed meanwhile; a preview tells them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.markdown.states import state

from memotree.client import (
    AbortedError,
    FailedPreconditionError,
    MarkdownFolderError,
    MarkdownImport,
    MemoTreeClientError,
    Workspace,
)
from memotree.client.markdown import importing

pytestmark = pytest.mark.requirement("GIT-11")


@pytest.fixture
def ops(workspace: Workspace, folder: Path) -> Path:
    """The folder of the archive ``ops`` in an export: Retries with Deadlines and Pauses below it, and Plans."""
    with workspace.session(agent="ada") as session:
        archive = session.create_archive("ops", description="How we run it.")
        retries = session.create("Retries", "At most five.", archive=archive, tags=["grpc"])
        deadlines = session.create("Deadlines", "Thirty seconds.", parent=retries, attributes={"owner": "ada"})
        session.create("Pauses", "Growing ones.", parent=retries)
        session.create("Plans", "None.", archive=archive)
        session.relate(deadlines, "EXTENDS", retries, description="why")
        session.commit("Fill")
    workspace.export_markdown(folder)
    return folder / "ops"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_bytes().decode()
    assert old in text
    file.write_bytes(text.replace(old, new).encode())


def place(file: Path) -> str:
    return file.read_text().partition("position: ")[2].partition("\n")[0]


def told(done: MarkdownImport) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.kind, each.title, each.fields) for each in done.edits]


def titles(workspace: Workspace) -> list[tuple[int, str]]:
    return [(each.depth, each.node.title) for each in workspace.walk(archive="ops")]


def subjects(workspace: Workspace) -> list[str]:
    return [commit.subject for commit in workspace.log()]


def test_each_edit_comes_back_as_that_edit_and_as_one_commit(workspace: Workspace, folder: Path, ops: Path) -> None:
    ids = {each.node.title: each.node.id for each in workspace.walk(archive="ops")}
    edit(ops / "Retries.md", "At most five.", "At most six.")
    edit(ops / "Retries.md", "  - grpc\n", "  - grpc\n  - http\n")
    edit(ops / "Retries/Deadlines.md", "title: Deadlines", "title: Time limits")
    edit(ops / "Retries/Deadlines.md", "owner: ada", "owner: bob")
    edit(ops / "Retries/Deadlines.md", "— why", "— they need each other")
    (ops / "Retries/Pauses.md").rename(ops / "Waits.md")
    (ops / "Retries/New.md").write_text("Fresh. #idea\n")
    edit(folder / "ops.md", "How we run it.", "How it runs.")
    expected = [
        ("update", "ops", ("description",)),
        ("update", "Retries", ("content", "tags")),
        ("move", "Waits", ()),
        ("update", "Waits", ("title",)),
        ("update", "Time limits", ("attributes", "title")),
        ("create", "New", ()),
        ("update", "Time limits", ("relations",)),
    ]
    before = state(workspace)
    assert sorted(told(workspace.import_markdown(folder, preview=True))) == sorted(expected)
    assert state(workspace) == before

    done = workspace.import_markdown(folder, message="What we learned", agent="bob")
    assert sorted(told(done)) == sorted(expected)
    assert sorted(titles(workspace)) == [(0, "Plans"), (0, "Retries"), (0, "Waits"), (1, "New"), (1, "Time limits")]
    assert workspace.node(ids["Pauses"]).title == "Waits"
    limits = workspace.node(ids["Deadlines"])
    assert (limits.title, limits.attributes["owner"]) == ("Time limits", "bob")
    assert [each.description for each in limits.relations] == ["they need each other"]
    assert workspace.node(ids["Retries"]).content == "At most six."
    assert workspace.archive("ops").description == "How it runs."
    assert subjects(workspace)[0] == "What we learned"
    assert next(commit.author.name for commit in workspace.log()) == "bob"


def test_the_folder_shows_the_new_commit_afterwards(workspace: Workspace, folder: Path, ops: Path) -> None:
    (ops / "New.md").write_text("Fresh.\n")
    (ops / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".git").mkdir()
    workspace.remember("Seen meanwhile.", title="Meanwhile", archive="ops")
    workspace.import_markdown(folder)
    assert "id: " in (ops / "New.md").read_text()
    assert (ops / "Meanwhile.md").exists()
    assert (ops / "picture.png").read_bytes() == b"\x89PNG"
    assert (folder / ".git").is_dir()
    assert workspace.import_markdown(folder).edits == ()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["export"]
    (ops / "Newer.md").write_text("Fresh.\n")
    for _ in range(2):  # without a refresh it is not made twice, either
        workspace.import_markdown(folder, refresh=False)
    assert [title for _, title in titles(workspace)].count("Newer") == 1


def test_what_was_committed_meanwhile_is_merged_by_field(workspace: Workspace, folder: Path, ops: Path) -> None:
    edit(ops / "Retries.md", "At most five.", "At most six.")
    retries = next(each.node for each in workspace.walk(archive="ops") if each.node.title == "Retries")
    workspace.revise(retries.id, title="Retry rules")
    done = workspace.import_markdown(folder)
    assert done.is_behind
    assert told(done) == [("update", "Retries", ("content",))]
    node = workspace.node(retries.id)
    assert (node.title, node.content) == ("Retry rules", "At most six.")
    assert [branch.name for branch in workspace.branches()] == ["main"]


def test_a_conflict_refuses_the_import_or_waits_in_a_session(workspace: Workspace, folder: Path, ops: Path) -> None:
    edit(ops / "Plans.md", "None.", "Launch in May.")
    plans = next(each.node for each in workspace.walk(archive="ops") if each.node.title == "Plans")
    workspace.revise(plans.id, "Launch in June.")
    before = subjects(workspace)
    with pytest.raises(AbortedError) as refused:
        workspace.import_markdown(folder)
    assert [conflict.field for conflict in refused.value.conflicts] == ["content"]
    assert subjects(workspace) == before
    assert list(workspace.sessions()) == []

    kept = workspace.import_markdown(folder, keep_conflicts=True)
    assert (kept.commit_id, kept.conflict_count) == ("", 1)
    session = workspace.resume(kept.session_id)
    session.resolve(others="THEIRS")
    session.commit("Take the folder's side")
    assert workspace.node(plans.id).content == "Launch in May."
    assert [branch.name for branch in workspace.branches()] == ["main"]


def test_removed_files_delete_nothing_unless_that_is_asked_for(workspace: Workspace, folder: Path, ops: Path) -> None:
    (ops / "Retries.md").unlink()
    assert workspace.import_markdown(folder, delete=True, refresh=False).edits == (), "its folder stays"
    assert titles(workspace)[0] == (0, "Retries")
    shutil.rmtree(ops / "Retries")
    done = workspace.import_markdown(folder)
    assert (done.edits, [each.title for each in done.missing]) == ((), ["Retries", "Deadlines", "Pauses"])
    deleted = workspace.import_markdown(folder, delete=True)
    assert told(deleted) == [("delete", title, ()) for title in ("Retries", "Deadlines", "Pauses")]
    assert titles(workspace) == [(0, "Plans")]
    shutil.rmtree(ops)
    (folder / "ops.md").unlink()
    (folder / "team/people").mkdir(parents=True)
    (folder / "team/people/Ada.md").write_text("Leads.\n")
    workspace.import_markdown(folder, delete=True)
    assert [archive.name for archive in workspace.archives()] == ["team"]
    assert [(each.depth, each.node.title) for each in workspace.walk(archive="team")] == [(0, "people"), (1, "Ada")]


def test_a_parent_and_its_child_change_places(workspace: Workspace, folder: Path, ops: Path) -> None:
    ids = {each.node.title: each.node.id for each in workspace.walk(archive="ops")}
    (ops / "Retries/Deadlines.md").rename(ops / "Deadlines.md")
    (ops / "Deadlines").mkdir()
    (ops / "Retries.md").rename(ops / "Deadlines/Retries.md")
    (ops / "Retries").rename(ops / "Deadlines/Retries")
    done = workspace.import_markdown(folder)
    assert [(each.kind, each.title) for each in done.edits] == [("move", "Deadlines"), ("move", "Retries")]
    found = {each.node.id: (each.depth, each.node.title) for each in workspace.walk(archive="ops")}
    assert found == {
        ids["Deadlines"]: (0, "Deadlines"),
        ids["Retries"]: (1, "Retries"),
        ids["Pauses"]: (2, "Pauses"),
        ids["Plans"]: (0, "Plans"),
    }


def test_the_order_of_siblings_can_be_changed_and_carriage_returns_everywhere_change_nothing(
    workspace: Workspace, folder: Path, ops: Path
) -> None:
    for file in folder.rglob("*.md"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert workspace.import_markdown(folder).edits == ()
    first, last = (place(ops / f"{name}.md") for name in ("Retries", "Plans"))
    edit(ops / "Retries.md", f"position: {first}", f"position: {last}z")
    done = workspace.import_markdown(folder)
    assert len(done.edits) == 1
    assert [title for depth, title in titles(workspace) if depth == 0] == ["Plans", "Retries"]


DAMAGED = (
    ("Copy.md", None, "ops/Retries.md:2: has the id of ops/Copy.md"),
    ("Bad.md", b"---\ntitle: [\n---\n", "ops/Bad.md:3: its front matter is not YAML"),
    ("Bytes.md", b"a\n\xff\n", "ops/Bytes.md:2: it is not UTF-8"),
    ("Control.md", b"a\nb\x00c\n", "ops/Control.md:2: has a control character (U+0000)"),
    ("../Top.md", b"A note\n", "Top.md: is a new note; put it into the folder of an archive"),
    ("Type.md", b"---\nid: 4f8rjw2m6tq0x9ka\ntype: wrong kind\n---\n", "ops/Type.md: "),
    ("Plans.MD", b"Another.\n", "ops/Plans.md: has the name of another file"),
    ("Huge.md", b"x" * ((16 << 20) + 1), "ops/Huge.md: has 16,777,217 bytes"),
    ("Large.md", b"x" * (1 << 21), "ops/Large.md: "),
)


def test_what_cannot_be_imported_is_told_with_file_and_line_and_changes_nothing(
    workspace: Workspace, folder: Path, ops: Path
) -> None:
    edit(ops / "Plans.md", "None.", "Another text.")
    before = state(workspace)
    for name, data, told in DAMAGED:
        (ops / name).write_bytes((ops / "Retries.md").read_bytes() if data is None else data)
        with pytest.raises(MemoTreeClientError) as refused:
            workspace.import_markdown(folder)
        assert told in refused.value.message
        assert state(workspace) == before, name
        assert list(workspace.sessions()) == [], name
        assert [branch.name for branch in workspace.branches()] == ["main"], name
        assert list(folder.parent.iterdir()) == [folder], name
        (ops / name).unlink()
    (ops / "Link.md").symlink_to(ops / "Plans.md")
    (ops / "Loop").symlink_to(folder.parent)
    with pytest.raises(MarkdownFolderError, match=r"ops/Link\.md: is a link.*; ops/Loop: is a link"):
        workspace.import_markdown(folder)
    assert state(workspace) == before, "links are not followed"


def test_a_folder_that_is_no_export_or_was_edited_is_not_replaced(
    workspace: Workspace, folder: Path, ops: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(FailedPreconditionError, match="no export of MemoTree"):
        workspace.export_markdown(other)
    edit(ops / "Plans.md", "None.", "Mine.")
    with pytest.raises(FailedPreconditionError, match="were edited since"):
        workspace.export_markdown(folder)
    assert "Mine." in (ops / "Plans.md").read_text()
    workspace.export_markdown(folder, replace=True)
    assert "None." in (ops / "Plans.md").read_text()


def test_an_export_of_a_part_or_an_older_commit_is_compared_with_that_alone_and_carried_to_another_workspace(
    workspace: Workspace, new_workspace: Callable[[], Workspace], folder: Path, tmp_path: Path
) -> None:
    one = workspace.remember("One.", title="One", archive="first")
    two = workspace.remember("Two.", title="Two", archive="second")
    with workspace.session() as session:
        session.relate(two.id, "EXTENDS", one.id)
        session.commit("Relate")
    exported = workspace.export_markdown(folder, ["second"])
    assert (exported.archives, exported.nodes) == (1, 1)
    assert workspace.import_markdown(folder).edits == ()
    other = new_workspace()
    done = other.import_markdown(folder, refresh=False)
    assert done.warnings == ("left out, since the workspace does not have their targets: 1 relations",)
    assert (other.node(two.id).content, other.node(two.id).relations) == ("Two.", ())
    workspace.revise(one.id, "Three.")
    workspace.at(one.commit_id).export_markdown(tmp_path / "older")
    assert (tmp_path / "older/first/One.md").read_text().endswith("---\nOne.\n")
    (folder / "second/Two.md").unlink()
    workspace.import_markdown(folder, delete=True)
    assert [each.node.title for name in ("first", "second") for each in workspace.walk(archive=name)] == ["One"]


def test_a_file_that_is_saved_while_the_edits_are_committed_is_not_replaced(
    workspace: Workspace, folder: Path, ops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(ops / "Plans.md", "None.", "Launch.")
    real = importing.stage

    async def stage(*args: Any) -> None:
        await real(*args)
        edit(ops / "Plans.md", "Launch.", "Launch in May.")

    monkeypatch.setattr(importing, "stage", stage)
    done = workspace.import_markdown(folder)
    assert done.commit_id
    assert "was not written again" in done.warnings[0]
    assert "Launch in May." in (ops / "Plans.md").read_text()
    monkeypatch.undo()
    with pytest.raises(AbortedError):  # the two edits of one field are somebody's to decide
        workspace.import_markdown(folder)
    assert "Launch in May." in (ops / "Plans.md").read_text()
