"""The promises of tests/requirements.toml and the tests that prove them, checked both ways.

Marks are read from the source (``ast``), so files need not be importable and a skipped test still counts.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parent
SUITES = TESTS.parent / "storage" / "memotree_storage" / "conformance"
COUNTS = {"CANVAS": 15, "GIT": 12, "STORE": 9, "FOREST": 15, "TOOL": 12, "SERVE": 6, "USE": 16}
SOURCES = {"S1", "S2", "S3", "S4", "S5", "card", "+"}


class Mark(NamedTuple):
    """One ``requirement(...)`` in a test file; ``ids`` is ``None`` when they can't be read from the source."""

    place: str
    ids: tuple[str, ...] | None
    on_test: bool


def requirements() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))[
        "requirement"
    ]
    return entries


def is_requirement(node: ast.AST) -> bool:
    """Whether a call is ``pytest.mark.requirement(...)`` or ``mark.requirement(...)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement"):
        return False
    owner = node.func.value
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) == "mark"


def is_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        inherits = any(isinstance(base, ast.Name) and base.id.endswith("Suite") for base in node.bases)
        return inherits or any(is_test(child) for child in node.body)
    if isinstance(node, ast.Assign):  # a test of another class
        return any(isinstance(target, ast.Name) and target.id.startswith("test") for target in node.targets)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call) and is_requirement(child))


def marking(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What marks a test: its decorators (also marks of a parameter), or the marks of a whole class or module."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and is_test(node):
            yield from node.decorator_list
        if isinstance(node, (ast.Module, ast.ClassDef)) and any(is_test(child) for child in node.body):
            for child in node.body:
                targets = child.targets if isinstance(child, ast.Assign) else []
                if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets):
                    yield child
        # Parameters that are listed outside of the decorator are marked where they are built.
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "param":
            yield from (keyword for keyword in node.keywords if keyword.arg == "marks")


def marks_in(source: str, place: str) -> list[Mark]:
    if "requirement" not in source:
        return []
    nodes = list(ast.walk(ast.parse(source)))
    on_tests = {call for node in marking(nodes) for call in calls(node)}
    found = [node for node in nodes if isinstance(node, ast.Call) and is_requirement(node)]
    return [Mark(f"{place}:{call.lineno}", literal_ids(call), call in on_tests) for call in found]


def literal_ids(call: ast.Call) -> tuple[str, ...] | None:
    values = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return tuple(values) if values and len(values) == len(call.args) and not call.keywords else None


@pytest.fixture(scope="module")
def marks() -> list[Mark]:
    files = [path for folder in (TESTS, SUITES) for path in sorted(folder.rglob("*.py")) if path != Path(__file__)]
    return [
        mark
        for path in files
        for mark in marks_in(path.read_text(encoding="utf-8"), str(path.relative_to(TESTS.parent)))
    ]


def test_every_id_of_the_specification_is_listed() -> None:
    ids = [entry["id"] for entry in requirements()]
    assert Counter(id_.rpartition("-")[0] for id_ in ids) == COUNTS
    assert ids == [f"{group}-{number}" for group, count in COUNTS.items() for number in range(1, count + 1)]


def test_every_entry_has_all_fields() -> None:
    for entry in requirements():
        partly = {"missing"} if entry["status"] == "partly" else set[str]()
        assert entry.keys() == {"id", "text", "from", "status"} | partly, entry["id"]
        assert entry["status"] in {"planned", "partly", "done"}, entry["id"]
        assert set(entry["from"].split()) <= SOURCES, entry["id"]
        assert len(entry["text"]) > 20, entry["id"]
        assert entry["text"].isprintable(), f"{entry['id']} must be one line"


def test_every_requirement_that_is_done_or_partly_done_has_a_test(marks: list[Mark]) -> None:
    proven = {id_ for mark in marks if mark.on_test for id_ in mark.ids or ()}
    unproven = [entry["id"] for entry in requirements() if entry["status"] != "planned" and entry["id"] not in proven]
    assert not unproven, f"no test is marked with {unproven}; mark one or set the status back to planned"


def test_every_marked_id_exists(marks: list[Mark]) -> None:
    known = {entry["id"] for entry in requirements()}
    unknown = [(mark.place, id_) for mark in marks for id_ in mark.ids or () if id_ not in known]
    assert not unknown, f"these marks name no requirement: {unknown}"


def test_every_mark_can_be_read_and_is_on_a_test(marks: list[Mark]) -> None:
    unreadable = [mark.place for mark in marks if mark.ids is None]
    assert not unreadable, f"write the ids as plain strings at {unreadable}"
    idle = [mark.place for mark in marks if not mark.on_test]
    assert not idle, f"these marks stand on nothing that pytest collects: {idle}"


@pytest.mark.parametrize(
    ("source", "ids", "on_test"),
    [
        ('@pytest.mark.requirement("A-1", "A-2")\ndef test_it(): ...', ("A-1", "A-2"), True),
        ('@mark.requirement("A-1")\nasync def test_it(): ...', ("A-1",), True),
        ('@pytest.mark.requirement("A-1")\nclass TestIt:\n  def test_it(self): ...', ("A-1",), True),
        ('class Suite:\n  @pytest.mark.requirement("A-1")\n  def test_it(self): ...', ("A-1",), True),
        ('@pytest.mark.requirement("A-1")\nclass TestIt:\n  test_it = Suite.test_it', ("A-1",), True),
        ('pytestmark = [pytest.mark.requirement("A-1")]\ndef test_it(): ...', ("A-1",), True),
        ('CASES = [pytest.param(1, marks=pytest.mark.requirement("A-1"))]', ("A-1",), True),
        ('@pytest.mark.requirement("A-1")\ndef helper(): ...', ("A-1",), False),
        ('pytestmark = pytest.mark.requirement("A-1")', ("A-1",), False),
        ("@pytest.mark.requirement(NAME)\ndef test_it(): ...", None, True),
        ("@pytest.mark.requirement()\ndef test_it(): ...", None, True),
    ],
)
def test_marks_are_found_in_every_place_that_pytest_accepts(
    source: str, ids: tuple[str, ...] | None, *, on_test: bool
) -> None:
    (mark,) = marks_in(source, "file")
    assert (mark.ids, mark.on_test) == (ids, on_test)


def test_a_call_that_is_no_mark_is_ignored() -> None:
    assert marks_in('def test_it():\n  session.requirement("A-1")\n  # mark.requirement("A-2")', "file") == []
