"""What is indexed of a node: all of an ordinary one, the beginning of one that is too long for any index."""

import pytest
from memotree_storage.index.node_text import INDEXED_CHARS, embedded_leaf, text_of
from memotree_storage.model.node import Node, new_id
from memotree_storage.model.validation import Limits

pytestmark = pytest.mark.requirement("STORE-8", "CANVAS-14")


def node(content: str) -> Node:
    return Node(new_id(), new_id(), None, "a0", title="A title", content=content)


def test_only_the_beginning_of_a_content_that_is_too_long_is_indexed() -> None:
    long = node("first " + "x" * INDEXED_CHARS + " last")
    for indexed in (text_of(long).content, embedded_leaf(long)):
        assert "first" in indexed
        assert "last" not in indexed
        assert len(indexed) <= INDEXED_CHARS + 100


def test_a_content_of_the_default_size_is_indexed_to_its_last_word() -> None:
    most = Limits().content_bytes
    assert most <= INDEXED_CHARS
    assert text_of(node("x" * (most - 5) + " last")).content.endswith(" last")
