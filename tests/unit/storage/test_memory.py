"""Freed memory goes back to the system, where the C library can be told so."""

import ctypes

import pytest
from memotree_storage.memory import return_freed_memory


class Library:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def mallopt(self, number: int, value: int) -> int:
        self.calls.append((number, value))
        return 1


def test_the_c_library_is_told_once_for_each_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return_freed_memory()
    assert sorted(number for number, _ in library.calls) == [-8, -3, -1]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    return_freed_memory()
