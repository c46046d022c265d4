"""The seed of a run's random tests, and how much they try: little in `make test`, as much as one wants at length.

Inputs, fault points and moments of kills are drawn from one seed, which is fresh in each run. The head of the run and
each failure tell it, and ``MEMOTREE_TEST_SEED`` sets it, to see a failure again. ``MEMOTREE_TEST_FUZZ`` is how many
times the usual number of inputs is tried; with it, every fault point of a list is visited.
"""

import os
import secrets
from collections.abc import Generator, Sequence
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SEED: Final = int(os.environ.get("MEMOTREE_TEST_SEED") or secrets.randbelow(1_000_000))

TIMES: Final = int(os.environ.get("MEMOTREE_TEST_FUZZ") or 0)
"""How many times the usual number of examples to try; 0: the usual ones."""

os.environ["MEMOTREE_TEST_SEED"] = str(SEED)  # the workers of this run have the same


def budget(usual: int) -> int:
    """How many of something to try, where ``usual`` are enough for `make test`."""
    return usual * (TIMES or 1)


def effort(examples: int, *, steps: int = 50, shrink: bool = True) -> settings:
    """Settings of a test with random inputs.

    Args:
        examples: Their usual number.
        steps: How many steps a state machine takes in each.
        shrink: Whether a failing example is made smaller. Where each step takes a call of a server or store, it is only
            at length: it may take minutes, after which the limit of a test would hide what has failed.
    """
    return settings(
        max_examples=budget(examples),
        stateful_step_count=steps,
        derandomize=False,
        database=None,
        deadline=None,
        phases=[phase for phase in Phase if shrink or TIMES or phase is not Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def sample(strategy: st.SearchStrategy[Any], usual: int) -> list[Any]:
    """Draw some values; the first one is nearly always the simplest there is."""
    found: list[Any] = []

    @effort(usual, shrink=False)
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


def dice(*purpose: object) -> Random:
    """The random numbers of this run for one purpose."""
    return Random(f"{SEED} {purpose}")


def points(what: str, every: Sequence[str], *, hardest: str = "") -> list[Any]:
    """The parameters of a test that ends a server at a fault point.

    `make test` takes the hardest point; the campaigns of CI one more, drawn for each run; `make campaign` all.

    Args:
        what: The operation.
        every: All its points.
        hardest: The one that is always tried; none if the same steps are tried by another operation.
    """
    others = [point for point in every if point != hardest]
    chosen = others if TIMES else [dice("points", what).choice(others)]
    return [*filter(None, [hardest]), *(pytest.param(point, marks=pytest.mark.campaign) for point in chosen)]


# --- Hooks of pytest, for tests/conftest.py ---------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Let hypothesis draw from the seed, unless its own option gives one."""
    config.option.hypothesis_seed = config.option.hypothesis_seed or str(SEED)


def pytest_report_header() -> str:
    """Tell the seed at the head of the run."""
    return f"random tests: {_environment()}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with each failure what repeats it."""
    report = yield
    if report.failed:
        report.sections.append(("To see it again", f"{_environment()} .venv/bin/python -m pytest '{item.nodeid}'"))
    return report


def _environment() -> str:
    return f"MEMOTREE_TEST_SEED={SEED}" + (f" MEMOTREE_TEST_FUZZ={TIMES}" if TIMES else "")
