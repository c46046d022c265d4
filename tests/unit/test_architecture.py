"""What holds of all sources: the page about the architecture, the contract, SQL and regular expressions."""

import pkgutil
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]  # the parser of the standard library, without types
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import memotree_storage
import pytest

import memotree

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def place_of(name: str) -> Path:
    return ROOT / ("storage" if name.startswith("memotree_storage") else ".") / name


@pytest.mark.parametrize(
    ("call", "most"), [("CommitChanges", 20), ("GetNode", 10), ("Recall", 20), ("IngestDocument", 25)]
)
def test_the_path_of_a_call_on_the_page_has_few_files_which_exist(call: str, most: int) -> None:
    line = re.search(rf"^\| {call} \| (.*) \|$", PAGE, re.MULTILINE)
    assert line is not None
    files = re.findall(r"`([^`]+)`", line[1])
    assert files
    assert len(files) == len(set(files)) <= most
    assert [name for name in files if not place_of(name).is_file()] == []


@pytest.mark.parametrize("package", ["memotree", "memotree_storage"])
def test_every_room_is_on_the_page(package: str) -> None:
    rooms = [path.parent.name for path in place_of(package).glob("*/__init__.py")]
    named = PAGE.replace("memotree/", "")
    assert [room for room in rooms if room != "v1" and f"`{room}`" not in named] == []


def test_the_service_has_no_sql() -> None:
    modules = place_of("memotree").rglob("*.py")
    assert [path.name for path in modules if ".execute(" in path.read_text(encoding="utf-8")] == []


@pytest.mark.requirement("SERVE-1")
def test_each_file_of_the_contract_names_a_package_for_go_java_and_csharp() -> None:
    proto = ROOT / "proto"
    for path in proto.rglob("*.proto"):
        name = ".".join(path.relative_to(proto).with_suffix("").parts)
        options = import_module(f"{name}_pb2").DESCRIPTOR.GetOptions()
        assert options.go_package == "memotree/v1;memotreev1", name
        assert (options.java_package, options.java_multiple_files) == ("dev.memotree.v1", True), name
        assert options.csharp_namespace == "MemoTree.V1", name


# --- Regular expressions that mean the same to every version of Python that is supported ------------------------------

_ONE_CHARACTER = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)


def modules() -> Iterator[ModuleType]:
    for package in (memotree, memotree_storage):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__") and ".v1." not in found.name:
                yield import_module(found.name)


def expressions(value: object) -> Iterator[str]:
    """The texts of the compiled expressions in a value of a module."""
    if isinstance(value, re.Pattern):
        yield value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from expressions(each)
    elif isinstance(value, dict):
        yield from expressions([*value.keys(), *value.values()])


def possessive_groups(parsed: Iterable[Any]) -> Iterator[Any]:
    """What is repeated possessively and is more than one character."""
    for code, value in parsed:
        if code is codes.POSSESSIVE_REPEAT:
            repeated = value[2]
            if len(repeated) != 1 or repeated[0][0] not in _ONE_CHARACTER:
                yield repeated
        for part in value if isinstance(value, list | tuple) else [value]:
            for one in part if isinstance(part, list | tuple) else [part]:
                if isinstance(one, parser.SubPattern):
                    yield from possessive_groups(one)


def test_no_group_is_repeated_possessively() -> None:
    """Python before 3.11.5 finds wrong matches for it (python/cpython#106052); an atomic group means the same."""
    assert len(list(possessive_groups(parser.parse("(?:a(?:bc?)++|d)")))) == 1
    found = {
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        for text in expressions(value)
        if list(possessive_groups(parser.parse(text)))
    }
    assert found == set()
