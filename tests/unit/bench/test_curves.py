"""The growth curves tell how fast a call grows, and flag what may not grow so fast."""

from dataclasses import replace
from pathlib import Path

import pytest
from memotree_storage.model.node import SUMMARY_TYPE, Archive, Node

from bench import curves, plots
from bench.curves import Curve
from bench.figures import Figure
from bench.growth_sizes import Sampled, measure
from bench.table import Row, markdown


def a_curve(work: str, *medians: float, archives: int = 1, unit: str = "ms") -> Curve:
    points = [(10 ** (3 + place), Figure(value, value, value, 5)) for place, value in enumerate(medians)]
    return Curve(work, unit, archives, points)


def test_the_exponent_is_0_for_no_growth_and_1_for_linear_growth() -> None:
    assert a_curve("get", 2.0, 2.0, 2.0).exponent == pytest.approx(0.0)
    linear = a_curve("import", 1.0, 10.0, 100.0)
    assert linear.exponent == pytest.approx(1.0)
    assert linear.per_doubling == pytest.approx(2.0)
    assert a_curve("get", 1.0).exponent is None


def test_a_call_that_touches_few_nodes_is_flagged_when_it_grows_faster_than_the_logarithm() -> None:
    assert not a_curve("get", 1.0, 1.3, 1.6).is_too_fast
    assert a_curve("get", 1.0, 2.0, 4.0).is_too_fast
    assert not a_curve("Recall", 1.0, 10.0, 100.0).is_too_fast
    points = [(1_000, Figure(1.0, 0.9, 2.0, 30)), (100_000, Figure(5.0, 1.0, 9.0, 30))]
    assert not Curve("get", "ms", 1, points).is_too_fast, "medians alone are noise"


def test_a_row_stands_for_each_curve_and_is_judged_only_from_100_000_nodes_on() -> None:
    short, long, free = curves.rows(
        [a_curve("get", 1.0, 9.0), a_curve("get", 1.0, 3.0, 9.0, archives=100), a_curve("Recall", 1.0, 9.0, 99.0)]
    )
    assert (short.work, short.met) == ("get, 10,000 nodes, one archive, exponent 0.95", None)
    assert (long.peer, long.budget, long.met) == ("at 1,000", "≤ 2.1 times (log N)", False)
    assert (free.budget, free.met) == ("", None)
    (row,) = curves.rows([replace(a_curve("get", 1.0, 1.0), along="commits")])
    assert row.work == "get, 10,000 commits, one archive, exponent 0.00"


def test_curves_are_read_as_they_were_kept_and_drawn(tmp_path: Path) -> None:
    found = [
        a_curve("get", 1.0, 2.0, 4.0),
        a_curve("Recall", 3.0, 9.0, 27.0),
        a_curve("get", 1.0, 1.0, 1.0, archives=100),
        a_curve("disk of git", 1.0, 10.0, 100.0, unit="MB"),
    ]
    curves.keep(found, tmp_path / "curves.json")
    assert curves.read(tmp_path / "curves.json") == found
    drawn = plots.growth(tmp_path / "curves.json")
    assert "get, N^0.30 (!)" in drawn
    assert "Recall, N^0.48" in drawn
    assert drawn.count("<polyline") == 2 * 2  # each with the thin line to its text
    assert "disk" not in drawn


def test_the_sampled_nodes_are_leaves_and_parents_of_what_passes() -> None:
    nodes = [Node(f"p{number}", "a", None, "a0", SUMMARY_TYPE) for number in range(3)]
    nodes += [Node(f"l{number}", "a", "p0", "a0", "leaf_chunk") for number in range(30)]
    sampled = Sampled()
    assert list(sampled.over(iter([Archive("a", "a"), *nodes]), 30)) == [Archive("a", "a"), *nodes]
    assert sampled.parents == ["p0", "p1", "p2"]
    assert len(sampled.leaves) == 30


@pytest.mark.campaign
async def test_a_small_workspace_with_some_commits_is_measured_with_its_memory_and_disk() -> None:
    found = await measure(nodes=20, archives=2, commits=5, rounds=1)
    calls = {"import", "mirror", "get", "children", "commit of 10", "full text search", "hybrid search"}
    calls |= {"history of a node"}
    recalls = {"Recall", "Recall after a commit", "first Recall after a start"}
    assert found.keys() >= calls | recalls
    assert all(samples and min(samples) > 0 for work, samples in found.items() if not work.startswith("disk"))
    memory = {work for work in found if work.startswith("memory of ")}
    assert memory == {"memory of service", "memory of engine", "memory of PostgreSQL"}
    assert any(work.startswith("disk of ") and size[0] > 0 for work, size in found.items())


# --- Rows of repeated calls ---


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
    assert Row("import", 2.0, "s").interval == "", "a single measurement has none"
