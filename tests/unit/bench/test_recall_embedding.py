"""The comparison of embedding models pairs the answers to the same questions."""

import json
from pathlib import Path
from typing import Any

from bench import recall_embedding


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
    return {
        "set": name,
        "date": "2026-11-22",
        "embedding": embedding,
        "documents": documents,
        "places": ["own", "pooled"],
        "per_question": rows,
    }


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


def test_one_document_has_no_interval_by_document_and_is_not_pooled() -> None:
    pair = (run("a", [0.5, 0.0], documents=1), run("a", [0.5, 1.0], embedding="other", documents=1))
    (row,) = recall_embedding.sheet([pair]).rows
    assert (row[0], row[-1]) == ("a, own 500", "")
