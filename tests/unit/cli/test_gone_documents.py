"""Documents whose files are gone are told when their folder is ingested again, and nothing is removed."""

from pathlib import Path

import pytest
from unit.cli.conftest import CommandLine

pytestmark = pytest.mark.requirement("USE-10")


@pytest.fixture
def docs(ready: CommandLine, home: Path) -> Path:
    """A folder of five documents that was ingested."""
    (home / "docs" / "sub").mkdir(parents=True)
    for name in ("a.md", "b.md", "c.md", "d.md", "sub/e.md"):
        (home / "docs" / name).write_text(f"# Title\n\n{name}", encoding="utf-8")
    assert ready.json("ingest", "docs")["gone"] == []
    return home / "docs"


def test_documents_without_a_file_are_told_and_stay(ready: CommandLine, docs: Path) -> None:
    (docs / "b.md").unlink()
    ran = ready("ingest", "docs")
    assert ran.code == 0
    assert "1 document is no longer in this folder: docs/b.md. In a session, `memotree archive delete" in ran.err
    for name in ("c.md", "d.md", "sub/e.md"):
        (docs / name).unlink()
    assert "4 documents are no longer in this folder: docs/b.md, docs/c.md, docs/d.md and 1 more." in (
        ready("ingest", str(docs)).err
    )
    assert ready.json("ingest", "docs")["gone"] == ["docs/b.md", "docs/c.md", "docs/d.md", "docs/sub/e.md"]
    ready.json("session", "use", "--none")
    assert "docs/b.md" in [each["name"] for each in ready.json("archive", "list")["archives"]]


def test_a_file_that_is_left_out_or_not_in_the_given_part_is_not_gone(ready: CommandLine, docs: Path) -> None:
    (docs / "a.md").write_text("", encoding="utf-8")
    assert ready.json("ingest", "docs")["gone"] == []
    (docs / "b.md").unlink()
    assert ready.json("ingest", "docs/sub")["gone"] == []
    assert ready.json("ingest", "docs/c.md")["gone"] == []


def test_a_folder_that_was_not_ingested_before_misses_nothing(ready: CommandLine, docs: Path) -> None:
    (docs / "b.md").unlink()
    other = docs.parent / "other"
    other.mkdir()
    (other / "z.md").write_text("# Z\n\nOther.", encoding="utf-8")
    assert ready.json("ingest", "other")["gone"] == []
    assert ready.json("ingest", "docs", "--prefix", "new/")["gone"] == []
