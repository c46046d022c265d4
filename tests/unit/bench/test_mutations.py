"""The list of mistakes still fits the modules that it changes."""

import ast
from pathlib import Path

from bench.mutations import made_mutations

ROOT = Path(__file__).parents[3]


def test_each_mistake_of_the_list_can_be_made_and_has_a_test() -> None:
    made = made_mutations()
    assert len(made) >= 150
    for each in made:
        ast.parse(each.mutated((ROOT / each.module).read_text()), f"mutation {each.number} of {each.module}")
        assert each.asked(ROOT)
