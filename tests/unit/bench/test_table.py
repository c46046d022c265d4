"""Rows of repeated calls: their median, interval, peer and budget."""

import pytest

from bench.table import Row, markdown


def test_a_row_of_times_has_their_median_and_the_interval_of_nine_in_ten() -> None:
    row = Row.of_times("get", [number / 1000 for number in range(101)], most=60, where="at 1e4")
    assert (row.value, row.low, row.high) == pytest.approx((50, 5, 95))
    assert (row.budget, row.met) == ("≤ 60 ms at 1e4", True)
    assert "50.00 ms | 5.00 to 95.00 |" in markdown([row])


def test_beside_a_peer_the_budget_is_a_ratio() -> None:
    row = Row.of_times("get", [0.003], "empty", [0.002], most=1.4)
    assert (row.ratio, row.budget, row.met) == (pytest.approx(1.5), "≤ 1.4 times", False)


def test_a_peer_that_could_not_be_measured_and_a_size_without_a_budget_judge_nothing() -> None:
    assert Row.of_times("get", [0.003], "git", [], most=2).met is None
    assert Row.of_times("get", [0.003], most=2, judged=False).met is None
    assert Row.of_times("get", [0.003]).met is None


def test_a_single_measurement_has_no_interval() -> None:
    assert Row("import", 2.0, "s").interval == ""
