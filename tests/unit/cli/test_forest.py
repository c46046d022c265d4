"""The output of ``memotree recall | ask | explore | summaries``, and of joining archives."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from unit.cli.conftest import CommandLine

from memotree.cli.commands.ask import citation_line
from memotree.cli.commands.recall import look
from memotree.cli.terminal import display
from memotree.client import Citation, Node, RecallResult, Source
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("SERVE-4")


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
    assert "no receipt" in ready.refused("recall", "alpha", "--receipt", str(path), code=2)
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
    ran = ready("explore", "--archive", "notes", stdin="")
    assert (ran.code, "  1. Root" in ran.out) == (0, True), "it ends with its input"


@pytest.mark.requirement("FOREST-7")
def test_explore_says_from_which_level_on_the_question_ranks_nodes_and_shows_scores(ready: CommandLine) -> None:
    told = "The question ranks the nodes below a node"
    ran = ready("explore", "--query", "alpha", stdin="1\n1\n1\n")
    assert ran.err.count(told) == 2, "above all archives, and at the roots of one"
    assert "  1. 0.80  Child" in ran.out
    assert told not in ready("explore", stdin="1\n").err
    ran = ready("explore", "--node", "rrrr", "--query", "alpha", stdin="/\n/beta\nq\n")
    assert "  1. 0.80  Child" in ran.out
    assert "  1. Child" in ran.out, "a slash alone puts the question away"
    assert [request.query for request in ready.fake.requests("DrillDown")][-2:] == ["alpha", "beta"]


def test_without_a_terminal_explore_prints_one_node_as_json(ready: CommandLine) -> None:
    document = ready.json("explore", "--node", "rrrr", "--query", "alpha")
    assert document["node"]["title"] == "Root"
    assert [(one["score"], one["node"]["title"]) for one in document["children"]] == [(0.8, "Child")]
    document = ready.json("explore")
    assert [one["archive"]["name"] for one in document["children"]] == ["notes"]
    assert json.dumps(document)


@pytest.mark.requirement("FOREST-2", "FOREST-4")
def test_a_node_is_shown_with_its_place_in_the_document_and_whether_its_content_is_cut_short() -> None:
    console = Console(width=100, file=io.StringIO())
    for page, told in ((2, "guide.pdf 3-9, page 2 Top > Sub"), (0, "guide.md 3-9 Top > Sub")):
        source = Source(told.partition(" ")[0], 3, 9, page, "Top > Sub")
        with console.capture() as shown:
            console.print(display.node(Node("c" * 16, title="Child", source=source, content="a", content_cut=page > 0)))
        assert told in shown.get()
        assert ("cut short" in shown.get()) is (page > 0)


# --- archives and summaries ---


@pytest.mark.requirement("FOREST-11")
def test_similar_archives_are_listed_and_joined(ready: CommandLine) -> None:
    assert "No archives have the same topic." in ready("archive", "suggest").out
    ready.json("archive", "create", "more", "--model", "m1")
    assert ready.json("archive", "suggest", "--model", "m1")["suggestions"][0]["similarity"] == 0.75
    assert "7 nodes moved." in ready("archive", "join", "notes", "more", "--name", "all", "--yes").err
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
