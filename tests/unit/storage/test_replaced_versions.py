"""Which version of an entry is the last one at a place of the history."""

from datetime import UTC, datetime

import pytest
from memotree_storage.postgres.history import CommitRow, Revision
from memotree_storage.postgres.replaced_versions import _Nearest
from memotree_storage.postgres.rows import Version
from steps import LINEAR, growth

pytestmark = pytest.mark.requirement("GIT-5", "STORE-9")

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def _revision(line: int, seq: int) -> Revision:
    version = Version(
        "n", is_archive=False, dead=False, blob="", archive_id="a", parent_id="", position="m", type="note", title="",
        brief="", summary="", tags=[], attributes={}, relations=[], source=None, tokens=0, line_id=line, from_seq=seq,
    )  # fmt: skip
    return Revision(version, CommitRow(f"{line}.{seq}", [], "ada", "", _WHEN, _WHEN, "", None, []))


def test_the_last_version_on_the_line_or_where_it_was_forked() -> None:
    revisions = [_revision(1, 2), _revision(1, 5), _revision(3, 4)]
    nearest = _Nearest(revisions, {2: (1, 3), 3: (2, 9)})
    places = [(1, 1), (1, 2), (1, 4), (1, 9), (2, 1), (3, 3), (3, 4), (3, 9), (2, 7)]
    found = [nearest.at(line, seq) for line, seq in places]
    assert found == [None, "1.2", "1.2", "1.5", "1.2", "1.2", "3.4", "3.4", "1.2"]


def test_lines_that_were_forked_from_each_other_are_gone_through_once() -> None:
    def asked(size: int) -> None:
        nearest = _Nearest([_revision(0, 1)], {line: (line - 1, 5) for line in range(1, size)})
        assert {nearest.at(line, 3) for line in range(size)} == {"0.1"}

    assert growth(asked, 300) < LINEAR
