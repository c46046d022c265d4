"""Times as people and programs write them."""

from datetime import UTC, datetime

import pytest
from memotree_storage.model.times import read_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-05-08T13:56:00Z", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("2023-05-08T13:56:00+02:00", datetime(2023, 5, 8, 11, 56, tzinfo=UTC)),
        ("2023-05-08 13:56", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("2023-05-08", datetime(2023, 5, 8, tzinfo=UTC)),
        ("2023-05", datetime(2023, 5, 1, tzinfo=UTC)),
        ("2023", datetime(2023, 1, 1, tzinfo=UTC)),
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:05 am on 31 December, 2022", datetime(2022, 12, 31, 0, 5, tzinfo=UTC)),
        ("12 p.m. on 3 Sept 2022", datetime(2022, 9, 3, 12, tzinfo=UTC)),
        ("May 8th, 2023", datetime(2023, 5, 8, tzinfo=UTC)),
        ("Monday, 8 May 2023 at 13:56:07", datetime(2023, 5, 8, 13, 56, 7, tzinfo=UTC)),
        ("the", None),
        ("", None),
        ("05/08/2023", None),
        ("31 February 2023", None),
        ("25:00 on 8 May 2023", None),
        ("13:00 pm on 8 May 2023", None),
        ("8 May 2023 or so", None),
        ("8 May 2023 9", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("x" * 1000, None),
    ],
)
def test_a_time_is_read_exactly_or_not_at_all(text: str, expected: datetime | None) -> None:
    assert read_time(text) == expected
