"""The commands of the bench can be loaded: nothing that they import is gone."""

from importlib import import_module
from pathlib import Path

import pytest

import bench

MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_bench_can_be_imported(name: str) -> None:
    assert import_module(f"bench.{name}").__doc__
