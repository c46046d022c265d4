"""The best part of a text that is too long."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from memotree_storage.model.tokens import count_tokens

from memotree.forest.recall.excerpts import best_stretch

pytestmark = pytest.mark.requirement("FOREST-8")

lines = st.lists(st.sampled_from(["a zeppelin lands", "water", "water for a zeppelin", "Sun", ""]), max_size=20)
texts = (
    st.text(alphabet="ab .\n!\u4e2d\u3002\u0301", max_size=300)
    | st.lists(
        st.sampled_from(["rose", "water", "x" * 900, "Sun. ", "\n", "\u6c34\u3002", "zeppelin"]), max_size=40
    ).map(" ".join)
    | lines.map("\n".join)
)


@example("a zeppelin lands\nwater", 5)
@given(texts, st.integers(1, 60))
def test_an_excerpt_is_a_part_of_the_text_within_the_budget(text: str, budget: int) -> None:
    found = best_stretch(text, "zeppelin water", budget)
    assert text[found.start : found.end] == found.text
    assert count_tokens(found.text) <= budget
    if count_tokens(text) <= budget // 2:
        assert found.text == text


def test_an_excerpt_contains_the_words_of_the_question() -> None:
    lines = [f"Line {number} has water." for number in range(300)]
    lines[222] = "The zeppelin needs water."
    found = best_stretch("\n".join(lines), "Does a zeppelin need water?", 40)
    assert "zeppelin" in found.text
    assert count_tokens(found.text) > 30


def test_one_long_line_is_cut_at_sentences_and_one_long_sentence_anywhere() -> None:
    sentence = "The zeppelin lands here. "
    line = "Nothing happens at all today. " * 100 + sentence + "Nothing happens at all today. " * 100
    assert best_stretch(line, "zeppelin", 8).text == sentence
    assert "zeppelin" in best_stretch("x" * 5000 + " zeppelin " + "y" * 5000, "zeppelin", 150).text
    assert best_stretch("\u6c34" * 5000, "zeppelin", 7).text == "\u6c34" * 7
    assert best_stretch("First.\nSecond.\nThird.", "zeppelin", 3).start == 0, "without a match, the beginning"
    assert best_stretch("", "zeppelin", 3).text == ""
    assert best_stretch("zeppelin", "zeppelin", 0).text == ""
    assert best_stretch("\n" * 60 + "It lands at six. " * 40, "zeppelin", 24).text.strip()
    assert "\u9f50\u67cf" in best_stretch("\u5929" * 87 + "\u9f50\u67cf" + "\u5730" * 200, "\u9f50\u67cf", 24).text


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (
            "# Report\n\n"
            + "The weather was fine all week. " * 40
            + "\n"
            + "The harbour fee is 12 euro per night. " * 40,
            30,
        ),
        ("\n\n\n" + "word " * 390 + "\nThe harbour fee is 12 euro per night, " + "and so on " * 60, 24),
        ("Fee fee fee. " * 50 + "\n" + "In the harbour a fee of 12 euro is due. " + "Fee fee fee. " * 50, 20),
    ],
    ids=["heading", "blank lines", "a word that is everywhere"],
)
def test_an_excerpt_has_the_place_with_most_of_the_questions_words(text: str, budget: int) -> None:
    found = best_stretch(text, "What does the report say about harbour fees?", budget)
    assert {"harbour", "12 euro"} <= {each for each in ("harbour", "12 euro") if each in found.text}, found.text


def test_a_sentence_that_does_not_fit_is_cut_around_the_words_and_at_the_ends_of_words() -> None:
    text = (
        "and ".join(f"gate {number} opens at noon " for number in range(200))
        + "while the zeppelin lands at six "
        + ("because nobody told anybody about it " * 50)
    )
    found = best_stretch(text, "When do zeppelins land?", 40).text
    assert "the zeppelin lands at six" in found
    assert not set(found.split()) - set(text.split())


def test_an_excerpt_with_room_left_goes_on_into_the_text_that_does_not_fit() -> None:
    text = "# Zeppelin\n" + "It lands at six in the evening on the field behind the town. " * 20
    found = best_stretch(text, "zeppelin", 20).text
    assert found.startswith("# Zeppelin\nIt lands at six in the evening on the field behind")


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    "text",
    ["." * 400_000 + "a", "?!" * 200_000 + '"a', "a." * 200_000, "\u061f" * 400_000 + "a", "\u0964" * 400_000 + "a"],
    ids=["dots", "marks", "abc", "Arabic", "Hindi"],
)
def test_a_run_of_full_stops_that_ends_no_sentence_takes_linear_steps(text: str) -> None:
    """The steps are inside a regular expression; with the square of the run, this would not end."""
    assert best_stretch(text, "zeppelin", 50).text
