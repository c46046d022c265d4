"""The nodes in the chat model's context, and the citations of its answer."""

from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.tokens import count_tokens

from memotree.forest.asking.extracts import extract
from memotree.forest.asking.loop_context import Context, Shown, nearest_by_words, tokens_of
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2


def shown(
    name: str, content: str = "", summary: str = "", *, children: int = 0, step: int = 0, score: float = 0.5
) -> Shown:
    node = types_pb2.Node(id=name, title=f"Title {name}", summary=summary, child_count=children)
    return Shown(node, content, "why", score, step)


def test_a_node_is_shown_once() -> None:
    context = Context(1000)
    first = shown("a", "text")
    assert context.add([first, shown("a", "other")]) == [first]
    assert context.add([shown("a", "third")]) == []
    assert [form.content for form in context.for_model()] == ["text"]


def test_the_newest_nodes_are_shown_in_full_and_earlier_ones_in_outline() -> None:
    context = Context(400)
    context.add(shown(f"old{number}", "old words " * 60, "In short.") for number in range(4))
    context.add([shown("new", "new words " * 80, "In short.", step=1)])
    forms = {form.node_id: form for form in context.for_model()}
    assert set(forms) == {"old0", "old1", "old2", "old3", "new"}
    assert forms["new"].content
    assert (forms["old3"].content, forms["old3"].summary) == ("", "In short.")


def test_an_explored_node_is_replaced_by_its_children() -> None:
    context = Context(90)
    top = shown("top", summary="A rather long summary of all that is below it, " * 3, children=2, score=1.0)
    context.add([top])
    top.explored = True
    context.add([shown("leaf", "The words that were sought.", step=1)])
    assert "leaf" in {form.node_id for form in context.for_model()}
    assert context.for_model()[-1].content == "The words that were sought."


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60), st.integers(0, 2), st.integers(0, 3)), max_size=30),
)
def test_the_budget_is_kept_and_something_is_always_shown(budget: int, nodes: list[tuple[int, int, int, int]]) -> None:
    context = Context(budget)
    context.add(
        shown(f"n{number}", "word " * content, "in short " * summary, children=children, step=step)
        for number, (content, summary, children, step) in enumerate(nodes)
    )
    forms = context.for_model()
    assert bool(forms) == bool(nodes)
    assert len(forms) == 1 or sum(map(tokens_of, forms)) <= budget


def test_refusals_give_a_reason() -> None:
    context = Context(1000)
    top = shown("top", children=1)
    context.add([top, shown("leaf", "x")])
    assert context.refusal("top") == ""
    assert "is a leaf" in context.refusal("leaf")
    assert "is not a node of the context" in context.refusal("x" * 5000)
    assert len(context.refusal("x" * 5000)) < 200
    top.explored = True
    assert "explored already" in context.refusal("top")
    before = context.for_model()
    context.refusal("top")
    assert context.for_model() != before, "the model is told, so that it is not asked the same again"


def test_names_that_were_not_shown_are_separated_from_those_that_were() -> None:
    context = Context(1000)
    context.add([shown("a", "x"), shown("b", "y")])
    known, unknown = context.cited(["b", "zz", "a", "b"])
    assert [one.node.id for one in known] == ["b", "a"]
    assert unknown == ["zz"]


def test_the_leaves_that_share_most_words_with_an_answer_are_found() -> None:
    leaves = [
        shown("fish", "Trout and pike live in the upper river."),
        shown("stone", "The stone bridge was rebuilt after the flood of 1784."),
        shown("wood", "The wooden bridge burned down in 1803."),
    ]
    answer = "The stone bridge was rebuilt in 1784 and the wooden one burned down in 1803."
    assert {one.node.id for one in nearest_by_words(answer, leaves)} == {"stone", "wood"}
    assert nearest_by_words("Quite something else", leaves) == []
    assert nearest_by_words(answer, []) == []


def passage(*leaves: tuple[str, str, float]) -> pb.Passage:
    """Leaves that were cut from one text."""
    found, at = pb.Passage(), 0
    for name, text, score in leaves:
        source = types_pb2.Source(document_id="d", start=at, end=at + len(text))
        found.nodes.add(
            node=types_pb2.Node(id=name, content=text),
            score=score,
            tokens=count_tokens(text),
            citation=pb.Citation(source=source),
        )
        at += len(text)
    return found


def test_an_extract_keeps_document_order_and_joins_neighbours() -> None:
    counted = passage(("a", "One. ", 0.5), ("b", "Two. ", 0.9), ("c", "Three.", 0.4))
    recalled = pb.RecallResponse(passages=[counted, passage(("d", "Elsewhere.", 0.8))])
    assert extract(recalled, 100) == ("One. Two. Three.\n\nElsewhere.", ["a", "b", "c", "d"])
    assert extract(recalled, 5) == ("Two.\n\nElsewhere.", ["b", "d"])


def test_an_extract_never_glues_notes_together_and_shows_their_titles() -> None:
    facts = ("Birthday", "12 May 1990"), ("Colour", "Green"), ("Home", "In Lisbon")
    nodes = [
        pb.RecalledNode(node=types_pb2.Node(id=title, title=title, type="note", content=content), score=0.9, tokens=5)
        for title, content in facts
    ]
    recalled = pb.RecallResponse(passages=[pb.Passage(nodes=nodes)])
    assert extract(recalled, 100)[0] == "Birthday: 12 May 1990\nColour: Green\nHome: In Lisbon"


def test_passages_far_worse_than_the_best_are_left_out_of_an_extract_within_the_budget() -> None:
    recalled = pb.RecallResponse(passages=[passage(("a", "It is so.", 0.8)), passage(("b", "By the way.", 0.05))])
    assert extract(recalled, 100) == ("It is so.", ["a"])


def test_an_extract_of_nodes_uses_summaries_where_there_is_no_text() -> None:
    top = pb.RecalledNode(node=types_pb2.Node(id="top", summary="About rivers."), score=0.9, tokens=4)
    leaf = pb.RecalledNode(node=types_pb2.Node(id="leaf", content="A leaf."), score=0.8, tokens=2)
    recalled = pb.RecallResponse(nodes=[top, leaf])
    assert extract(recalled, 100) == ("About rivers.\n\nA leaf.", ["top", "leaf"])
    assert extract(recalled, 100, {"leaf"}) == ("A leaf.", ["leaf"])
    assert extract(pb.RecallResponse(), 100) == ("", [])
