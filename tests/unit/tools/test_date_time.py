"""Dates and times."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.tools.builtin.date_time import Clock, DateTimeError

pytestmark = pytest.mark.requirement("TOOL-6")

NOW = datetime(2026, 11, 26, 23, 30, 15, tzinfo=UTC)


async def told(**arguments: Any) -> dict[str, Any]:
    return await Clock(lambda: NOW).date_time(**arguments)


async def test_now_is_told_in_a_zone() -> None:
    assert await told(zone="Asia/Shanghai") == {
        "time": "2026-11-27T07:30:15+08:00",
        "date": "2026-11-27",
        "weekday": "Friday",
        "week": "2026-W48",
        "day_of_year": 331,
        "zone": "Asia/Shanghai",
        "unix_seconds": 1795735815,
    }
    assert (await told())["time"] == "2026-11-26T23:30:15+00:00"
    assert (await told(zone="-03:30"))["time"] == "2026-11-26T20:00:15-03:30"


@pytest.mark.parametrize(("text", "time"), [
    ("2026-01-31", "2026-01-31T00:00:00+01:00"), ("2026-07-31T12:00", "2026-07-31T12:00:00+02:00"),
    ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"),
    ("20260131T120000.5+0100", "2026-01-31T12:00:00.500000+01:00"), ("2026-W05-6", "2026-01-31T00:00:00+01:00"),
    ("Sat, 31 Jan 2026 12:00:00 +0000", "2026-01-31T13:00:00+01:00"), ("", "2026-11-27T00:30:15+01:00"),
])  # fmt: skip
async def test_a_time_is_read(text: str, time: str) -> None:
    assert (await told(action="read", time=text, zone="Europe/Berlin"))["time"] == time


@pytest.mark.parametrize(("arguments", "time"), [
    ({"time": "2026-01-31", "months": 1}, "2026-02-28T00:00:00+01:00"),
    ({"time": "2024-02-29", "years": -1}, "2023-02-28T00:00:00+01:00"),
    ({"time": "2026-01-01", "months": -13, "weeks": 1, "days": 1}, "2024-12-09T00:00:00+01:00"),
    ({"time": "2026-03-28T12:00", "days": 1}, "2026-03-29T12:00:00+02:00"),
    ({"time": "2026-03-28T12:00", "hours": 24}, "2026-03-29T13:00:00+02:00"),
    ({"time": "2026-10-25T02:30", "hours": 1}, "2026-10-25T02:30:00+01:00"),
    ({"seconds": -15, "minutes": 90}, "2026-11-27T02:00:00+01:00"),
])  # fmt: skip
async def test_a_day_is_one_of_the_calendar_and_an_hour_one_of_the_clock(arguments: dict[str, Any], time: str) -> None:
    assert (await told(action="add", zone="Europe/Berlin", **arguments))["time"] == time


async def test_the_difference_of_two_times() -> None:
    found = await told(action="difference", time="2026-03-01", until="2026-03-02T12:00:05")
    assert found == {"total_seconds": 129605.0, "total_days": 129605 / 86400, "text": "1 days 12:00:05"}
    assert (await told(action="difference", time="2026-11-27"))["text"] == "-0 days 00:29:45"
    over = await told(action="difference", time="2026-03-29T00:00", until="2026-03-29T04:00", zone="Europe/Berlin")
    assert over["total_seconds"] == 3 * 3600


async def test_a_zone_that_does_not_exist_is_refused() -> None:
    for zone in (
        *("Nowhere/City", "../../../etc/passwd", "/etc/localtime", "Europe", "Europe/../UTC", "tzdata.zi", "a" * 64),
        *("leapseconds", "posixrules/..", "+25:00", "\x00", "Ünited/Kingdom"),
    ):
        with pytest.raises(DateTimeError, match="is no time zone") as refused:
            await told(zone=zone)
        assert [fault.field for fault in refused.value.violations] == ["zone"]


@pytest.mark.parametrize(("arguments", "field"), [
    ({"action": "read", "time": "tomorrow"}, "time"), ({"action": "read", "time": "2026-02-30"}, "time"),
    ({"action": "difference", "time": "2026-01-01", "until": "31.12.2026"}, "until"),
    ({"action": "add", "years": 9000}, "time"), ({"action": "add", "months": -(10**10)}, "time"),
    ({"action": "add", "weeks": 10**10}, "time"), ({"action": "add", "seconds": 10**10, "years": 7900}, "time"),
    ({"action": "read", "time": "0001-01-01T00:00Z", "zone": "America/New_York"}, "time"),
    ({"action": "read", "time": "9999-12-31T23:59Z", "zone": "Asia/Shanghai"}, "time"),
    ({"action": "difference", "time": "0001-01-01T00:00+10:00"}, "time"),
])  # fmt: skip
async def test_what_is_no_time_is_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(DateTimeError) as refused:
        await told(**arguments)
    assert [fault.field for fault in refused.value.violations] == [field]


@given(st.text(max_size=64), st.text(max_size=64), st.integers(-(10**10), 10**10))
async def test_any_text_is_read_or_refused(time: str, zone: str, amount: int) -> None:
    for arguments in (
        {"time": time, "zone": zone},
        {"days": amount, "months": -amount},
        {"time": time, "hours": amount},
    ):
        try:
            assert await told(action="add", **arguments)
        except DateTimeError as refused:
            refused.message.encode("utf-8", "replace")
