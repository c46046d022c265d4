"""The output of ``memotree ingest | recall | ask | explore | summaries``, and of joining archives."""

import io
import json
import re
from pathlib import Path

import grpc
import pytest
from rich.console import Console
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError

from memotree.cli.commands.ask import citation_line
from memotree.cli.commands.ingest_report import Ingested
from memotree.cli.commands.recall import look
from memotree.cli.terminal import counting, display
from memotree.cli.terminal.output import Output
from memotree.client import Citation, IngestedFile, Node, RecallResult, Source
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as jobs
from memotree.v1 import types_pb2

pytestmark = [pytest.mark.requirement("SERVE-4")]


@pytest.fixture
def folder(ready: CommandLine, home: Path) -> Path:
    """A folder with two documents and some other files."""
    assert ready
    files = {"a.md": "# A\n\nText.", "sub/b.txt": "More.", ".hidden.md": "No.", "sub/empty.md": "", "build/c.md": "C."}
    for name, text in (files | {".gitignore": "build/\n*.log\n", "sub/x.log": "Log."}).items():
        path = home / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (home / "docs" / "picture.bin").write_bytes(b"\x89PNG\0\0")
    (home / "docs" / ".git").mkdir()
    (home / "docs" / ".git" / "config").write_text("no")
    return home / "docs"


# --- ingest ---


@pytest.mark.requirement("FOREST-1")
def test_a_folder_is_ingested_with_all_text_files_below_it(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    ran = ready("ingest", "docs", "--model", "m1", "--chunk-size", "500", "--tag", "x")
    assert ran.code == 0
    assert "Left out, empty: docs/sub/empty.md" in ran.err
    assert "Left out, not text: docs/picture.bin" in ran.err
    assert "Left out, hidden: docs/.git, docs/.gitignore, docs/.hidden.md" in ran.err
    assert "Left out, ignored by .gitignore: docs/build, docs/sub/x.log" in ran.err
    assert "Ingested 2 documents of 2." in ran.err
    (request,) = ready.fake.requests("IngestDocuments")
    assert [(each.name, each.document_id) for each in request.documents] == [
        ("docs/a.md", "docs/a.md"),
        ("docs/sub/b.txt", "docs/sub/b.txt"),
    ]
    assert [each.file for each in request.documents] == [b"# A\n\nText.", b"More."]
    assert (request.model_id, request.chunk_size, list(request.tags)) == ("m1", 500, ["x"])
    assert not request.HasField("similarity_threshold")


@pytest.mark.requirement("USE-9")
def test_hidden_and_ignored_files_are_taken_on_request(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    document = ready.json("ingest", "docs", "--hidden", "--no-ignore")
    assert [each["path"] for each in document["files"]] == [
        *("docs/.gitignore", "docs/.hidden.md", "docs/a.md", "docs/build/c.md", "docs/sub/b.txt", "docs/sub/x.log"),
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
    absolute = str(home / "one")
    assert [each["document_id"] for each in ready.json("ingest", absolute)["files"]] == [
        "one/a/README.md",
        "one/b/README.md",
    ]
    files = ready.json("ingest", str(home / "one" / "b" / "README.md"), str(home / "two" / "a" / "README.md"))["files"]
    assert [each["document_id"] for each in files] == ["one/b/README.md", "two/a/README.md"]
    (one,) = ready.json("ingest", "two/a", "--prefix", "second/")["files"]
    assert one["document_id"] == "second/a/README.md"


@pytest.mark.requirement("USE-9")
def test_the_author_is_who_ingests(ready: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.exists()
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
    (home / "many").mkdir()
    for number in range(230):
        (home / "many" / f"{number:03}.md").write_text(f"Text {number}.")
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
    assert len(ready.json("ingest", "many", code=1)["files"]) == 230


@pytest.mark.requirement("USE-9")
def test_ctrl_c_says_what_is_done_what_goes_on_and_what_was_not_sent(
    ready: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "many").mkdir()
    for number in range(230):
        (home / "many" / f"{number:03}.md").write_text(f"Text {number}.")
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


@pytest.mark.requirement("USE-9")
def test_a_link_that_leads_nowhere_or_in_a_circle_is_listed(ready: CommandLine, folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    document = ready.json("ingest", "docs")
    assert {(each["path"], each["why"]) for each in document["left_out"]} >= {
        ("docs/loop", "a link to a folder"),
        ("docs/gone.md", "not a file"),
    }
    assert len(document["files"]) == 2


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


def test_one_file_may_be_named_and_come_from_stdin(ready: CommandLine, folder: Path) -> None:
    assert ready("ingest", "-", "--name", "notes of today", stdin="Said.").code == 0
    assert ready("ingest", str(folder / "a.md"), "--document-id", "guide").code == 0
    first, second = (each.documents[0] for each in ready.fake.requests("IngestDocuments"))
    assert (first.name, first.file) == ("notes of today", b"Said.")
    assert (second.name, second.document_id) == ("guide", "guide")
    assert ready("ingest", "-", stdin="Said.").code == 2
    assert ready("ingest", "docs", "--document-id", "guide").code == 2
    assert ready("ingest", "nowhere.md").code == 1
    (folder / "none").mkdir()
    assert ready("ingest", "docs/none").code == 2


@pytest.mark.requirement("FOREST-5")
def test_two_texts_from_stdin_are_two_documents_by_their_names(ready: CommandLine) -> None:
    for name in ("foxes", "wolves", "foxes"):
        assert ready("ingest", "-", "--name", name, stdin=f"About {name}.").code == 0
    assert ready("ingest", "-", "--name", "bears", "--document-id", "animals", stdin="About bears.").code == 0
    requests = ready.fake.requests("IngestDocuments")
    assert [each.documents[0].document_id for each in requests] == ["foxes", "wolves", "foxes", "animals"]


def test_a_warning_says_that_the_chosen_session_does_not_see_the_ingested_document(
    ready: CommandLine, folder: Path
) -> None:
    assert folder.exists()
    assert "memotree session rebase" in ready("ingest", "docs/a.md").err
    assert "memotree session rebase" not in ready("ingest", "docs/a.md").err, "nothing has changed"
    ready.json("session", "discard", "--yes")
    (folder / "a.md").write_text("# A\n\nAnother text.")
    assert "memotree session rebase" not in ready("ingest", "docs/a.md").err


def test_other_files_are_ingested_after_one_is_refused(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    ready.fake.refusals["docs/a.md"] = ("UNREADABLE_DOCUMENT", "It has no text; export it anew.")
    ran = ready("ingest", "docs")
    assert ran.code == 1
    assert "error: docs/a.md: It has no text; export it anew." in ran.err
    assert "Ingested 1 document of 2; 1 failed." in ran.err
    document = ready.json("ingest", "docs", code=1)
    assert document["files"][0]["error"]["reason"] == "UNREADABLE_DOCUMENT"
    assert document["files"][1]["job"]["state"] == "SUCCEEDED"


def test_a_stopped_job_is_shown_with_the_command_that_continues_it(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    ready.fake.ingestions.append(
        jobs.Job(state=jobs.JOB_STATE_STOPPED, reason="BUDGET", message="The budget is spent.")
    )
    ran = ready("ingest", "docs/a.md")
    assert ran.code == 1
    assert "The budget is spent." in ran.err
    assert "memotree jobs resume" in ran.err


@pytest.mark.requirement("SERVE-6")
def test_in_the_background_each_file_has_a_job_that_can_be_watched(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    ran = ready("ingest", "docs", "--background")
    assert ran.code == 0
    assert ran.out.count("running") == 2
    assert ran.err.count("memotree jobs watch") == 1, "both are in one job"
    assert "Ingested" not in ran.err
    document = ready.json("ingest", "docs/a.md", "--background")
    assert document["files"][0]["job"]["state"] == "RUNNING"
    ready.fake.fail("IngestDocuments", RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "No.", "INVALID_ARGUMENT"))
    assert ready("ingest", "docs", "--background").code == 1


def test_the_command_ends_if_the_server_ends(ready: CommandLine, folder: Path) -> None:
    assert folder.exists()
    ready.fake.fail("IngestDocuments", RefusedError(grpc.StatusCode.UNAVAILABLE, "gone", ""))
    assert ready("ingest", "docs").code == 3
    assert len(ready.fake.requests("IngestDocuments")) == 1


# --- recall and ask ---


@pytest.mark.requirement("FOREST-8")
def test_recall_shows_passages_and_with_trace_why(ready: CommandLine) -> None:
    ran = ready("recall", "what", "is", "alpha", "--budget", "500", "--trace", "-a", "notes", "--since", "2024-01-01")
    assert ran.code == 0
    assert "notes > Top" in ran.out
    assert "alpha beta" in ran.out
    assert "Its words are the question's.  (words 0.90)" in ran.out
    (request,) = ready.fake.requests("Recall")
    assert (request.query, request.token_budget, request.include_trace) == ("what is alpha", 500, True)
    assert request.strategy == pb.RECALL_STRATEGY_HYBRID
    assert (list(request.filter.archives), request.filter.since) == (["notes"], "2024-01-01")
    assert ready("recall", "alpha", "--prompt").out.startswith("# notes\n\n")


@pytest.mark.requirement("USE-13")
def test_a_receipt_is_saved_and_used_again(ready: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    assert "alpha beta" in ready("recall", "alpha", "--save-receipt", str(path)).out
    assert json.loads(path.read_text(encoding="utf-8"))["method"] == "recall-1"
    ready("recall", "alpha", "--receipt", str(path))
    request = ready.fake.requests("Recall")[-1]
    assert (request.receipt.method, request.strategy, request.revision) == ("recall-1", 0, "")
    path.write_text("nonsense", encoding="utf-8")
    refused = ready("recall", "alpha", "--receipt", str(path))
    assert (refused.code, "no receipt" in refused.err) == (2, True)
    unsaved = ready("recall", "alpha", "--save-receipt", str(tmp_path / "nowhere" / "receipt.json"))
    assert unsaved.code == 2
    assert "alpha beta" in unsaved.out, "the answer is not lost"


def test_a_passage_is_headed_by_the_section_of_its_best_leaf() -> None:
    def head(best: str) -> str:
        leaves = [
            pb.RecalledNode(node=types_pb2.Node(source=types_pb2.Source(document_id="d", heading=heading)), score=score)
            for heading, score in (("Book > Safety", 0.2), (best, 0.9))
        ]
        passage = pb.Passage(
            archive_name="guide.md", headings=["Book", "Safety"], nodes=leaves, text="Call Zoe.", score=0.9
        )
        console = Console(width=80)
        with console.capture() as captured:
            console.print(look(RecallResult.from_wire(pb.RecallResponse(passages=[passage]))))
        return captured.get().splitlines()[0]

    assert head("Book > Repair") == "0.90  guide.md > Book > Repair"
    assert head("") == "0.90  guide.md > Book > Safety"


def test_recall_by_other_strategies_lists_nodes(ready: CommandLine) -> None:
    ran = ready("recall", "alpha", "--strategy", "lca", "-k", "3")
    assert "0.90  Child" in ran.out
    assert "[bold]" in ran.out, "the text of a node is no markup"
    document = ready.json("recall", "alpha", "--strategy", "collapsed")
    assert {one["node"]["title"] for one in document["nodes"]} == {"Root", "Child"}
    strategies = [request.strategy for request in ready.fake.requests("Recall")]
    assert strategies == [pb.RECALL_STRATEGY_LCA, pb.RECALL_STRATEGY_COLLAPSED]


@pytest.mark.requirement("FOREST-9")
def test_ask_shows_steps_as_they_come_then_the_answer_with_its_citations(ready: CommandLine) -> None:
    ran = ready("ask", "When", "was", "it?", "--max-steps", "3")
    assert ran.code == 0
    assert ran.out.startswith("In 1784.\n\nCitations\n1. Root")
    assert "notes  d1 3-9, page 2" in ran.out
    assert "1. recall" in ran.err
    assert "2. explore" in ran.err
    assert "warning: It is a fake." in ran.err
    document = ready.json("ask", "When?")
    assert [step["action"] for step in document["steps"]] == ["recall", "explore"]
    assert document["answer"]["text"] == "In 1784."
    assert document["answer"]["citations"][0]["source"]["document_id"] == "d1"


def test_a_citation_names_a_document_once_when_its_archive_has_the_same_name() -> None:
    source = Source("d1", 3, 9, 2, "Top", "0" * 64)
    cited = Citation("c" * 16, "c" * 40, source, title="Child", archive_name="d1")
    assert citation_line(1, cited).plain == f"1. Child  {'c' * 16}  d1 3-9, page 2  at {'c' * 10}"


# --- explore ---


@pytest.mark.requirement("FOREST-7")
def test_explore_goes_down_by_number_and_up_again(ready: CommandLine) -> None:
    ran = ready("explore", stdin="1\n1\n1\nt\nu\nu\nu\nu\nnonsense\nq\n1\n")
    assert ran.code == 0
    assert ran.out.count("All archives > notes > Root\nChild") == 1
    assert "alpha beta" in ran.out
    assert "number: go down" in ran.err
    assert "q: quit" in ran.err


def test_explore_ends_with_its_input(ready: CommandLine) -> None:
    ran = ready("explore", "--archive", "notes", stdin="")
    assert (ran.code, "  1. Root" in ran.out) == (0, True)


@pytest.mark.requirement("FOREST-7")
def test_explore_says_from_which_level_on_the_question_ranks_nodes(ready: CommandLine) -> None:
    told = "The question ranks the nodes below a node"
    ran = ready("explore", "--query", "alpha", stdin="1\n1\n1\n")
    assert ran.err.count(told) == 2, "above all archives, and at the roots of one"
    assert "  1. 0.80  Child" in ran.out
    assert told not in ready("explore", stdin="1\n").err


@pytest.mark.requirement("FOREST-7")
def test_with_a_question_children_are_shown_with_scores(ready: CommandLine) -> None:
    ran = ready("explore", "--node", "rrrr", "--query", "alpha", stdin="/\n/beta\nq\n")
    assert "  1. 0.80  Child" in ran.out
    assert "  1. Child" in ran.out, "a slash alone puts the question away"
    assert [request.query for request in ready.fake.requests("DrillDown")] == ["alpha", "beta"]


def test_without_a_terminal_explore_prints_one_node_as_json(ready: CommandLine) -> None:
    document = ready.json("explore", "--node", "rrrr", "--query", "alpha")
    assert document["node"]["title"] == "Root"
    assert [(one["score"], one["node"]["title"]) for one in document["children"]] == [(0.8, "Child")]
    document = ready.json("explore")
    assert [one["archive"]["name"] for one in document["children"]] == ["notes"]
    assert json.dumps(document)


@pytest.mark.requirement("FOREST-4")
def test_a_node_is_shown_with_its_place_in_the_document() -> None:
    console = Console(width=100, file=io.StringIO())
    for page, told in ((2, "guide.pdf 3-9, page 2 Top > Sub"), (0, "guide.md 3-9 Top > Sub")):
        source = Source(told.partition(" ")[0], 3, 9, page, "Top > Sub")
        with console.capture() as shown:
            console.print(display.node(Node("c" * 16, title="Child", source=source)))
        assert told in shown.get()


@pytest.mark.requirement("FOREST-2")
def test_a_node_with_a_truncated_derived_content_says_so() -> None:
    console = Console(width=100, file=io.StringIO())
    for cut in (True, False):
        with console.capture() as shown:
            console.print(display.node(Node("c" * 16, title="Child", content="alpha", content_cut=cut)))
        assert ("cut short" in shown.get()) is cut


# --- archives and summaries ---


@pytest.mark.requirement("FOREST-11")
def test_similar_archives_are_listed_and_joined(ready: CommandLine) -> None:
    assert "No archives have the same topic." in ready("archive", "suggest").out
    ready.json("archive", "create", "more", "--model", "m1")
    assert ready.json("archive", "suggest", "--model", "m1")["suggestions"][0]["similarity"] == 0.75
    ran = ready("archive", "join", "notes", "more", "--name", "all", "--yes")
    assert (ran.code, "7 nodes moved." in ran.err) == (0, True)
    (request,) = ready.fake.requests("MergeArchives")
    assert (list(request.archives), request.name) == (["notes", "more"], "all")
    assert request.request_id


@pytest.mark.requirement("FOREST-5")
def test_stale_summaries_are_listed_and_renewed(ready: CommandLine) -> None:
    ran = ready("summaries", "list", "-a", "notes")
    assert "children" in ran.out
    assert "2 in all" in ran.err
    job = ready.json("summaries", "renew", "--background", "--max-model-tokens", "100")
    assert (job["kind"], job["state"]) == ("renew_summaries", "QUEUED")
