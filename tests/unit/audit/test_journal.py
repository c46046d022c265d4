"""The journal has every line that was appended until PostgreSQL has it, whatever happens."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.audit import journal as journal_module
from memotree.audit.journal import Journal

pytestmark = pytest.mark.requirement("TOOL-12")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "journal.jsonl"


def size(path: Path) -> int:
    """The bytes of both files."""
    return sum(each.stat().st_size for each in path.parent.iterdir())


def drained(journal: Journal) -> list[bytes]:
    """All lines that PostgreSQL does not have, which then has them."""
    found = []
    while journal.taken < journal.end:
        lines, end = journal.next_lines()
        found += lines
        journal.took(end)
    return found


def test_a_file_is_emptied_when_postgresql_has_all_its_lines_and_positions_go_on(path: Path) -> None:
    journal = Journal(path)
    journal.append(b"one\n")
    _, end = journal.next_lines()
    journal.append(b"two\n")
    journal.took(end)
    assert size(path) == 8
    lines, end = journal.next_lines()
    assert lines == [b"two"]
    journal.took(end)
    assert size(path) == 0
    assert journal.taken == journal.end == 8
    journal.append(b"three\n")
    assert journal.next_lines() == ([b"three"], 14)


def test_the_files_stay_small_though_a_line_always_arrives_meanwhile(path: Path) -> None:
    journal = Journal(path, most_bytes=100)
    found = []
    for number in range(1_000):
        lines, end = journal.next_lines()
        journal.append(b"line %d\n" % number)
        found += lines
        journal.took(end)
        assert size(path) < 100
    assert [*found, *drained(journal)] == [b"line %d" % number for number in range(1_000)]


def test_the_lines_of_both_files_are_found_in_their_order_by_the_next_process(path: Path) -> None:
    first = Journal(path)
    for name in (b"one\n", b"two\n"):
        first.append(name)
    first.took(4)
    first.append(b"three\n")
    for number, name in enumerate(("journal.jsonl", "journal-2.jsonl")):
        os.utime(path.with_name(name), (number, number))
    second = Journal(path)
    second.append(b"four\n")
    assert drained(second) == [b"one", b"two", b"three", b"four"]
    assert size(path) == 0


def test_a_line_that_a_power_cut_tore_does_not_spoil_the_next(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"a": 1}\n{"a"')
    path.with_name("journal-2.jsonl").write_bytes(b'{"b": 1}\n{"b"')
    os.utime(path, (1, 1))
    journal = Journal(path)
    journal.append(b'{"b": 2}\n')
    assert drained(journal) == [b'{"a": 1}', b'{"a"', b'{"b": 1}', b'{"b"', b'{"b": 2}']


def test_what_a_power_cut_left_in_place_of_lines_holds_nothing_up(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"one\n" + bytes(3 << 20))
    journal = Journal(path)
    journal.append(b"two\n")
    found = drained(journal)
    assert (found[0], found[-1]) == (b"one", b"two")
    assert size(path) == 0


def test_a_journal_full_of_what_postgresql_does_not_have_refuses_and_keeps_what_it_has(path: Path) -> None:
    journal = Journal(path, most_bytes=10_000)
    journal.check()
    assert (path.stat().st_size, journal.next_lines()) == (0, ([], 0)), "checking leaves nothing behind"
    journal.append(b"x" * 5999 + b"\n")
    with pytest.raises(OSError, match="most"):
        journal.append(b"x" * 5000)
    with pytest.raises(OSError, match="most"):
        journal.check()
    assert path.stat().st_size == 6000
    journal.append(b"y" * 2999 + b"\n")
    journal.took(6000)
    journal.append(b"z" * 6999 + b"\n")
    with pytest.raises(OSError, match="most"):
        journal.append(b"\n")


# --- Kills ------------------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """The process is gone."""


class Dying:
    """Stands in for ``os``: the process is killed at one of the calls that change a file."""

    def __init__(self, last: int, *, half: bool) -> None:
        self._left = last
        self._half = half

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, line: bytes) -> int:
        if self._dies():
            if self._half:
                os.write(file, line[: len(line) // 2])
            raise KilledError
        return os.write(file, line)

    def ftruncate(self, file: int, length: int) -> None:
        if self._dies():
            if self._half:
                os.ftruncate(file, length)
            raise KilledError
        os.ftruncate(file, length)

    def _dies(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize("half", [False, True])
def test_a_kill_at_any_call_of_the_system_loses_no_line_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    killed = 0
    for last in range(100):
        path = tmp_path / str(last) / "journal.jsonl"
        kept: list[bytes] = []
        taken: list[bytes] = []
        journal = Journal(path)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(journal_module, "os", Dying(last, half=half))
                for number in range(20):
                    journal.append(b"%d\n" % number)
                    kept.append(b"%d" % number)
                    if number % 3 == 2:
                        lines, end = journal.next_lines()
                        taken += lines  # PostgreSQL has them, whether or not the journal learns of it
                        if number % 2:
                            journal.append(b"%d, meanwhile\n" % number)
                            kept.append(b"%d, meanwhile" % number)
                        journal.took(end)
                    if number == 12:
                        journal.check()
        except KilledError:
            killed += 1
        journal.close()
        assert len(taken) == len(set(taken))
        again = Journal(path)
        assert set(kept) <= {*taken, *drained(again)}
        again.close()
        assert size(path) == 0
    assert 20 < killed < 100


@given(st.lists(st.sampled_from(["append", "take", "took", "kill"]), max_size=60))
def test_every_line_is_taken_and_kills_only_repeat_some(steps: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        journal, kept = Journal(path), 0
        known: list[bytes] = []
        taking: tuple[list[bytes], int] | None = None
        killed = False
        for step in steps:
            if step == "append":
                journal.append(b"%d\n" % kept)
                kept += 1
            elif step == "take":
                taking = journal.next_lines()
            elif taking is not None:
                known += taking[0]
                if step == "took":
                    journal.took(taking[1])
                taking = None
            if step == "kill":
                journal.close()
                journal, killed = Journal(path), True
        known += drained(journal)
        journal.close()
        every = [b"%d" % number for number in range(kept)]
        assert set(known) == set(every)
        assert killed or known == every
        assert size(path) == 0
