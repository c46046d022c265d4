"""The output of ``memotree ingest``."""

import io
import re
from pathlib import Path

import grpc
import pytest
from rich.console import Console
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError

from memotree.cli.commands.ingest_report import Ingested
from memotree.cli.terminal import counting
from memotree.cli.terminal.output import Output
from memotree.client import IngestedFile
from memotree.v1 import job_service_pb2 as jobs

pytestmark = pytest.mark.requirement("SERVE-4")


@pytest.fixture(autouse=True)
def folder(home: Path) -> Path:
    """A folder with two documents and some other files."""
    files = {"a.md": "# A\n\nText.", "sub/b.txt": "More.", ".hidden.md": "No.", "sub/empty.md": "", "build/c.md": "C."}
    for name, text in (files | {".gitignore": "build/\n*.log\n", "sub/x.log": "Log."}).items():
        path = home / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (home / "docs" / "picture.bin").write_bytes(b"\x89PNG\0\0")
    (home / "docs" / ".git").mkdir()
    (home / "docs" / ".git" / "config").write_text("no")
    return home / "docs"


@pytest.mark.requirement("FOREST-1")
def test_a_folder_is_ingested_with_all_text_files_below_it(ready: CommandLine) -> None:
    ran = ready("ingest", "docs", "--model", "m1", "--chunk-size", "500", "--tag", "x")
    assert ran.code == 0
    assert "Left out, empty: docs/sub/empty.md" in ran.err
    assert "Left out, not text: docs/picture.bin" in ran.err
    assert "Left out, hidden: docs/.git, docs/.gitignore, docs/.hidden.md" in ran.err
    assert "Left out, ignored by .gitignore: docs/build, docs/sub/x.log" in ran.err
    assert "Ingested 2 documents of 2." in ran.err
    (request,) = ready.fake.requests("IngestDocuments")
    assert [(each.name, each.document_id, each.file) for each in request.documents] == [
        ("docs/a.md", "docs/a.md", b"# A\n\nText."),
        ("docs/sub/b.txt", "docs/sub/b.txt", b"More."),
    ]
    assert (request.model_id, request.chunk_size, list(request.tags)) == ("m1", 500, ["x"])
    assert not request.HasField("similarity_threshold")


@pytest.mark.requirement("USE-9")
def test_hidden_and_ignored_files_are_taken_on_request(ready: CommandLine) -> None:
    document = ready.json("ingest", "docs", "--hidden", "--no-ignore")
    assert [each["path"] for each in document["files"]] == [
        *("docs/.gitignore", "docs/.hidden.md", "docs/a.md", "docs/build/c.md", "docs/sub/b.txt", "docs/sub/x.log")
    ]
    assert {"path": "docs/.git", "why": "hidden"} in document["left_out"], "never a document"


@pytest.mark.requirement("USE-9")
def test_a_folder_is_one_set_of_documents_however_it_is_named(
    ready: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for here, given in (
        (folder.parent, "docs"),
        (folder.parent, "./docs/"),
        (folder.parent, str(folder)),
        (folder, "."),
        (folder / "sub", ".."),
        (Path("/"), str(folder)),
    ):
        monkeypatch.chdir(here)
        files = ready.json("ingest", given)["files"]
        assert [each["document_id"] for each in files] == ["docs/a.md", "docs/sub/b.txt"], given
    for here, given in ((folder.parent, "docs/sub"), (folder, "sub/b.txt"), (folder / "sub", "b.txt")):
        monkeypatch.chdir(here)
        (one,) = ready.json("ingest", given)["files"]
        assert (one["document_id"], one["job"]["ingestion"]["kept_leaves"]) == ("docs/sub/b.txt", 2), given


@pytest.mark.requirement("USE-9")
def test_files_of_the_same_name_in_different_folders_are_different_documents(ready: CommandLine, home: Path) -> None:
    for part in ("one/a", "one/b", "two/a"):
        (home / part).mkdir(parents=True)
        (home / part / "README.md").write_text(f"In {part}.")
    found = [each["document_id"] for each in ready.json("ingest", str(home / "one"))["files"]]
    assert found == ["one/a/README.md", "one/b/README.md"]
    files = ready.json("ingest", str(home / "one" / "b" / "README.md"), str(home / "two" / "a" / "README.md"))["files"]
    assert [each["document_id"] for each in files] == ["one/b/README.md", "two/a/README.md"]
    (one,) = ready.json("ingest", "two/a", "--prefix", "second/")["files"]
    assert one["document_id"] == "second/a/README.md"


@pytest.mark.requirement("USE-9")
def test_the_author_is_who_ingests(ready: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    ready("ingest", "docs")
    ready("ingest", "docs", "--agent", "scout", "--author", "Ada <ada@example.org>")
    ready.json("session", "discard", "--yes")
    ready("ingest", "docs")
    assert ready("ingest", "docs", "--author", "Ada <oops").code == 2
    session, given, login = ready.fake.requests("IngestDocuments")
    assert (session.agent, session.HasField("author")) == ("planner", False)
    assert (given.agent, given.author.name, given.author.email) == ("scout", "Ada", "ada@example.org")
    assert login.agent == "ada"


@pytest.mark.requirement("USE-9")
def test_many_files_are_sent_in_batches_with_lines_of_progress_and_a_short_report(
    ready: CommandLine, home: Path
) -> None:
    write_many(home)
    ready.fake.refusals["many/007.md"] = ("UNREADABLE_DOCUMENT", "It has no text.")
    ran = ready("ingest", "many")
    assert ran.code == 1
    assert [len(each.documents) for each in ready.fake.requests("IngestDocuments")] == [100, 100, 30]
    lines = [line for line in ran.err.splitlines() if " of 230 documents, " in line]
    assert 5 <= len(lines) <= 10
    assert all(" a second, " in line and line.endswith(" left") for line in lines)
    assert "error: many/007.md: It has no text." in ran.err
    assert "Ingested 229 documents of 230 in 1 commit; 1 failed." in ran.err
    assert ran.out.count("many/") == 1, "the table has only what failed"
    assert "229 unchanged" in ready("ingest", "many").err
    files = ready.json("ingest", "many", code=1)["files"]
    assert len(files) == 230
    assert files[7]["error"]["reason"] == "UNREADABLE_DOCUMENT"
    assert files[8]["job"]["state"] == "SUCCEEDED"


@pytest.mark.requirement("USE-9")
def test_ctrl_c_says_what_is_done_what_goes_on_and_what_was_not_sent(
    ready: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many(home)
    real = Ingested.of
    taken = []

    def of(file: IngestedFile) -> Ingested:
        taken.append(file)
        if len(taken) == 100:
            monkeypatch.setattr(counting._Lines, "at", interrupt)
        return real(file)

    def interrupt(_self: object, done: int, _total: int, step: str) -> None:
        if done >= 100 and step.startswith("summarise"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Ingested, "of", of)
    ran = ready("ingest", "many")
    assert ran.code == 130
    assert "100 of 230 documents are ingested." in ran.err
    assert "100 more: the job continues; `memotree jobs watch " in ran.err
    assert "30 were not sent. The same command goes on where this one stopped." in ran.err
    monkeypatch.undo()


def write_many(home: Path) -> None:
    (home / "many").mkdir()
    for number in range(230):
        (home / "many" / f"{number:03}.md").write_text(f"Text {number}.")


class _Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.requirement("USE-9")
def test_a_terminal_has_one_bar_for_all_documents() -> None:
    output = Output()
    output.err = Console(file=_Screen(), force_terminal=True, width=120)
    with counting.counting(output, "documents") as bar:
        bar.at(0, 300, "wait")
        bar.at(120, 300, "summarise notes/[b]a.md")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.err.file.getvalue())  # type: ignore[attr-defined]
    frame = [line for line in re.split(r"[\r\n]+", shown) if "documents" in line][-1]
    assert "120/300 documents" in frame
    assert "/s" in frame
    assert "summarise notes/[b]a.md" in frame


@pytest.mark.requirement("FOREST-5")
def test_the_same_command_again_updates_the_same_documents_and_keeps_their_names(
    ready: CommandLine, folder: Path
) -> None:
    assert ready("ingest", "docs/a.md").code == 0
    (folder / "a.md").write_text("# A\n\nOther text.")
    document = ready.json("ingest", "./docs/../docs/a.md")
    (one,) = document["files"]
    assert (one["path"], one["document_id"], one["error"]) == ("docs/../docs/a.md", "docs/a.md", None)
    first, second = (each.documents[0] for each in ready.fake.requests("IngestDocuments"))
    assert (first.name, second.name) == ("docs/a.md", "")
    assert second.media_type == "text/markdown"
    again = ready("ingest", "docs/a.md")
    assert "unchanged" in again.out


@pytest.mark.requirement("FOREST-5")
def test_one_file_may_be_named_and_come_from_stdin_where_its_name_makes_the_document(
    ready: CommandLine, folder: Path
) -> None:
    for name in ("foxes", "wolves", "foxes"):
        assert ready("ingest", "-", "--name", name, stdin=f"About {name}.").code == 0
    assert ready("ingest", "-", "--name", "bears", "--document-id", "animals", stdin="About bears.").code == 0
    assert ready("ingest", str(folder / "a.md"), "--document-id", "guide").code == 0
    sent = [each.documents[0] for each in ready.fake.requests("IngestDocuments")]
    assert [each.document_id for each in sent] == ["foxes", "wolves", "foxes", "animals", "guide"]
    assert (sent[0].name, sent[0].file, sent[-1].name) == ("foxes", b"About foxes.", "guide")
    assert ready("ingest", "-", stdin="Said.").code == 2
    assert ready("ingest", "docs", "--document-id", "guide").code == 2
    assert ready("ingest", "nowhere.md").code == 1
    (folder / "none").mkdir()
    assert ready("ingest", "docs/none").code == 2


def test_a_warning_says_that_the_chosen_session_does_not_see_the_ingested_document(
    ready: CommandLine, folder: Path
) -> None:
    assert "memotree session rebase" in ready("ingest", "docs/a.md").err
    assert "memotree session rebase" not in ready("ingest", "docs/a.md").err, "nothing has changed"
    ready.json("session", "discard", "--yes")
    (folder / "a.md").write_text("# A\n\nAnother text.")
    assert "memotree session rebase" not in ready("ingest", "docs/a.md").err


@pytest.mark.requirement("SERVE-6")
def test_a_job_is_shown_with_the_command_that_continues_it_or_watches_it_in_the_background(ready: CommandLine) -> None:
    stopped = jobs.Job(state=jobs.JOB_STATE_STOPPED, reason="BUDGET", message="The budget is spent.")
    ready.fake.ingestions.append(stopped)
    told = ready.refused("ingest", "docs/a.md")
    assert ("The budget is spent." in told, "memotree jobs resume" in told) == (True, True)
    ran = ready("ingest", "docs", "--background")
    assert (ran.code, ran.out.count("running"), "Ingested" in ran.err) == (0, 2, False)
    assert ran.err.count("memotree jobs watch") == 1, "both are in one job"
    document = ready.json("ingest", "docs/a.md", "--background")
    assert document["files"][0]["job"]["state"] == "RUNNING"
    ready.fake.fail("IngestDocuments", RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "No.", "INVALID_ARGUMENT"))
    assert ready("ingest", "docs", "--background").code == 1
    before = len(ready.fake.requests("IngestDocuments"))
    ready.fake.fail("IngestDocuments", RefusedError(grpc.StatusCode.UNAVAILABLE, "gone", ""))
    assert ready("ingest", "docs").code == 3
    assert len(ready.fake.requests("IngestDocuments")) == before + 1


# --- Documents whose files are gone ---


@pytest.fixture
def docs(ready: CommandLine, home: Path) -> Path:
    """A folder of five documents that was ingested."""
    (home / "five" / "sub").mkdir(parents=True)
    for name in ("a.md", "b.md", "c.md", "d.md", "sub/e.md"):
        (home / "five" / name).write_text(f"# Title\n\n{name}", encoding="utf-8")
    assert ready.json("ingest", "five")["gone"] == []
    return home / "five"


@pytest.mark.requirement("USE-10")
def test_documents_without_a_file_are_told_and_stay(ready: CommandLine, docs: Path) -> None:
    (docs / "b.md").unlink()
    ran = ready("ingest", "five")
    assert ran.code == 0
    assert "1 document is no longer in this folder: five/b.md. In a session, `memotree archive delete" in ran.err
    for name in ("c.md", "d.md", "sub/e.md"):
        (docs / name).unlink()
    assert "4 documents are no longer in this folder: five/b.md, five/c.md, five/d.md and 1 more." in (
        ready("ingest", str(docs)).err
    )
    assert ready.json("ingest", "five")["gone"] == ["five/b.md", "five/c.md", "five/d.md", "five/sub/e.md"]
    ready.json("session", "use", "--none")
    assert "five/b.md" in [each["name"] for each in ready.json("archive", "list")["archives"]]


@pytest.mark.requirement("USE-10")
def test_a_file_that_is_left_out_or_not_in_the_given_part_is_not_gone(ready: CommandLine, docs: Path) -> None:
    (docs / "a.md").write_text("", encoding="utf-8")
    assert ready.json("ingest", "five")["gone"] == []
    (docs / "b.md").unlink()
    assert ready.json("ingest", "five/sub")["gone"] == []
    assert ready.json("ingest", "five/c.md")["gone"] == []
    other = docs.parent / "other"
    other.mkdir()
    (other / "z.md").write_text("# Z\n\nOther.", encoding="utf-8")
    assert ready.json("ingest", "other")["gone"] == [], "a folder that was not ingested before misses nothing"
    assert ready.json("ingest", "five", "--prefix", "new/")["gone"] == []
