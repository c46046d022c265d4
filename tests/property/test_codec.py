"""The codec is compared with itself and with PyYAML's own resolver, and fed arbitrary bytes."""

from dataclasses import replace

import pytest
import yaml
from entry_strategies import AWKWARD, entries, lines, nodes, texts, titles
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.front_matter_parsing import (
    FrontMatterError,
    _parse_canonical,
    _parse_yaml,
    parse_front_matter,
)
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.paths import entry_path
from memotree_storage.model.scalars import is_plain, quote, read_scalar, write_scalar
from memotree_storage.model.validation import check_archive, check_node

NODE_ID = "7xk2m9qd4tnvw0ha"
ARCHIVE_ID = "c41hz8rjy6ksm3pe"


@pytest.mark.requirement("GIT-1")
@given(entries)
def test_every_valid_entry_comes_back_as_it_was(entry: Entry) -> None:
    if isinstance(entry, Node):
        check_node(entry)
    else:
        check_archive(entry)
    data = encode_entry(entry)
    decoded = decode_entry(entry_path(entry), data)
    assert decoded == entry
    assert encode_entry(decoded) == data


@pytest.mark.requirement("GIT-2")
@given(nodes())
def test_what_we_write_reads_the_same_line_by_line_and_as_yaml(node: Node) -> None:
    head = encode_entry(node).decode().split("\n---\n", 1)[0].removeprefix("---\n") + "\n"
    fast = _parse_canonical(head)
    assert fast is not None, "our own form must take the fast way"
    assert fast == _parse_yaml(head)
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        tree = yaml.load(head, Loader=loader)  # noqa: S506 - both are safe loaders
        if "source" in tree:  # numbers are written as numbers
            tree["source"] = {key: str(value) for key, value in tree["source"].items()}
        assert tree == fast


@pytest.mark.requirement("GIT-2")
@given(nodes(), titles)
def test_a_new_title_changes_one_line(node: Node, title: str) -> None:
    before = encode_entry(node).split(b"\n")
    after = encode_entry(replace(node, title=title)).split(b"\n")
    assert len(before) == len(after)
    assert sum(old != new for old, new in zip(before, after, strict=True)) <= 1


@given(st.one_of(texts, lines, st.sampled_from(AWKWARD)))
def test_a_scalar_is_one_line_that_every_yaml_reader_reads_as_the_same_string(text: str) -> None:
    token = write_scalar(text)
    assert "\n" not in token
    assert read_scalar(token) == text
    assert is_plain(text) == (token == text)
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        assert yaml.load(f"key: {token}\nlist:\n  - {token}\n", Loader=loader) == {"key": text, "list": [text]}  # noqa: S506
    assert yaml.safe_load(quote(text)) == text


@given(st.text(st.sampled_from("ab12:-#\"'\\ \n\t&*!|>[]{}%@,?é中\u2028"), max_size=60))
def test_the_fast_parser_always_agrees_with_yaml(text: str) -> None:
    fast = _parse_canonical(text)
    if fast is not None:
        assert fast == _parse_yaml(text)
    try:
        parse_front_matter(text)
    except FrontMatterError as error:
        assert str(error)  # noqa: PT017 - any other exception fails the test
