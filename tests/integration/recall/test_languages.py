"""Notes are found in the languages of those who write them: in other forms of a word, and with an honest confidence."""

from dataclasses import replace

import pytest
from integration.recall.talks import Models, leaves
from integration.worlds import World

from memotree.forest.recall.recall import Recall
from memotree.models.languages import language_of
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("USE-4")

NOTES = {
    "german": (
        "Die alten Häuser am Hafen wurden im Jahr 1890 gebaut.",
        "Wann wurde das alte Haus am Hafen gebaut?",
        "Welche Zutaten braucht ein Kuchen mit Zitronen?",
    ),
    "spanish": (
        "Las canciones del coro fueron compuestas en Sevilla.",
        "¿Dónde fue compuesta la canción del coro?",
        "¿Cuánto cuesta un billete de tren para los estudiantes?",
    ),
    "french": (
        "Les vieilles maisons du port ont été vendues en 1890.",
        "Quand la vieille maison du port a-t-elle été vendue ?",
        "Combien coûte un billet de train pour les étudiants ?",
    ),
    "portuguese": (
        "As canções do coro foram compostas em Lisboa.",
        "Onde foi composta a canção do coro?",
        "Quanto custa um bilhete de trem para os estudantes?",
    ),
    "russian": (
        "Старые дома возле гавани были построены в 1890 году.",
        "Когда был построен старый дом возле гавани?",
        "Сколько стоит билет на поезд для студентов?",
    ),
    "arabic": (
        "بنيت البيوت القديمة عند الميناء في عام 1890.",
        "متى بنيت بيوت الميناء القديم؟",
        "كم سعر تذكرة القطار للطلاب؟",
    ),
    "hindi": (
        "बंदरगाह के पुराने मकान 1890 में बनाए गए थे।",
        "बंदरगाह का पुराना मकान कब बनाया गया?",
        "छात्रों के लिए रेल का टिकट कितने का है?",
    ),
    "chinese": ("港口的旧房子建于1890年。", "港口的旧房子是什么时候建的", "学生的火车票多少钱"),
    "japanese": (
        "港の古い家は1890年に建てられました。",
        "港の古い家はいつ建てられましたか",
        "学生の切符はいくらですか",
    ),
}
"""By language: a note, a question that it answers in other forms of its words, and one that nothing answers."""

BESIDE = [
    "Die Besprechung beginnt um neun und dauert eine Stunde.",
    "La reunión empieza a las nueve y dura una hora.",
    "La réunion commence à neuf heures et dure une heure.",
    "Совещание начинается в девять и длится один час.",
    "يبدأ الاجتماع في التاسعة ويستمر ساعة واحدة.",
    "बैठक नौ बजे शुरू होती है और एक घंटे चलती है।",
    "会议九点开始，持续一个小时。",  # noqa: RUF001 - the marks of Chinese
    "会議は九時に始まり、一時間続きます。",
    "The meeting begins at nine and lasts an hour.",
]


@pytest.mark.parametrize("name", NOTES)
def test_the_language_of_a_question_is_told_by_its_script_or_its_function_words(name: str) -> None:
    assert [language_of(text).name for text in NOTES[name][1:]] == [name, name]


async def test_a_note_is_found_by_other_forms_of_its_words_and_what_nothing_answers_is_not_sure(world: World) -> None:
    notes = [text for text, _, _ in NOTES.values()] + BESIDE
    nodes = world.nodes(len(notes))
    await world.put(*(replace(node, content=text) for node, text in zip(nodes, notes, strict=True)))
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))

    async def recalled(question: str) -> pb.RecallResponse:
        return await recalling.recall(pb.RecallRequest(workspace=world.workspace, query=question))

    for text, asked, unknown in NOTES.values():
        answer = await recalled(asked)
        assert max(leaves(answer), key=lambda one: one.score).node.content == text, asked
        assert answer.confidence != types_pb2.CONFIDENCE_NONE, asked
        assert (await recalled(unknown)).confidence != types_pb2.CONFIDENCE_STRONG, unknown


async def test_a_question_in_traditional_characters_gets_the_same_answer_as_in_simplified_ones(world: World) -> None:
    text, asked, _ = NOTES["chinese"]
    nodes = world.nodes(1 + len(BESIDE))
    await world.put(*(replace(node, content=each) for node, each in zip(nodes, [text, *BESIDE], strict=True)))
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    first, second = [
        await recalling.recall(pb.RecallRequest(workspace=world.workspace, query=query))
        for query in (asked, "港口的舊房子是什麼時候建的")
    ]
    for answer in (first, second):
        assert max(leaves(answer), key=lambda one: one.score).node.content == text
    assert first.confidence == second.confidence != types_pb2.CONFIDENCE_NONE
