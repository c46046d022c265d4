"""The recall bench is correct: its metric, its intervals, its baselines, its tables and its comparisons."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench import baselines, kept_notes, recall_confidence, recall_embedding, recall_pages
from bench.baselines import Piece, Ranking, chunks, pack, terms_of, windows
from bench.evidence import Document, EvaluationSet, Question, Turn, conversation, cost_of, figure, read_set
from bench.recall_asking import Ingested, located, packed_parts


def made(texts: Sequence[str], name: str = "made") -> EvaluationSet:
    turns = [Turn(f"t{number}", "Ann", text) for number, text in enumerate(texts)]
    return EvaluationSet(name, (conversation("d", "", turns),), ())


def written(text: str, name: str = "written") -> EvaluationSet:
    return EvaluationSet(name, (Document("d", "", text, media_type="text/markdown"),), ())


def write(folder: Path, documents: Sequence[object], questions: Sequence[object]) -> Path:
    folder.mkdir()
    for name, rows in (("documents", documents), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return folder


def counted(text: str) -> NDArray[np.float32]:
    """A vector that has one axis for each letter."""
    vector = np.array([text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"], dtype=np.float32)
    return vector / max(float(np.linalg.norm(vector)), 1.0)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([counted(text) for text in texts], dtype=np.float32)


# --- The metric ------------------------------------------------------------------------------------------------------


def test_recall_is_the_share_of_the_evidence_that_was_packed_of_the_own_document() -> None:
    data = EvaluationSet("two", (*made(["x"] * 6).documents, *made(["y"] * 6).documents), ())
    lines = data.documents[1].lines
    question = Question("q", 1, "?", "x", ((lines[2],), (lines[5],)))
    assert data.recall(question, {(1, 2), (0, 5), (1, 4)}) == 0.5
    assert data.recall(question, {(1, 2), (1, 5)}) == 1.0
    document = made(["hello there"]).documents[0]
    question = Question("q", 0, "?", "x", (document.lines,))
    assert question.recall([(0, 8)], document) == 0.0, "a part of a turn is not the turn"
    assert question.recall([(0, 8), (8, 16)], document) == 1.0
    document = made(["a", "b"]).documents[0]
    lost = Question("q", 0, "?", "x", (document.lines[1:],), lost=1)
    assert lost.recall(document.lines, document) == 0.5, "evidence that no turn has counts as never packed"


def test_of_a_document_every_visible_character_of_the_evidence_counts_once() -> None:
    document = written("ab cd  ef\n\ngh").documents[0]
    question = Question("q", 0, "?", "x", (((0, 9),), ((11, 13),)), is_whole=False)
    for packed, share in (([(0, 5)], 4 / 8), ([(0, 5), (11, 13)], 6 / 8), ([(0, 13)], 1.0)):
        assert question.recall(packed, document) == share
    document = written("ab ab cd").documents[0]
    question = Question("q", 0, "?", "x", (((0, 2), (3, 5)),), is_whole=False)
    for packed, share in (([(3, 5)], 1.0), ([(0, 2), (3, 5)], 1.0), ([(5, 8)], 0.0)):
        assert question.recall(packed, document) == share, "one of the places that say the same is enough"


def test_a_set_of_documents_is_read(tmp_path: Path) -> None:
    document = {"doc_id": "m", "title": "Manual", "kind": "markdown", "text": "# A\n\nb\n"}
    asked = {"question_id": 1, "doc_id": "m", "question": "?", "category": "x"}
    evidence = [{"text": "b", "spans": [[5, 6]]}, {"text": "gone", "spans": []}]
    data = read_set(write(tmp_path / "some", [document], [asked | {"evidence": evidence}]))
    assert data.documents == (Document("m", "Manual", "# A\n\nb\n", (), "text/markdown"),)
    assert data.questions[0].evidence == (((5, 6),),)
    assert data.questions[0].lost == 1
    assert data.questions[0].recall([(0, 8)], data.documents[0]) == 0.5
    assert not data.has_turns


@given(text=st.text(alphabet="ab. \n#", max_size=2000))
def test_the_lines_of_a_document_are_its_text(text: str) -> None:
    document = written(text).documents[0]
    assert "".join(text[start:end] for start, end in document.lines) == text
    assert sum(cost_of(text[slice(*line)]) for line in document.lines) == cost_of(text)
    assert len(document.headings) == len(document.lines)


def test_a_line_has_the_headings_above_it_and_is_located_by_letters_and_digits_alone() -> None:
    document = written("# A\nx\n## B\ny\n# C\nz\n").documents[0]
    assert document.headings == ("", "A", "A", "A B", "", "C")
    text = "One  two, three.\n\nFour five!"
    assert located(["one is missing", "One two", "three. Four"], text) == [(0, 0), (0, 8), (10, 22)]


def test_a_set_is_read_with_numbers_for_ids_what_is_missing_and_fewer_questions_of_all(
    tmp_path: Path,
) -> None:
    document = {"doc_id": 7, "title": None, "turns": [{"id": 1, "speaker": "A", "text": "x", "time": None}]}
    asked = {"question_id": 1, "doc_id": 7, "question": "?", "category": "x", "evidence": [1, 2]}
    data = read_set(write(tmp_path / "some", [document], [asked, asked | {"evidence": []}]))
    assert data.documents == (conversation("7", "", [Turn("1", "A", "x", "")]),)
    assert data.questions[0].evidence == (((0, 4),),)
    assert data.questions[0].lost == 1
    assert not data.questions[1].counts
    many = [asked | {"question_id": number} for number in range(101)]
    spread = read_set(write(tmp_path / "other", [document], many), 3)
    assert [question.id for question in spread.questions] == ["0", "50", "100"]


def test_a_turn_of_several_leaves_is_packed_only_with_all_of_them() -> None:
    first, second = (0, (0, 9)), (0, (10, 20))
    parts = {"a": first, "b": first, "c": second}
    ingested = Ingested([], parts=parts, leaves=Counter({first: 2, second: 1}))
    assert packed_parts(["a", "c", "a"], ingested) == {second}
    assert packed_parts(["a", "b"], ingested) == {first}


# --- Intervals -------------------------------------------------------------------------------------------------------


def test_the_interval_by_question_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).random(2000).tolist()
    found = figure(values, list(range(2000)))
    spread = 100 * 1.96 * float(np.std(values)) / 2000**0.5
    assert found.mean == pytest.approx(100 * np.mean(values))
    assert found.by_question == pytest.approx((found.mean - spread, found.mean + spread), abs=0.1)


def test_with_one_question_a_document_both_intervals_are_the_same_and_every_run_gives_them() -> None:
    values = np.random.default_rng(2).random(50).tolist()
    found = figure(values, list(range(50)))
    assert found.by_question == found.by_document
    assert figure(values, list(range(50))) == found
    assert figure([1.0, 1.0, 1.0, 0.0], [0, 0, 0, 1]).mean == 75.0, "documents weigh by their questions"
    assert np.isnan(figure([], []).mean)
    documents = [number // 50 for number in range(500)]
    found = figure([float(document % 2) for document in documents], documents)
    by_document, by_question = (high - low for low, high in (found.by_document, found.by_question))
    assert by_document > 4 * by_question, "questions of one document that agree make the interval by document wider"


# --- Baselines -------------------------------------------------------------------------------------------------------


@given(turns=st.integers(1, 60), size=st.sampled_from(baselines.WINDOWS))
def test_windows_cover_every_turn_by_half_steps(turns: int, size: int) -> None:
    document = made(["x"] * turns).documents[0]
    found = windows(document, 4, size)
    assert {place for piece in found for place in piece.places} == {(4, turn) for turn in range(turns)}
    assert all(piece.end - piece.start == min(size, turns) for piece in found)
    assert all(0 < later.start - one.start <= max(1, size // 2) for one, later in pairwise(found))


@given(lengths=st.lists(st.integers(0, 900), max_size=40))
def test_chunks_are_the_document_in_order_and_within_their_size(lengths: list[int]) -> None:
    data = made(["x" * length for length in lengths])
    found = chunks(data.documents[0], 0)
    assert [place for piece in found for place in piece.places] == [(0, turn) for turn in range(len(lengths))]
    for piece in found:
        size = sum(data.costs[place] for place in piece.places)
        assert size <= baselines.CHUNK_TOKENS or piece.end - piece.start == 1


def test_bm25_prefers_the_rare_word_and_the_shorter_piece_and_fusion_adds_the_vectors() -> None:
    assert terms_of("The painted boats, and what they were painting") == terms_of("paint boat paint")
    pieces = ["blue boat", "blue car", "blue car with a very long story about nothing in particular", "blue sky"]
    ranking = Ranking([Counter(terms_of(text)) for text in pieces], embed(pieces))
    scores = ranking.words(terms_of("a blue car"))
    assert scores[1] > scores[2] > scores[0]
    fused = ranking.scores(terms_of("blue boat"), counted("blue boat"))
    assert set(fused) == set(baselines.METHODS)
    assert fused["fusion"][0] == pytest.approx(1.0), "each signal counts 1 at its best piece"


def test_packing_counts_a_shared_turn_once_and_keeps_the_budget() -> None:
    data = made(["x" * 35] * 6)
    assert data.costs[0, 0] == len("Ann: ") / 4 + 35 / 4
    packed = pack([Piece(0, 0, 3), Piece(0, 1, 4), Piece(0, 2, 5)], data.costs, 40)
    assert packed == {(0, 0), (0, 1), (0, 2), (0, 3)}
    data = made([*["x" * 400] * 5, "x"])
    last = Piece(0, 5, 6)
    misfits = [Piece(0, number, number + 1) for number in range(5)]
    assert pack([*misfits[:4], last], data.costs, 50) == {(0, 5)}
    assert pack([*misfits, last], data.costs, 50) == set(), "the fifth misfit ends the packing"


def test_every_baseline_answers_every_question_of_its_own_and_of_all_documents() -> None:
    texts = [f"turn {number} about {word}" for number, word in enumerate(["boats", "cats", "taxes", "rain"] * 8)]
    one, other = made(texts), made(["Something else entirely"] * 5)
    question = Question("q", 0, "Who likes cats?", "x", (one.documents[0].lines[1:2],))
    data = EvaluationSet("two", (*one.documents, *other.documents), (question,) * 2)
    found = baselines.run(data, (100, 4000), embed)
    assert len(found) == len(baselines.METHODS) * (len(baselines.WINDOWS) + 1)
    for rows in found.values():
        assert {where: set(row) for where, row in rows.items()} == {"own": {100, 4000}, "pooled": {100, 4000}}
        assert rows["own"][4000] == rows["pooled"][4000] == [1.0, 1.0]


def test_chunks_of_documents_are_ranked_with_their_headings_and_without() -> None:
    text = "# Boats\n\n" + "They float. " * 20 + "\n\n# Cars\n\n" + "They roll. " * 20
    one = written(text)
    place = text.index("They roll.")
    question = Question("q", 0, "cars", "x", (((place, place + 220),),), is_whole=False)
    data = EvaluationSet("one", one.documents, (question,))
    found = baselines.run(data, (64,), embed, has_pooled=False)
    assert len(found) == 2 * len(baselines.METHODS) * len(baselines.CHUNKS_OF_DOCUMENTS)
    assert found["BM25, chunks of 64 tokens with headings"]["own"][64] >= found["BM25, chunks of 64 tokens"]["own"][64]


# --- The page --------------------------------------------------------------------------------------------------------


def test_only_the_tables_of_runs_with_marks_on_a_page_are_replaced(tmp_path: Path) -> None:
    run = {"kind": "scale", "set": "scale", "date": "today", "leaves": 10, "archives": 1, "rows": {"p95": 5}}
    kept = tmp_path / "recall-scale.json"
    kept.write_text(json.dumps(run), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- begin: scale -->old<!-- end: scale -->\nAfter\n", encoding="utf-8")
    recall_pages.renew([kept], page)
    once = page.read_text(encoding="utf-8")
    assert "| p95 | 5 |" in once
    assert "old" not in once
    assert once.startswith("Before\n")
    assert once.endswith("\nAfter\n")
    recall_pages.renew([kept], page)
    assert page.read_text(encoding="utf-8") == once


def test_each_way_to_ask_has_its_table_of_confidence() -> None:
    answered = {"questions": 3, "strong": 66.7, "weak": 33.3, "none": 0.0}
    other = {"questions": 2, "strong": 0.0, "weak": 0.0, "none": 100.0, "area": 0.98765, "false_alarms": 4.4}
    kinds = {"answered": answered, "nonsense": other}
    places = {"Recall: notes": kinds, "Recall: own": kinds, "SearchNodes HYBRID: own": kinds}
    run = {"kind": "confidence", "set": "confidence", "date": "today", "sets": ["locomo-dev"], "places": places}
    recall, search = recall_pages.sheets(run)
    rows = [row[0] for row in recall.rows]
    assert rows == ["notes: answered", "notes: nonsense", "own: answered", "own: nonsense"]
    assert [row[1:] for row in search.rows] == [
        ("3", "67 %", "33 %", "0 %", "", ""),
        ("2", "0 %", "0 %", "100 %", "0.988", "4 %"),
    ]
    assert "SearchNodes HYBRID" in search.title


def test_only_documents_that_had_no_part_in_the_fit_are_asked_about_their_confidence() -> None:
    documents = tuple(Document(f"d{number}", "", f"Text {number}.\n", ()) for number in range(4))
    questions = tuple(
        Question(str(number), number, f"Question {number}?", "x", (((0, 4),),), is_whole=False) for number in range(4)
    )
    one = EvaluationSet("one", documents, questions)
    alone = tuple(replace(question, document=0) for question in questions)
    single = EvaluationSet("single", documents[:1], alone)
    found = dict(recall_confidence._questions(one, [one, single]))
    assert found["answered"] == [("Question 1?", 1), ("Question 3?", 3)]
    assert [text for text, _ in found["of other sets"]] == ["Question 1?", "Question 3?"]
    assert {document for asked in found.values() for _, document in asked} <= {1, 3}


# --- Notes ---


def test_an_answer_about_notes_is_right_if_it_has_the_fact_and_not_the_former_one(tmp_path: Path) -> None:
    rows: dict[str, list[dict[str, object]]] = {
        "notes": [{"id": "rent", "title": "", "text": "900 euros."}, {"id": "pin", "title": "Pin", "text": "1234"}],
        "corrections": [{"id": "rent", "text": "The rent is 950 euros."}],
        "forgotten": [{"id": "pin"}],
        "questions": [{"question": "Rent?", "kind": "x", "answer_patterns": ["950"], "stale_patterns": ["900"]}],
        "near_misses": [{"question": "Whose flat is it?"}],
        "other_worlds": [],
    }
    for name, found in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, found)), encoding="utf-8")
    data = kept_notes.read_notes(tmp_path)
    assert [note.shown for note in data.now()] == ["The rent is 950 euros."]
    rent, flat = data.questions
    assert (rent.kind, flat.kind, flat.right) == ("x", "near_misses", ())
    assert rent.is_answered_by("the rent is 950 EUROS")
    assert not rent.is_answered_by("It is 950, it was 900.")
    right = {"MemoTree": {"200": [True, False], "400": [True, True]}}
    levels = {"answered": {"strong": 1, "weak": 1, "none": 0}, "near": {"strong": 0, "weak": 0, "none": 1, "area": 1.0}}
    run = {"kind": "notes", "date": "today", "asked": 2, "budgets": [200, 400], "right": right, "levels": levels}
    answers, sure = recall_pages.sheets(run)
    assert answers.rows == [("MemoTree", "1", "2")]
    assert sure.rows == [("answered", "1", "1", "0", ""), ("near", "0", "0", "1", "1.000")]


# --- The comparison of embedding models ---


def run(name: str, recalls: list[float | None], *, embedding: str = "", documents: int = 2) -> dict[str, Any]:
    rows = [
        {
            "question_id": f"q{number}",
            "doc_id": f"d{number % documents}",
            "category": "unanswerable" if number == 3 else "fact",
            "where": where,
            "budget": budget,
            "recall": recall,
        }
        for where in ("own", "pooled")
        for budget in (250, 500)
        for number, recall in enumerate(recalls)
    ]
    head = {"set": name, "date": "2026-11-22", "embedding": embedding, "documents": documents}
    return {**head, "places": ["own", "pooled"], "per_question": rows}


def test_only_questions_with_evidence_and_common_budgets_count(tmp_path: Path) -> None:
    for path, document in (
        ("recall-a", run("a", [0.5, 0.0, None, 1.0])),
        ("other-a", run("a", [1.0, 0.5, None, 0.0], embedding="other")),
        ("other-b", run("b", [1.0], embedding="other")),
    ):
        (tmp_path / f"{path}.json").write_text(json.dumps(document), encoding="utf-8")
    sheet = recall_embedding.sheet(recall_embedding.pairs(tmp_path, "other"))
    assert sheet.title.endswith("with other (2026-11-22)")
    same = ("2", "25.0", "75.0", "+50.0", "+50.0 to +50.0", "+50.0 to +50.0")
    assert sheet.rows == [("a, own 500", *same), ("a, pooled 500", *same)]
    pair = (run("a", [0.5, 0.0], documents=1), run("a", [0.5, 1.0], embedding="other", documents=1))
    (row,) = recall_embedding.sheet([pair]).rows
    assert (row[0], row[-1]) == ("a, own 500", ""), "one document has no interval by document and is not pooled"
