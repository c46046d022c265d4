"""Freed memory goes back to the system, where the C library can be told so."""

import ctypes
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from memotree_storage.memory import return_freed_memory


def test_the_c_library_is_told_once_for_each_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    mallopt = Mock(return_value=1)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    return_freed_memory()
    assert sorted(call.args[0] for call in mallopt.call_args_list) == [-8, -3, -1]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    return_freed_memory()
