"""Any JSON object becomes a note and comes back; what a person wrote into the note comes back as well as it can."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.index.node_text import text_of
from memotree_storage.model.node import Node as StoredNode
from memotree_storage.model.node import derived_id as id_of_the_store
from memotree_storage.model.validation import text_faults

from memotree.client import Node
from memotree.integrations.named_nodes import derived_id
from memotree.integrations.note_values import TEXT_AT, from_note, from_word, one_line, one_word, to_note

pytestmark = pytest.mark.requirement("USE-6")

TEXTS = st.text(st.characters()) | st.sampled_from(
    ["two words", "```", "a\n\n```json\n{}\n```", "\n\n```json\n", "\r\n x"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.just("text"), inner, max_size=4),
    max_leaves=8,
)


def note(value: dict[str, Any]) -> Node:
    made = to_note(value)
    return Node("0" * 16, content=made.content, attributes=made.attributes)


@given(st.dictionaries(TEXTS | st.sampled_from(["text", "content", "a/b", "~"]), VALUES, max_size=5))
def test_any_value_comes_back_and_its_note_can_be_stored(value: dict[str, Any]) -> None:
    made = note(value)
    assert from_note(made) == json.loads(json.dumps(value))
    for text in (made.content, *made.attributes.values()):
        assert list(text_faults("text", text, multiline=True)) == []


@given(TEXTS)
def test_any_text_as_one_word_comes_back(text: str) -> None:
    assert from_word(one_word(text)) == text
    assert list(text_faults("word", one_word(text))) == []


@given(TEXTS)
def test_any_text_has_a_title_or_none(text: str) -> None:
    title = one_line(text)
    assert len(title) <= 80
    assert list(text_faults("title", title)) == []


def test_the_text_of_a_note_is_prose_and_no_id() -> None:
    assert to_note({"id": "msg_0123456789abcdef", "content": "Hi"}).text == "Hi"
    assert to_note({"theme": "dark", "id": "x" * 40}).text == ""


def test_a_text_that_a_person_changed_is_the_new_text_of_the_value() -> None:
    made = to_note({"text": "One thing.", "n": 1})
    changed = Node("0" * 16, content=made.content.replace("One", "Another"), attributes=made.attributes)
    assert from_note(changed) == {"text": "Another thing.", "n": 1}


@pytest.mark.parametrize(
    ("content", "pointer"), [("Only prose.", ""), ("Only prose.", "/text"), ("[1]", ""), ("{", "")]
)
def test_a_note_beyond_recognition_is_a_text(content: str, pointer: str) -> None:
    assert from_note(Node("0" * 16, content=content, attributes={TEXT_AT: pointer})) == {"text": content}


def test_names_have_ids_of_the_form_that_the_store_uses_and_no_two_the_same() -> None:
    names = [("a", "b"), ("ab",), ("a", "b", ""), ("", "a", "b"), ("a\0b",), ("a", "b", 0)]
    ids = {derived_id(*each) for each in names}
    assert len(ids) == len(names)
    assert all(len(each) == 16 and set(each) <= set("0123456789abcdefghjkmnpqrstvwxyz") for each in ids)
    assert len(id_of_the_store("a")) == 16


def test_records_are_no_words_of_a_node() -> None:
    node = StoredNode("0" * 16, "1" * 16, None, "a0", title="T", attributes={"_key": "walrus", "owner": "ada"})
    assert text_of(node).facts == "owner ada"
