"""Every answer says how sure it is, whatever else is stored; "nothing is known" is an answer."""

from typing import Any, NamedTuple

import pytest
from integration.recall.talks import COLLAPSED, HYBRID, LCA, TRACTOR, Forest, Models, leaves
from integration.worlds import World
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.position import many_between

from memotree.canvas.search import NodeSearch
from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.recall.recall import NOT_SUPPORTED, NOTHING_RELEVANT, Recall
from memotree.models import gateway
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("USE-4")

FACTS = {
    "Why does the diesel engine of the tractor smoke?": (
        "The tractor",
        "The diesel engine of the tractor smokes, because its injection pump is worn.",
    ),
    "When does the ferry to the island leave?": ("The ferry", "The ferry to the island leaves at nine in the morning."),
    "How many retries are allowed after a request?": (
        "Retries",
        "At most five retries are allowed after a request, with pauses that grow.",
    ),
    "Who may approve a release of the payment service?": (
        "Releases",
        "A release of the payment service is approved by Nora or, when she is away, by Karim.",
    ),
}
"""Questions, each with the title and the content of the note that answers it."""

UNKNOWN = ["xqzzy blorp", "What is the capital of France?", "Who painted the Mona Lisa?", "How do I frobnicate this?"]
BESIDE = [20, 400]
"""How many unrelated notes stand beside those that answer the questions."""

WAYS = ["LCA", "COLLAPSED", "HYBRID", "SEARCH_TYPE_FULL_TEXT", "SEARCH_TYPE_SEMANTIC", "SEARCH_TYPE_HYBRID"]
NONE, STRONG = types_pb2.CONFIDENCE_NONE, types_pb2.CONFIDENCE_STRONG
STRATEGIES: dict[str, Any] = {"LCA": LCA, "COLLAPSED": COLLAPSED, "HYBRID": HYBRID}

_COOKS = ("Bea", "Carlos", "Dina", "Emil", "Fatima", "Goran", "Hana", "Ivo", "Jana", "Kofi")
_DISHES = ("lentil soup", "plum cake", "rice pudding", "bean stew", "carrot salad", "onion pie", "apple crumble")
_SPICES = ("cumin", "nutmeg", "cinnamon", "basil", "thyme", "ginger", "paprika", "saffron", "mint", "clove", "dill")


def unrelated(count: int) -> list[tuple[str, str]]:
    """The titles and contents of notes about cooking."""
    return [
        (
            f"{_DISHES[number % 7].capitalize()} {number}",
            f"This is how {_COOKS[number % 10]} does it: {number} minutes, with {_SPICES[number % 11]} at the end.",
        )
        for number in range(count)
    ]


class Sure(NamedTuple):
    """How sure an answer is."""

    confidence: int
    likelihood: float


async def asked(world: World, questions: list[str]) -> dict[tuple[str, str], Sure]:
    """How sure the answer to each question is, by each way to ask it."""
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    found: dict[tuple[str, str], Sure] = {}
    for question in questions:
        for way in WAYS:
            if way in STRATEGIES:
                request = pb.RecallRequest(workspace=world.workspace, query=question, strategy=STRATEGIES[way])
                answer = await recalling.recall(request)
                found[question, way] = Sure(answer.confidence, answer.likelihood)
                continue
            kind = node_service_pb2.SearchType.Value(way)
            search = node_service_pb2.SearchNodesRequest(workspace=world.workspace, query=question, search_type=kind)
            hits = await NodeSearch(world.store, search, world.limits).run()
            assert bool(hits.warnings) == (hits.confidence == NONE and bool(hits.hits))
            found[question, way] = Sure(hits.confidence, hits.likelihood)
    return found


async def put_notes(world: World, notes: list[tuple[str, str]]) -> None:
    archive = Archive(new_id(), f"Notes {new_id()}")
    places = many_between(None, None, len(notes))
    nodes = [
        Node(new_id(), archive.id, None, place, title=title, content=content)
        for place, (title, content) in zip(places, notes, strict=True)
    ]
    await world.put(archive, *nodes)


async def test_how_sure_an_answer_is_does_not_depend_on_the_number_of_other_notes(world: World) -> None:
    alone: dict[tuple[str, str], Sure] = {}
    for question, note in FACTS.items():
        await put_notes(world, [note])
        alone |= await asked(world, [question])
    assert {sure.confidence for sure in alone.values()} == {STRONG}, alone
    there = 0
    for count in [0, *BESIDE]:
        await put_notes(world, unrelated(count)[there:])
        there = count
        for key, sure in (await asked(world, [*FACTS, *UNKNOWN])).items():
            if key in alone:
                assert sure.confidence == STRONG, (count, key)
                assert sure.likelihood == pytest.approx(alone[key].likelihood, abs=0.1), (count, key)
            else:
                assert sure.confidence == NONE, (count, key)


async def test_the_best_score_of_a_recall_is_its_likelihood_and_a_warning_says_if_nothing_answers(
    still: Forest,
) -> None:
    for question in (*UNKNOWN, TRACTOR, "Who planted roses by the wall?"):
        answer = await still(question, include_trace=True)
        is_known = question not in UNKNOWN
        assert (answer.confidence, answer.likelihood >= 0.7, answer.likelihood < 0.2) == (
            STRONG if is_known else NONE,
            is_known,
            not is_known,
        )
        assert (NOTHING_RELEVANT in answer.warnings) is not is_known
        best = max(leaves(answer), key=lambda one: one.score, default=None)
        if best is not None:
            if not any(warning.startswith(NOT_SUPPORTED) for warning in answer.warnings):
                assert best.score == pytest.approx(answer.likelihood, abs=1e-6)
            assert sum(signal.score for signal in best.trace.signals) == pytest.approx(best.score, abs=1e-6)
    nothing = await still("ferry", filter=pb.RecallFilter(archives=[still.sea.id], tags=["no-such-tag"]))
    assert (nothing.confidence, leaves(nothing), bool(nothing.warnings)) == (NONE, [], True)


@pytest.mark.requirement("USE-15")
@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("When does release 2.2 ship?", "'2.2'"),
        ("Which wine is served at the wedding?", "'wine'"),
        ("What is the phone number of Nora?", "a phone number"),
        ("How many guests does Karim invite?", "'Karim'"),
        ("When does release 2.1 ship?", ""),
        ("Who plans the wedding?", ""),
        ("Where is the wedding?", ""),
    ],
)
async def test_a_question_of_a_known_subject_is_not_sure_of_what_nothing_says(
    world: World, question: str, told: str
) -> None:
    await put_notes(
        world,
        [
            ("Release 2.1", "Release 2.1 ships before the season starts, on 15 April."),
            ("Wedding", "The wedding is on Marstrand, with sixty guests; Nora plans it."),
            ("Nora", "Nora leads the team and lives in Turku."),
        ],
    )
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    for strategy in (HYBRID, COLLAPSED):
        answer = await recalling.recall(pb.RecallRequest(workspace=world.workspace, query=question, strategy=strategy))
        said = [warning for warning in answer.warnings if warning.startswith(NOT_SUPPORTED)]
        assert said == ([f"{NOT_SUPPORTED} {told}."] if told else [])
        assert not (told and answer.confidence == STRONG)


async def test_ask_answers_what_is_known_and_says_that_nothing_is(still: Forest) -> None:
    store, models = still.world.store, gateway.Models(None)  # type: ignore[arg-type]  # nothing is cached
    asking = Ask(still.recalling, DrillDown(store, models), store, models)
    for question in (*UNKNOWN, TRACTOR):
        events = [event async for event in asking.ask(pb.AskRequest(workspace=still.world.workspace, query=question))]
        answer = events[-1].answer
        if question == TRACTOR:
            assert "diesel engine" in answer.text
            assert (bool(answer.citations), answer.confidence) == (True, STRONG)
        else:
            assert (answer.text, list(answer.citations)) == ("Nothing is known about this here.", [])
            assert answer.confidence == NONE
