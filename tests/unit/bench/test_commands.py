"""The commands of the bench can be loaded, and the list of mistakes fits the modules that it changes."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import bench
from bench.mutations import made_mutations

BENCH = Path(bench.__file__).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py") if not path.stem.startswith("__")))
def test_every_module_of_the_bench_can_be_imported(name: str) -> None:
    assert import_module(f"bench.{name}").__doc__


def test_each_mistake_of_the_list_can_be_made_and_has_a_test() -> None:
    made = made_mutations()
    assert len(made) >= 150
    for each in made:
        ast.parse(each.mutated((BENCH.parent / each.module).read_text()), f"mutation {each.number} of {each.module}")
        assert each.asked(BENCH.parent)
