"""An erased text goes from log files, however a log writes it."""

import json
from pathlib import Path

import pytest
from memotree_storage.erasure.remains import redact_logs

SECRET = 'the "Schlüssel"\n\N{KEY}'  # noqa: S105

pytestmark = pytest.mark.requirement("GIT-10")


@pytest.mark.parametrize(
    "written",
    [SECRET, json.dumps(SECRET, ensure_ascii=False)[1:-1], json.dumps(SECRET)[1:-1]],
    ids=["plain", "JSON", "ASCII"],
)
def test_a_text_is_overwritten_in_each_form_and_the_rest_stays(tmp_path: Path, written: str) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"before {written} and {written} after", encoding="utf-8")
    size = log.stat().st_size
    redact_logs(tmp_path, SECRET)
    stars = "*" * len(written.encode())
    assert log.read_text(encoding="utf-8") == f"before {stars} and {stars} after"
    assert log.stat().st_size == size, "a program that goes on writing finds its end"


def test_an_empty_log_and_other_files_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "notes.txt").write_text(SECRET, encoding="utf-8")
    redact_logs(tmp_path, SECRET)
    assert (tmp_path / "empty.log").read_bytes() == b""
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == SECRET
