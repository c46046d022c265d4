"""Merging and undoing from Python and from the terminal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from integration.wires import Wire
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import (
    AbortedError,
    AsyncClient,
    Author,
    ChangeSelection,
    ConflictKind,
    ConflictSide,
    FailedPreconditionError,
    Level,
    NotFoundError,
    Resolution,
    TextPartKind,
)
from memotree.client.workspace import AsyncWorkspace

pytestmark = pytest.mark.requirement("GIT-6", "GIT-7")

TEXT = "The pool has ten connections. It waits five seconds. Nobody knows why."
OURS = TEXT.replace("ten", "twenty")
THEIRS = TEXT.replace("Nobody", "Anna")


class Place:
    """A workspace with a note that ``main`` and ``idea`` have changed in different sentences."""

    def __init__(self, workspace: AsyncWorkspace, address: str, node_id: str) -> None:
        self.workspace = workspace
        self.node_id = node_id
        names = {"ADDRESS": address, "WORKSPACE": workspace.name, "AGENT": "anna"}
        self._environment = {"COLUMNS": "200", **{f"MEMOTREE_{name}": value for name, value in names.items()}}

    async def content(self, at: str = "main") -> str:
        return (await self.workspace.at(at).node(self.node_id, level=Level.DETAIL)).content

    async def change(self, branch: str, content: str) -> str:
        async with await self.workspace.session(agent="bob", branch=branch) as session:
            await session.update(self.node_id, content=content)
            return (await session.commit("Change the pool")).commit_id

    async def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command; what it prints, and what it says beside that."""
        ran = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=self._environment)
        assert ran.exit_code == code, ran.stderr
        return ran.stdout, ran.stderr


@pytest.fixture
async def place(wire: Wire, wire_server: Any) -> AsyncIterator[Place]:
    node = await wire.create("Pool", content=TEXT)
    await wire.commit()
    async with AsyncClient(wire_server.address) as client:
        workspace = client.workspace(wire.workspace)
        await workspace.branch("idea")
        found = Place(workspace, wire_server.address, node.id)
        await found.change("main", OURS)
        await found.change("idea", THEIRS)
        yield found


async def test_python_previews_and_merges(place: Place) -> None:
    workspace = place.workspace
    told = await workspace.preview_merge("idea")
    assert ([change.node_id for change in told.changes], told.conflicts) == ([place.node_id], ())
    assert any(change.diff for change in told.changes[0].fields)
    made = await workspace.merge("idea", message="Take the idea in")
    assert (made.branch, made.change_count, made.already_merged) == ("main", 1, False)
    merged = OURS.replace("Nobody", "Anna")
    assert await place.content() == merged
    node = await workspace.at(made.commit_id).node(place.node_id)
    assert node.summary == merged, "an automatic summary follows in the merge commit"
    assert node.summary in {field.new_value for field in told.changes[0].fields}, "and the preview has it"
    details = await workspace.show(made.commit_id)
    assert details.commit.subject == "Take the idea in"
    assert list(details.commit.parent_ids) == [told.branch_commit_id, told.source_commit_id]
    assert (await workspace.merge("idea")).already_merged
    assert (await workspace.merge("main", "idea", style="FAST_FORWARD")).commit_id == made.commit_id
    with pytest.raises(ValueError, match="SQUASH"):
        await workspace.merge("idea", style="octopus")  # type: ignore[arg-type] # what a program may give


@pytest.mark.requirement("GIT-5")
async def test_clients_compare_by_words_below_a_node_and_blame_sentences(place: Place) -> None:
    workspace = place.workspace
    base = (await workspace.show("main")).commit.parent_ids[0]
    found = await workspace.diff(base, "main", subtree=place.node_id, by_words=True)
    (parts,) = [field.parts for change in found.changes for field in change.fields if field.field == "content"]
    assert [(part.kind, part.text) for part in parts if part.kind != TextPartKind.KEPT] == [
        (TextPartKind.REMOVED, "ten"),
        (TextPartKind.ADDED, "twenty"),
    ]
    out, _ = await place.run("diff", base, "main", "--subtree", place.node_id, "--words")
    assert "The pool has [-ten-]{+twenty+} connections." in out
    await workspace.merge("idea")
    told = [(line.text, line.agent, line.line) for line in await workspace.blame(place.node_id, by_sentences=True)]
    assert told == [
        ("The pool has twenty connections.", "bob", 1),
        ("It waits five seconds.", "tester", 1),
        ("Anna knows why.", "bob", 1),
    ]
    out, _ = await place.run("blame", place.node_id, "--sentences")
    assert "It waits five seconds." in out


async def test_python_reverts_and_picks(place: Place) -> None:
    workspace = place.workspace
    told = await workspace.revert("main", preview=True)
    made = await workspace.revert("main")
    assert [one.node_id for one in made.changes] == [one.node_id for one in told.changes] == [place.node_id]
    assert await place.content() == TEXT
    picked = await workspace.cherry_pick("idea")
    assert (picked.branch, await place.content()) == ("main", THEIRS)
    with pytest.raises(FailedPreconditionError):
        await workspace.cherry_pick("idea")
    async with await workspace.session() as session:
        assert (await session.revert("main")).change_count == 1
        await session.commit("Take it back")
        assert await place.content() == TEXT
        assert (await session.cherry_pick("idea")).change_count == 1
        await session.commit("Take it in")
    assert await place.content() == THEIRS


async def test_the_terminal_previews_and_merges(place: Place) -> None:
    out, _ = await place.run("branch", "merge", "idea", "--preview")
    assert "+The pool has twenty connections. It waits five seconds. Anna knows why." in out
    assert "1 entry would change; 0 conflicts." in out
    assert await place.content() == OURS
    _, err = await place.run("branch", "merge", "idea")
    assert "idea is merged into main" in err
    assert await place.content() == OURS.replace("Nobody", "Anna")
    _, err = await place.run("branch", "merge", "idea")
    assert "has all of idea already" in err


async def test_the_terminal_undoes_the_last_commit_of_an_agent_or_a_session(place: Place) -> None:
    first = (await place.workspace.show("main")).commit
    _, err = await place.run("undo", code=2)
    assert "anna has no commit" in err
    _, err = await place.run("undo", "--agent", "bob", code=2)
    assert "Confirm with --yes" in err
    assert await place.content() == OURS
    await place.run("undo", "--agent", "bob", "--yes")
    assert await place.content() == TEXT
    _, err = await place.run("undo", "--yes")
    assert "is undone on main" in err
    assert await place.content() == OURS
    await place.change("main", "Nothing of it is left.")
    last = (await place.workspace.show("main")).commit
    _, err = await place.run("undo", "--session", last.session_id, "--agent", "bob", code=2)
    assert "cannot be given together" in err
    _, err = await place.run("undo", "--session", "zzzz", "--yes", code=2)
    assert "The session zzzz has no commit" in err
    await place.run("undo", "--session", last.session_id[:8], "--yes")
    assert await place.content() == OURS
    await place.run("undo", "--session", first.session_id, "--yes")
    assert await place.content() == TEXT


async def test_the_terminal_reverts_and_picks(place: Place) -> None:
    out, err = await place.run("revert", "main", "--preview")
    assert "would change" in err
    assert await place.content() == OURS
    await place.run("revert", "main", "-m", "It is ten after all")
    assert await place.content() == TEXT
    await place.run("cherry-pick", "idea")
    assert await place.content() == THEIRS
    assert out
    _, err = await place.run("revert", "main", "--resolve")
    assert "The revert of" in err
    assert "No conflict is left" in err
    await place.run("session", "resolve", "--all", "--take", "theirs")
    await place.run("commit", "-m", "Take it back")
    assert await place.content() == TEXT


async def test_python_has_the_conflicts_of_a_merge_and_resolves_them_in_a_session(place: Place) -> None:
    await place.change("main", "Nothing of it is left.")
    with pytest.raises(AbortedError, match="preview_merge") as caught:
        await place.workspace.merge("idea")
    assert [conflict.field for conflict in caught.value.conflicts] == ["content"]
    told = await place.workspace.preview_merge("idea")
    assert [(one.base, one.ours, one.theirs) for one in told.conflicts] == [(TEXT, "Nothing of it is left.", THEIRS)]
    async with await place.workspace.session(agent="anna") as session:
        staged = await session.merge_branch("idea")
        assert (staged.change_count, staged.conflict_count) == (0, 1)
        (conflict,) = [one async for one in session.conflicts()]
        assert (conflict.kind, len(conflict.hunks)) == (ConflictKind.BOTH_CHANGED, 1)
        info = await session.resolve([Resolution(place.node_id, "content", hunks=[ConflictSide.THEIRS])])
        assert (info.conflict_count, info.merge_commit_id != "") == (0, True)
        made = await session.commit("Take the idea in")
    assert await place.content() == THEIRS
    assert len((await place.workspace.show(made.commit_id)).commit.parent_ids) == 2


@pytest.mark.parametrize("given", [{}, {"side": "OURS", "text": "t"}, {"side": "NEITHER"}])
def test_a_resolution_has_one_choice(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|ConflictSide"):
        Resolution("node", "title", **given).to_wire()


async def test_python_keeps_the_conflicts_of_a_stale_session(place: Place) -> None:
    async with await place.workspace.session() as session:
        await session.update(place.node_id, title="Ours")
        async with await place.workspace.session() as other:
            await other.update(place.node_id, title="Theirs")
            await other.commit("Theirs")
        with pytest.raises(AbortedError, match=r"session\.rebase"):
            await session.commit("Ours")
        assert (await session.rebase(keep_conflicts=True)).conflict_count == 1
        assert (await session.resolve([Resolution(place.node_id, text="Both")])).conflict_count == 0
        await session.commit("Both")
    assert (await place.workspace.node(place.node_id)).title == "Both"


async def test_the_terminal_shows_both_sides_of_a_conflict_and_resolves_it_in_a_session(place: Place) -> None:
    await place.change("main", "Nothing of it is left.")
    _, err = await place.run("branch", "merge", "idea", code=1)
    for said in ("memotree branch merge --preview", "On the other side", "--resolve"):
        assert said in err
    out, _ = await place.run("branch", "merge", "idea", "--preview")
    assert "1 conflict." in out
    out, _ = await place.run("branch", "merge", "idea", "--json", code=1)
    assert '"MERGE_CONFLICT"' in out
    _, err = await place.run("branch", "merge", "idea", "--resolve", "-m", "m", code=2)
    assert "memotree commit" in err
    out, err = await place.run("branch", "merge", "idea", "--resolve")
    assert "content, part 1" in out
    assert "1 conflict to resolve" in err
    out, _ = await place.run("session", "conflicts")
    assert "both changed" in out
    for wrong in ([], ["--all"], [place.node_id], [place.node_id, "--take", "ours", "--text", "t"]):
        await place.run("session", "resolve", *wrong, code=2)
    await place.run("session", "resolve", place.node_id, "content", "--part", "neither", code=2)
    _, err = await place.run("commit", "-m", "Too early", code=1)
    assert "memotree session resolve" in err
    _, err = await place.run("session", "resolve", place.node_id, "content", "--part", "=Both are right.")
    assert "No conflict is left" in err
    out, _ = await place.run("session", "conflicts")
    assert "No conflict is left" in out
    out, _ = await place.run("session", "show")
    assert "merges" in out
    await place.run("commit", "-m", "Take the idea in")
    assert await place.content() == "Both are right."
    await place.run("session", "use", "--none")


async def test_the_summary_follows_a_content_that_a_commit_has_merged(place: Place) -> None:
    async with await place.workspace.session() as session:
        await session.update(place.node_id, content=OURS.replace("five", "six"))
        await place.change("main", OURS.replace("Nobody", "Bob"))
        made = await session.commit("Six seconds")
    node = await place.workspace.at(made.commit_id).node(place.node_id)
    assert node.summary == node.content == OURS.replace("five", "six").replace("Nobody", "Bob")


async def test_python_restores_and_chooses(place: Place) -> None:
    workspace = place.workspace
    told = await workspace.preview_merge("idea", only=ChangeSelection(nodes=[place.node_id]))
    assert [change.node_id for change in told.changes] == [place.node_id]
    with pytest.raises(NotFoundError):
        await workspace.merge("idea", only=ChangeSelection(subtrees=["zzzz"]))
    made = await workspace.merge("idea", only=ChangeSelection(agents=["bob"]))
    assert len((await workspace.show(made.commit_id)).commit.parent_ids) == 1
    first = (await workspace.show(made.commit_id)).commit.parent_ids[0]
    told_too = await workspace.restore_nodes([place.node_id], first, preview=True)
    restored = await workspace.restore_nodes([place.node_id], first)
    assert told_too.changes == restored.changes
    assert await place.content() == OURS
    async with await workspace.session() as session:
        assert (await session.restore_nodes([place.node_id], made.commit_id)).change_count == 1
        await session.commit("Back again")
    assert await place.content() == OURS.replace("Nobody", "Anna")


async def test_the_terminal_restores_and_chooses(place: Place) -> None:
    out, _ = await place.run("branch", "merge", "idea", "--only", place.node_id, "--preview")
    assert place.node_id in out
    out, _ = await place.run("branch", "merge", "idea", "--tag", "nothing-has-it", "--preview")
    assert "0 entries would change" in out
    await place.run("branch", "merge", "idea", "--by", "bob")
    merged = OURS.replace("Nobody", "Anna")
    assert await place.content() == merged
    await place.run("tag", "create", "merged", "main")
    await place.run("node", "restore", place.node_id, "--recursive", code=2)
    _, err = await place.run("node", "restore", place.node_id, "--to", "idea", "--preview")
    assert "1 entry would change" in err
    await place.run("node", "restore", place.node_id, "--to", "idea", "--recursive")
    assert await place.content() == THEIRS
    await place.run("archive", "restore", "notes", "--to", "merged")
    assert await place.content() == merged
    await place.run("archive", "restore", "notes", "--to", "idea", "--resolve")
    await place.run("commit", "-m", "As on the idea branch")
    assert await place.content() == THEIRS
    await place.run("session", "use", "--none")


async def test_since_when_and_why(place: Place) -> None:
    workspace = place.workspace
    made = await workspace.merge("idea", author=Author("anna"))
    found = [change async for change in workspace.bisect(place.node_id, "content")]
    assert sorted(change.agent for change in found) == ["anna", "bob", "bob", "tester"]
    (merge,) = [change for change in found if change.commit.id == made.commit_id]
    assert not merge.merged, "its text is that of neither side"
    answered = await workspace.bisect_answer("How many connections does the pool have?")
    assert answered.answer is not None
    assert answered.answer.id == place.node_id
    assert len(answered.changes) >= 3
    out, _ = await place.run("bisect", place.node_id, "content")
    assert "bob" in out
    out, _ = await place.run("bisect", "--question", "How many connections does the pool have?")
    assert "Change the pool" in out
    await place.run("bisect", code=2)
    await place.run("bisect", place.node_id, "--question", "Both?", code=2)
