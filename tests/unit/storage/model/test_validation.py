"""The rules for stored values, and that every violation is named."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Archive, Node, Relation, Source
from memotree_storage.model.validation import (
    DEFAULT_LIMITS,
    InvalidArchiveError,
    InvalidAuthorError,
    InvalidNameError,
    InvalidNodeError,
    InvalidTextError,
    InvalidTimeError,
    Limits,
    canonical_node,
    check_archive,
    check_archive_name,
    check_author,
    check_name,
    check_node,
    check_text,
    check_time,
)
from steps import Steps

ID = "7xk2m9qd4tnvw0ha"
OTHER = "c41hz8rjy6ksm3pe"
NODE = Node(ID, OTHER, None, "a0", title="A title")


def faults(node: Node, limits: Limits = DEFAULT_LIMITS, types: frozenset[str] | None = None) -> dict[str, str]:
    """The violations of a node by field."""
    with pytest.raises(InvalidNodeError) as caught:
        check_node(node, limits) if types is None else check_node(node, limits, types)
    for violation in caught.value.violations:
        assert violation.description in caught.value.message
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.requirement("CANVAS-3")
def test_every_fault_is_listed_at_once() -> None:
    faulty = {"id": "x", "parent_id": "UP", "position": "", "type": "?", "title": " ", "brief": "a\nb"}
    faulty |= {"summary": "\0", "content": "\x1b"}
    assert set(faults(replace(NODE, tags=("",), **faulty))) == {*faulty, "tags[0]"}  # type: ignore[arg-type]


@pytest.mark.requirement("CANVAS-3")
@pytest.mark.parametrize(
    "text", ["\u200b", "\u200b \u2060", "\ufeff", "\u00ad", "\u3164", "\u2800", "\u200d\ufe0f"], ids=ascii
)
def test_a_text_without_visible_characters_is_no_title_and_no_name(text: str) -> None:
    assert "visible" in faults(replace(NODE, title=text))["title"]
    with pytest.raises(InvalidArchiveError, match="visible"):
        check_archive(Archive(ID, text))
    with pytest.raises(InvalidNameError, match="visible"):
        check_archive_name("name", text)
    with pytest.raises(InvalidTextError, match="visible"):
        check_text("view_name", text, required=True)
    with pytest.raises(InvalidAuthorError, match="visible"):
        check_author(text, "")


@pytest.mark.requirement("STORE-8")
def test_a_text_that_is_too_long_is_not_looked_through_for_something_visible() -> None:
    for check in (
        lambda text: check_node(replace(NODE, title=text)),
        lambda text: check_archive(Archive(ID, text)),
        lambda text: check_archive_name("name", text),
        lambda text: check_author(text, ""),
        lambda text: check_text("view_name", text, required=True, max_chars=100),
    ):
        with Steps() as steps, pytest.raises(InvalidInputError, match="over the limit"):
            check("\u200b" * 100_000)
        assert steps.count < 5_000


@pytest.mark.parametrize("text", ["a", "\u200b\u0627", "👩\u200d🚀", "́a", "न\u200d", "記", "-", "\u00a9"], ids=ascii)
def test_one_visible_character_is_a_title_whatever_stands_around_it(text: str) -> None:
    check_node(replace(NODE, title=text))


@pytest.mark.parametrize("field", ["title", "brief", "summary", "content"])
@pytest.mark.parametrize(
    "character", ["\0", "\x01", "\x0b", "\x0c", "\x1b", "\x1c", "\x7f", "\x80", "\x85", "\x9f", "\ud800"]
)
def test_nul_surrogates_and_control_characters_are_refused_everywhere(field: str, character: str) -> None:
    assert field in faults(replace(NODE, **{field: f"a{character}b"}))


@pytest.mark.parametrize("character", ["\t", "\n", "\r", "\u2028", "\u2029"])
def test_tabs_and_line_breaks_are_kept_in_content_and_refused_in_a_title(character: str) -> None:
    text = f"a{character}b"
    check_node(replace(NODE, content=text, summary=text, attributes={"key": text}))
    assert "one line" in faults(replace(NODE, title=text))["title"]
    assert "one line" in faults(replace(NODE, brief=text))["brief"]
    assert "one line" in faults(replace(NODE, tags=(text,)))["tags[0]"]
    assert "relations[0].description" in faults(replace(NODE, relations=(Relation("EXTENDS", OTHER, text),)))


def test_awkward_but_legal_text_is_accepted() -> None:
    marks = ("\U0001f600\ufe0f", "\u202eabc\u202c", "\u200f\u05e9", "\ufeffa", "\ufffe")
    for text in ("---", "a: b", "- [x] #y", "'\"\\", "../..", *marks):
        fields = dict.fromkeys(("title", "brief", "summary", "content"), text)
        check_node(replace(NODE, tags=(text,), attributes={"k": text}, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "text", "limit"),
    [
        ("title", "x" * 501, "500"),
        ("brief", "\u4e2d" * 501, "500"),
        ("summary", "x" * 8193, "8192"),
        ("summary", "\u4e2d" * 2731, "8192"),
        ("content", "x" * (1024 * 1024 + 1), "1048576"),
        ("content", "\U0001f600" * (256 * 1024 + 1), "1048576"),
    ],
)
def test_a_text_over_the_limit_names_limit_and_size(field: str, text: str, limit: str) -> None:
    description = faults(replace(NODE, **{field: text}))[field]
    assert limit in description
    assert str(len(text)) in description or str(len(text.encode())) in description


def test_a_text_at_the_limit_is_accepted() -> None:
    check_node(replace(NODE, title="x" * 500, brief="\u4e2d" * 500, summary="\u4e2d" * 2730, content="x" * (1 << 20)))
    check_node(replace(NODE, content="\U0001f600" * (1 << 18)))


def test_tags_are_words_in_canonical_order() -> None:
    for tag in ("", "  ", " a", "a ", "a,b", "x" * 101):
        assert "tags[0]" in faults(replace(NODE, tags=(tag,))), tag
    for tags in (("b", "a"), ("a", "a")):
        assert "sorted" in faults(replace(NODE, tags=tags))["tags"]
        check_node(canonical_node(replace(NODE, tags=tags)))


def test_too_many_tags_attributes_and_relations_are_refused() -> None:
    assert "64" in faults(replace(NODE, tags=tuple(f"{n:03}" for n in range(65))))["tags"]
    assert "64" in faults(replace(NODE, attributes={str(n): "" for n in range(65)}))["attributes"]
    relations = tuple(Relation("EXTENDS", f"{n:016}") for n in range(1001))
    assert "1000" in faults(replace(NODE, relations=relations))["relations"]


def test_attribute_keys_are_words_of_any_script() -> None:
    for key in ("", "a b", "-a", ".a", "a\n", "a=b", "a\0", "'", "x" * 65, "\U0001f600"):
        assert f"attributes[{key!r}]" in faults(replace(NODE, attributes={key: "v"}))
    for key in ("a", "a.b-c:d/e_f", "_x", "9", "\u4e2d\u6587", "\u0939\u093f\u0928\u094d\u0926\u0940", "x" * 64):
        check_node(replace(NODE, attributes={key: ""}))


@pytest.mark.requirement("CANVAS-10")
def test_relations_have_a_known_type_and_another_node_as_target() -> None:
    assert "relations[0].type" in faults(replace(NODE, relations=(Relation("LIKES", OTHER),)))
    assert "relations[0].target_id" in faults(replace(NODE, relations=(Relation("EXTENDS", "abcd"),)))
    assert "itself" in faults(replace(NODE, relations=(Relation("EXTENDS", ID),)))["relations[0].target_id"]
    twice = (Relation("EXTENDS", OTHER, "a"), Relation("EXTENDS", OTHER, "b"))
    assert "one per type and target" in faults(replace(NODE, relations=twice))["relations"]
    assert canonical_node(replace(NODE, relations=twice)).relations == twice[1:]
    assert "itself" in faults(replace(NODE, parent_id=ID))["parent_id"]


def test_types_come_from_the_registry_or_follow_the_form() -> None:
    assert "choose one of" in faults(replace(NODE, type="novel"))["type"]
    check_node(replace(NODE, type="novel"), types=frozenset({"novel"}))
    check_node(replace(NODE, type="any_name2"), types=frozenset())
    assert "type" in faults(replace(NODE, type="Any"), types=frozenset())


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (Source(""), "source.document_id"),
        (Source("d", start=-1), "source.start"),
        (Source("d", start=5, end=4), "source.end"),
        (Source("d", page=1 << 60), "source.page"),
        (Source("d", heading="a\nb"), "source.heading"),
        (Source("d", sha256="ABC"), "source.sha256"),
    ],
)
def test_a_source_is_checked(source: Source, field: str) -> None:
    assert field in faults(replace(NODE, source=source))


def test_an_archive_is_checked() -> None:
    check_archive(Archive(ID, "Any name: with / signs", "model", "two\nlines"))
    with pytest.raises(InvalidArchiveError) as caught:
        check_archive(Archive("", " ", "a\nb", "\0"))
    assert [violation.field for violation in caught.value.violations] == ["id", "name", "model_id", "description"]


GOOD_NAMES = ("a", "team-1", "v1.2_x", "\u4e2d\u6587", "\u05e9\u05dc", "9lives", "x" * 64, "console", "caf\u00e9")
BAD_NAMES = (
    *("", " ", "..", ".", "a..b", ".hidden", "-a", "_a", "a.", "/etc", "a/b", "a\\b", "C:", "c:\\x", "\\\\host", "a b"),
    *("~", "$HOME", "con", "NUL", "com1.txt", "lpt\u00b9", "x" * 65, "a\n", "a\0", "a\ud800", "\u4e2d" * 64 + "x"),
    *("cafe\u0301", "\U00020000" * 64, "a*b", "a\u202eb", "\U0001f600", "%2e%2e", "a:b"),
)


@pytest.mark.requirement("CANVAS-15")
def test_workspace_names_that_could_leave_their_folder_are_refused() -> None:
    for name in GOOD_NAMES:
        check_name("workspace", name)
    for name in BAD_NAMES:
        with pytest.raises(InvalidNameError) as caught:
            check_name("workspace", name)
        assert {violation.field for violation in caught.value.violations} == {"workspace"}, ascii(name)


def test_archive_names_are_free_lines() -> None:
    check_archive_name("name", "../ anything: \U0001f600")
    for name in ("", "\t", "a\nb", "x" * 201):
        with pytest.raises(InvalidNameError):
            check_archive_name("name", name)


@pytest.mark.requirement("CANVAS-6")
def test_authors_that_would_break_a_commit_are_refused() -> None:
    names = [(name, "a@b", "author.name") for name in ("", " ", "A <x>", "A\nB", "A\0", " A", "A\u2028B", "A" * 201)]
    emails = [("A", email, "author.email") for email in ("a@b>", "<a@b", "a@b\r", "a@b ")]
    for name, email, field in names + emails:
        with pytest.raises(InvalidAuthorError) as caught:
            check_author(name, email)
        assert field in {violation.field for violation in caught.value.violations}, (name, email)
    check_author("\u5f20\u4f1f", "")
    check_author("Zo\u00eb O'Neil, Jr.", "zoe@example.org")


@pytest.mark.requirement("CANVAS-6")
def test_times_are_from_1970_to_9999_with_a_zone() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    check_time("when", datetime(1970, 1, 1, tzinfo=UTC))
    check_time("when", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    check_time("when", datetime(9999, 12, 31, 23, tzinfo=east))
    refused = [
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=east),
        datetime(9999, 12, 31, 23, tzinfo=west),
        datetime.min.replace(tzinfo=east),
        datetime(2024, 1, 1),  # noqa: DTZ001 - the missing zone is the point
    ]
    for when in refused:
        with pytest.raises(InvalidTimeError) as caught:
            check_time("when", when)
        assert caught.value.violations[0].field == "when"


def test_a_text_is_checked_by_its_own_rules() -> None:
    check_text("message", "two\nlines", multiline=True, required=True, max_chars=9, max_bytes=9)
    for text in ("", "\n", "a\0", "x" * 10):
        with pytest.raises(InvalidTextError) as caught:
            check_text("message", text, multiline=True, required=True, max_chars=9)
        assert caught.value.violations[0].field == "message"
        assert "message" in caught.value.message


def test_every_reason_is_unique_and_of_the_family() -> None:
    kinds = [
        InvalidTextError, InvalidNodeError, InvalidArchiveError, InvalidNameError, InvalidAuthorError, InvalidTimeError
    ]  # fmt: skip
    assert len({kind.reason for kind in kinds}) == len(kinds)
    assert all(issubclass(kind, InvalidInputError) for kind in kinds)
