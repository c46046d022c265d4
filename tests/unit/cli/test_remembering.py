"""One command keeps, corrects, forgets or brings back a fact."""

from pathlib import Path

import pytest
from unit.cli.conftest import CommandLine

pytestmark = pytest.mark.requirement("USE-1", "SERVE-4")


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("words", "told", "archive"),
    [
        ("remember Retries --title Retries -t api", "Remembered: commit", "notes"),
        ("ingest guide.md", "Ingested 1 document", "guide.md"),
    ],
)
def test_the_first_fact_or_document_needs_no_workspace_session_or_archive(
    memotree: CommandLine, home: Path, words: str, told: str, archive: str
) -> None:
    (home / "guide.md").write_text("# Guide\n\nText.\n", encoding="utf-8")
    ran = memotree(*words.split())
    assert (ran.code, "The workspace main was made for it" in ran.err, told in ran.err) == (0, True, True)
    assert memotree.json("ws", "list")["chosen"] == "main"
    assert [each["name"] for each in memotree.json("archive", "list")["archives"]] == [archive]


def test_a_fact_is_revised_forgotten_and_brought_back(memotree: CommandLine) -> None:
    made = memotree.json("remember", "The budget is 40k.", "--title", "Budget", "--agent", "ann", "-m", "Plan")
    node = made["node"]["id"]
    log = memotree.json("log")["commits"]
    assert (log[0]["subject"], log[0]["author"]["name"]) == ("Plan", "ann")
    assert memotree.json("revise", node[:6], "The budget is 45k.")["node"]["content"] == "The budget is 45k."
    revised = memotree.json("revise", "Budget", "The budget is 50k.")
    assert (revised["node"]["id"], revised["previous"]["summary"]) == (node, "The budget is 45k.")
    assert "It said before: The budget is 50k.\n" in memotree("revise", "Budget", "The budget is 52k.").err
    assert "short" in memotree("revise", "Budget", "-", stdin="The budget is 55k.").err
    gone = memotree("forget", node)
    assert f"memotree node restore {node[:10]}" in gone.err
    assert memotree.json("node", "restore", node)["node_ids"] == [node]
    for title in ("budget", "notes/Budget"):
        assert memotree.json("forget", "Budget")["node_ids"] == [node]
        assert memotree.json("node", "restore", title)["node_ids"] == [node]


@pytest.mark.requirement("USE-10")
def test_a_title_of_several_forgotten_notes_lists_the_command_for_each(memotree: CommandLine) -> None:
    made = [memotree.json("remember", text, "--title", "tests")["node"]["id"] for text in ("Old.", "New.")]
    for each in made:
        memotree.json("forget", each)
    error = memotree.json("node", "restore", "tests", code=1)["error"]
    assert error["reason"] == "SEVERAL_FORGOTTEN"
    assert [line.split()[:4] for line in error["message"].splitlines()[1:]] == [
        ["memotree", "node", "restore", each] for each in reversed(made)
    ]
    memotree.json("node", "restore", made[0])
    assert memotree.json("node", "restore", made[1][:6])["node_ids"] == [made[1]]
    assert memotree.json("node", "restore", "Nothing", code=1)["error"]["reason"] == "NODE_NOT_NAMED"


def test_a_note_that_is_alike_is_told_with_what_to_do(memotree: CommandLine) -> None:
    first = memotree.json("remember", "-", stdin="Tea is green.")["node"]
    assert first["content"] == "Tea is green."
    assert f"memotree forget {first['id'][:10]}" in memotree("remember", "Tea is green.").err
    assert memotree.json("remember", "Tea is green.")["similar"][0]["similarity"] == "DUPLICATE"
    assert memotree.json("revise", "tea is", "Tea is black.", code=1)["error"]["reason"] == "UNCLEAR_QUERY"
    assert memotree.json("remember", code=2)["error"]["reason"] == "NOTHING_GIVEN"
