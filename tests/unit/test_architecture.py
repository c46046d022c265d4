"""The page about the architecture lists all packages and the actual path of a call through them."""

import re
from pathlib import Path

import pytest

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
