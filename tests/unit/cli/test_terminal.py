"""The manners of the terminal: pager, names of nodes, the editor for messages, times as people say them."""

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from unit.cli.conftest import CommandLine

from memotree.cli.arguments import text_input
from memotree.cli.arguments.commit_message import NoMessageError, ask_message, template
from memotree.cli.arguments.times import BadTimeError, said_time, sent_time
from memotree.cli.terminal import display, pager
from memotree.client import ChangeKind, EntryChange, FieldChange, StagedChange, TextPart, TextPartKind

pytestmark = pytest.mark.requirement("USE-10")


def _writes_to(path: Path) -> str:
    """A pager that writes what it gets to a file."""
    return f'{sys.executable} -c \'import sys; open("{path}", "w").write(sys.stdin.read())\''


def test_long_output_goes_through_the_pager_and_a_short_one_to_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOTREE_PAGER", _writes_to(tmp_path / "paged"))
    screen = io.StringIO()
    pager.page(["one\n", "two\n"], screen, 3)
    assert screen.getvalue() == "one\ntwo\n"
    assert not (tmp_path / "paged").exists()
    pager.page((f"{number}\n" for number in range(4)), screen, 3)
    assert (tmp_path / "paged").read_text() == "0\n1\n2\n3\n"


def test_a_pager_that_ends_early_stops_the_reading_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOTREE_PAGER", "true")
    read = []

    def lines() -> object:
        for number in range(1_000_000):
            read.append(number)
            yield f"{number}\n"

    pager.page(lines(), io.StringIO(), 3)  # type: ignore[arg-type] # a generator of text
    assert len(read) < 1_000_000


def test_the_pager_is_chosen_as_in_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMOTREE_PAGER", raising=False)
    monkeypatch.delenv("PAGER", raising=False)
    assert pager.pager() == "less"
    monkeypatch.setenv("PAGER", "more")
    assert pager.pager() == "more"
    monkeypatch.setenv("MEMOTREE_PAGER", "cat")
    assert pager.pager() == ""
    monkeypatch.setenv("MEMOTREE_PAGER", "no-such-program-here")
    screen = io.StringIO()
    pager.page(["a\n"] * 5, screen, 3)
    assert screen.getvalue() == "a\n" * 5


def test_a_node_is_named_by_its_title_or_its_path_if_one_alone_has_it(ready: CommandLine) -> None:
    for name in ("Child", "notes/Root/Child", "Root/Child", "cccc"):
        assert ready.json("node", "get", name)["id"] == "c" * 16
    assert ready.json("node", "children", "Root")["nodes"][0]["title"] == "Child"
    assert "memotree search" in ready.refused("node", "get", "No such title")
    ready("node", "create", "--title", "Child", "-c", "x", "-a", "notes", "--id", "d" * 16)
    told = ready.refused("node", "get", "Child")
    assert f"{'c' * 16}  notes/Root/Child" in told
    assert f"{'d' * 16}  notes/Child" in told


def test_commit_without_a_message_needs_a_terminal_and_says_so(ready: CommandLine) -> None:
    ready("node", "update", "Child", "-c", "new")
    told = "error: Give the message with --message (-m), since there is no terminal for an editor.\n"
    assert ready.refused("commit", code=2) == told


def test_the_editor_shows_the_changes_and_an_empty_message_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    change = StagedChange(node_id="c" * 16, kind="UPDATED", title="Child")
    shown = template("main", [change])
    assert shown.startswith("\n# ---")
    assert f"# ~ Child ({'c' * 16})" in shown
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("memotree.cli.arguments.commit_message.edit", lambda text, _: f"# A heading\n\nWhy{text}")
    assert ask_message("main", [change]) == "# A heading\n\nWhy"
    monkeypatch.setattr("memotree.cli.arguments.commit_message.edit", lambda text, _: text)
    with pytest.raises(NoMessageError, match="still staged"):
        ask_message("main", [change])


@pytest.mark.parametrize(
    ("before", "written", "after"),
    [
        ("a\r\nb", "a\nc\n", "a\r\nc"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "a\r\nc\r\n"),
        ("a", "b\n", "b"),
        ("a\n", "b\n", "b\n"),
        ("a\r\nb\nc", "a\r\nb\nd\n", "a\r\nb\nd"),
    ],
)
def test_editing_keeps_the_line_ends(monkeypatch: pytest.MonkeyPatch, before: str, written: str, after: str) -> None:
    monkeypatch.setattr(text_input, "edit", lambda *_: written)
    assert text_input.read_content(None, None, edit=True, present=before) == after


def test_times_are_read_as_people_say_them() -> None:
    now = datetime(2026, 3, 31, 12, 30, tzinfo=UTC).astimezone()
    midnight = datetime.combine(now.date(), datetime.min.time()).astimezone()

    def said(text: str) -> datetime:
        found = said_time("--since", text, now)
        assert found is not None
        assert found.tzinfo is not None
        return found

    assert said("today") == midnight
    assert (said("yesterday").day, said("yesterday at 09:30").hour, said("Last  Monday").day) == (30, 9, 30)
    assert (now - said("3 days ago")).days == 3
    assert (said("a month ago").month, said("a month ago").day) == (2, 28)
    assert said("2026-01-02T03:04Z") == datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert said("2026-01-02").hour == 0
    with pytest.raises(BadTimeError, match="--since: 'soonish' is no time"):
        said("soonish")


def test_times_for_the_server_are_dates_or_have_a_zone_and_other_forms_are_sent_as_they_are() -> None:
    now = datetime(2026, 3, 31, 12, 30, tzinfo=UTC).astimezone()
    assert sent_time("yesterday", now) == (now - timedelta(days=1)).date().isoformat()
    assert sent_time("last monday", now) == "2026-03-30"
    assert datetime.fromisoformat(sent_time("3 hours ago", now)) == datetime(2026, 3, 31, 9, 30, tzinfo=UTC)
    local = datetime(2026, 1, 2, 9, 30).astimezone()
    assert sent_time("2026-01-02T09:30", now) == local.isoformat()
    for same in (
        *("", "2026-01-02", "2026-01-02T03:04Z", "2026-01-02T03:04:05+01:00", "8 May, 2023", "2023-05", "soonish"),
        *("9999-12-31", "0001-01-01"),
    ):
        assert sent_time(same, now) == same
    with pytest.raises(BadTimeError):
        said_time("--at", "0001-01-01", datetime(2026, 3, 31, tzinfo=UTC))


def test_log_recall_and_remember_take_times_as_people_say_them(ready: CommandLine) -> None:
    assert ready("log", "--since", "yesterday").code == 0
    assert ready("log", "--until", "whenever").code == 2
    ready("recall", "alpha", "--since", "yesterday", "--until", "1 hour ago", "--valid-at", "2026-01-02")
    sent = ready.fake.requests("Recall")[-1].filter
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", sent.since)
    assert datetime.fromisoformat(sent.until).tzinfo is not None
    assert sent.valid_at == "2026-01-02"
    ready("remember", "We use Git.", "--valid-from", "today", "--valid-to", "2030-01-01")
    kept = ready.fake.requests("Remember")[-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept.valid_from)
    assert kept.valid_to == "2030-01-01"


def _drawn(look: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(look)
    return str(console.file.getvalue())  # type: ignore[attr-defined] # the StringIO above


def test_a_text_compared_by_words_has_the_marks_of_git() -> None:
    parts = (
        TextPart(TextPartKind.OMITTED, "7 equal lines"),
        TextPart(TextPartKind.KEPT, "Bake at "),
        TextPart(TextPartKind.REMOVED, "five"),
        TextPart(TextPartKind.ADDED, "six"),
        TextPart(TextPartKind.KEPT, ".\n"),
    )
    change = EntryChange("c" * 16, ChangeKind.UPDATED, "Bread", fields=(FieldChange("content", parts=parts),))
    assert "content\n@@ 7 equal lines @@\nBake at [-five-]{+six+}.\n" in _drawn(display.entries([change]))


def test_a_diff_shows_what_a_person_wrote_and_not_what_is_recorded_beside_it_unless_asked() -> None:
    recorded = FieldChange("attributes", diff="@@ -1,2 +1,2 @@\n chunk_size: 400\n-ingestion: a\n+ingestion: b\n")
    own = FieldChange("attributes", diff="@@ -1,2 +1,2 @@\n-sure: 0.5\n-summary_of: a\n+sure: 0.9\n+summary_of: b\n")
    content = FieldChange("content", diff="@@ -0,0 +1 @@\n+The text.\n")
    kind, position = FieldChange("type", "", "leaf_chunk"), FieldChange("position", "1", "2")
    changes = [
        EntryChange("c" * 16, ChangeKind.CREATED, "New", fields=(kind, content, own)),
        EntryChange("d" * 16, ChangeKind.UPDATED, "Archive", is_archive=True, fields=(recorded,)),
        EntryChange("e" * 16, ChangeKind.UPDATED, "Note", fields=(own, position, FieldChange("title", "Old", "Newer"))),
    ]
    plain, exact = _drawn(display.entries(changes)), _drawn(display.entries(changes, exact=True))
    for shown in ("The text.", "sure: 0.9", "Old", "Newer"):
        assert (shown in plain, shown in exact) == (True, True), shown
    for shown in ("leaf_chunk", "ingestion: b", "position"):
        assert (shown in plain, shown in exact) == (False, True), shown


def test_a_type_has_its_sign_on_the_line_of_a_node(ready: CommandLine) -> None:
    for number, (kind, sign) in enumerate(display.TYPE_ICONS.items()):
        ready("node", "create", "--title", f"Node {number}", "-c", "x", "-a", "notes", "--type", kind)
        line = next(each for each in ready("node", "tree").out.splitlines() if f"Node {number}" in each)
        assert line.endswith(sign)
    plain = next(each for each in ready("node", "tree").out.splitlines() if "Child" in each)
    assert not any(sign in plain for sign in display.TYPE_ICONS.values())


def test_there_is_no_pager_without_a_terminal_or_if_it_is_turned_off(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOTREE_PAGER", "false")
    assert "Child" in ready("node", "tree").out
    assert pager.pager() == "false"
    assert ready("--no-pager", "ws", "list").code == 0
    assert pager.pager() == ""


def test_a_person_is_told_that_the_command_waits_for_the_editor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", "true")
    assert text_input.edit("text", "node.md") == "text"
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert text_input.edit("text", "node.md") == "text"
    assert "Waiting for the editor true ($EDITOR chooses another)" in capsys.readouterr().err
