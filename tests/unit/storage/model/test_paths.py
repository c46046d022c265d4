"""The names of files: an id that means something, and a slug of the title for people."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.git.trees import split_path
from memotree_storage.model.codec import InvalidFileError, decode_entry, encode_entry
from memotree_storage.model.node import Archive, Node
from memotree_storage.model.paths import (
    MAX_SLUG_BYTES,
    archive_path,
    entry_path,
    node_path,
    node_stem,
    parse_path,
    shown_path,
    slug,
)
from memotree_storage.model.readme import README_PATH

ID, ARCHIVE = "7xk2m9qd4tnvw0ha", "c41hz8rjy6ksm3pe"
STEM = f"nodes/7x/k2/{ID}"

titles = st.text() | st.text(st.sampled_from("aZ9 -_.'/\\:İΣß½ﬁ한記憶\u0301\u200d\u0345\U0001f600"))


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Why we chose Git", "why-we-chose-git"),
        ("  Retries: at most 5!  ", "retries-at-most-5"),
        ("Don't call it MemoTree's", "dont-call-it-memotrees"),
        ('The "with" statement', "the-with-statement"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "con"),
        ("name. . .", "name"),
        ("上下文管理器", "上下文管理器"),
        ("Über die Größe", "über-die-größe"),
        ("U\u0308ber", "über"),
        ("\uff21\uff22\uff23\uff11", "abc1"),
        ("नमस्ते दुनिया", "नमस्ते-दुनिया"),
        ("mem\u00adory", "memory"),
        ("🎉", ""),
        ("---", ""),
        ("", ""),
    ],
)
def test_a_slug_has_the_words_of_the_title(title: str, expected: str) -> None:
    assert slug(title) == expected


def test_a_long_title_is_cut_between_words_where_there_is_a_boundary() -> None:
    assert slug("The budget of the second quarter after the review of the board") == (
        "the-budget-of-the-second-quarter-after-the"
    )
    assert slug("a" * 100) == "a" * 48
    assert slug("a " + "b" * 100) == "a-" + "b" * 46
    assert slug("a" * 48 + " b") == "a" * 48
    assert slug("记" * 100) == "记" * 16


@pytest.mark.requirement("GIT-2")
@given(title=titles)
def test_every_title_gives_a_short_name_that_every_file_system_keeps(title: str) -> None:
    words = slug(title)
    assert slug(words) == words, "the slug of a slug is itself"
    assert len(words.encode()) <= MAX_SLUG_BYTES
    assert unicodedata.is_normalized("NFC", words)
    assert words == words.strip("-")
    assert all(letter == "-" or unicodedata.category(letter)[0] in "LMN" for letter in words)
    if title.isascii():
        assert words == words.lower()


@given(title=titles)
def test_the_file_of_a_node_with_any_title_can_be_written_and_read(title: str) -> None:
    path = node_path(ID, title)
    assert parse_path(path) == ("node", ID)
    assert path.startswith(node_stem(ID))
    assert split_path(path)[-1].decode() == path.rsplit("/", 1)[1]


def test_a_name_follows_the_title_of_a_node_and_the_name_of_an_archive() -> None:
    node, archive = Node(ID, ARCHIVE, None, "a0", title="Why Git?"), Archive(ARCHIVE, "Old decisions")
    assert entry_path(node) == f"{STEM}-why-git.md"
    assert entry_path(archive) == f"archives/{ARCHIVE}-old-decisions.md"
    assert (node_path(ID), archive_path(ARCHIVE)) == (f"{STEM}.md", f"archives/{ARCHIVE}.md")
    assert decode_entry(f"{STEM}-any-other name.md", encode_entry(node)) == node


@pytest.mark.parametrize(
    "rest", ["", "-", "-why-git", "-Why Git (copy)", "-a.b.md", "-\udcff", "-a\nb", "-" + "x" * 300]
)
def test_what_follows_the_id_in_a_name_means_nothing(rest: str) -> None:
    assert parse_path(f"{STEM}{rest}.md") == ("node", ID)
    assert parse_path(f"archives/{ID}{rest}.md") == ("archive", ID)


OTHER_PATHS = (
    *(f"{STEM}{rest}" for rest in ("x.md", "~HEAD.md", "-a/b.md", "-a.md~", " copy.md", "_a.md", ".txt", ".md\n")),
    *(f"{STEM}.md/x", f"x/{STEM}.md", f"nodes/{ID}.md", f"nodes/7x/k3/{ID}.md", f"nodes/../k2/{ID}.md"),
    *("", README_PATH, "nodes", "nodes/7x/k2", f"nodes/7X/k2/{ID.upper()}.md", "nodes/\n\n/\n\n/x.md"),
    *("archives/x.md", "archives/7xk2m9qd4tnvw0hi.md", f"Archives/{ARCHIVE}.md"),
)


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_any_other_path_is_no_entry(path: str) -> None:
    assert parse_path(path) is None
    with pytest.raises(InvalidFileError):
        decode_entry(path, f"---\nid: {ID}\narchive: {ARCHIVE}\ntitle: T\n---\n".encode())


@given(rest=st.text(st.characters()) | st.just("\udcff" * 400))
def test_any_path_can_be_shown(rest: str) -> None:
    shown = shown_path(f"{STEM}-{rest}.md")
    assert len(shown) <= 300
    shown.encode()
    assert shown.startswith(STEM)
