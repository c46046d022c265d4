"""Each file of the wire contract names a package for the languages whose generators ask for one."""

from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

PROTO: Final = Path(__file__).parents[2] / "proto"
FILES: Final = sorted(path.relative_to(PROTO).with_suffix("").as_posix() for path in PROTO.rglob("*.proto"))

pytestmark = pytest.mark.requirement("SERVE-1")


@pytest.mark.parametrize("name", FILES)
def test_each_file_names_a_package_for_go_java_and_csharp(name: str) -> None:
    options = import_module(f"{name.replace('/', '.')}_pb2").DESCRIPTOR.GetOptions()
    assert options.go_package == "memotree/v1;memotreev1"
    assert (options.java_package, options.java_multiple_files) == ("dev.memotree.v1", True)
    assert options.csharp_namespace == "MemoTree.V1"
