"""The bench of peers says what it measured, what a peer lacks, and why one was skipped."""

import json
import sys
from pathlib import Path

import pytest
from memotree_storage.embedded.child import ChildStartError

from bench.figures import Figure
from bench.peers import environments, measure, process
from bench.peers.environments import KINDS, OURS, Kind, NotInstalledError, python_of
from bench.peers.measure import Contest
from bench.peers.outcome import CALLS, Outcome, Run, keep, read
from bench.peers.process import PeerError, Running, running
from bench.peers.program import Note, packed, unpacked
from bench.peers.report import markdown, show


def a_run() -> Run:
    ours = Outcome(
        OURS,
        versions={"memotree": "0.1.0"},
        durability="on disk",
        figures={"update_one": Figure(2.0, 1.5, 4.0, 20), "load": Figure(3000.0, 3000.0, 3000.0, 1)},
    )
    theirs = Outcome(
        "Other",
        versions={"other": "1.2"},
        durability="not durable: no fsync",
        figures={"update_one": Figure(5.0, 4.0, 9.0, 20)},
        lacks={"history_of_one": "no history"},
        wrong=("read_as_of did not return the text of before",) * 3,
    )
    return Run(1000, 100, {"cores": 2, "load before": 1.5}, [ours, theirs, Outcome("Absent", skipped="no wheel")])


def test_a_figure_is_the_median_with_the_5th_and_95th_percentile() -> None:
    figure = Figure.of([float(number) for number in range(101)])
    assert figure == Figure(50.0, 5.0, 95.0, 101)
    assert Figure.of([7.0]) == Figure(7.0, 7.0, 7.0, 1)
    assert unpacked(packed([0.5, -0.25])) == [0.5, -0.25], "vectors go over the pipe as 32-bit floats"


def test_the_table_has_ratios_to_ours_what_is_lacking_the_durability_and_who_was_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = markdown(a_run())
    for line in (
        "| 2 ms (1.5 ms to 4 ms) | 5 ms (4 ms to 9 ms), 2.5 times, not durable |",
        "| 3 s | no figure |",
        "| no figure | no history |",
        "- Other (other 1.2): not durable: no fsync.",
        "- Other answered wrongly: read_as_of did not return the text of before (3 times).",
        "- Absent was skipped: no wheel",
    ):
        assert line in told
    assert "Absent |" not in told
    show(a_run())
    assert "Absent was skipped: no wheel" in capsys.readouterr().out


def test_a_run_is_read_as_it_was_kept(tmp_path: Path) -> None:
    keep(a_run(), tmp_path / "peers.json")
    again = read(tmp_path / "peers.json")
    keep(again, tmp_path / "again.json")
    assert again.outcomes[1].figures == a_run().outcomes[1].figures
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((tmp_path / "peers.json").read_text())


async def test_a_peer_that_cannot_be_installed_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'WARNING: old'; echo 'no nowhere==1.0'; exit 1\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    kind = Kind("Nowhere", "nowhere_program", ("nowhere==1.0",))
    with pytest.raises(NotInstalledError, match=r"it cannot be installed: no nowhere==1\.0"):
        await python_of(kind, tmp_path)


async def test_a_program_that_ends_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="its program ended"):
        async with running(Kind("Nothing", "no_such_program"), tmp_path / "log"):
            pass
    assert "no_such_program" in (tmp_path / "log").read_text()


async def test_a_peer_that_does_not_start_is_skipped_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "OUT", tmp_path)
    git = next(kind for kind in KINDS if kind.program == "git_program")
    found = await measure.measure([git, Kind("Nothing", "no_such_program")], notes=30, words=20, rounds=2)
    assert [outcome.skipped for outcome in found] == ["", "its program ended"]
    assert found[0].figures.keys() == CALLS.keys() - {"search_vector", "search_hybrid"}
    assert found[0].lacks["search_vector"] == "no vectors"
    assert found[0].wrong == ()
    assert found[0].figures["update_one"].rounds == 2


async def test_a_peer_whose_server_does_not_start_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, _: Path) -> None: ...

        async def start(self) -> str:
            raise ChildStartError("PostgreSQL did not start.")

    monkeypatch.setattr(measure, "OUT", tmp_path)
    monkeypatch.setattr(process, "EmbeddedPostgres", Broken)
    kind = Kind("Other", "no_such_program", server="postgres")
    (found,) = await measure.measure([kind], notes=10, words=5, rounds=1)
    assert found.skipped == "PostgreSQL did not start."


async def test_a_call_that_fails_is_said_and_not_made_again(tmp_path: Path) -> None:
    git = next(kind for kind in KINDS if kind.program == "git_program")
    async with running(git, tmp_path / "log") as peer:
        contest = Contest([peer])

        async def lost(peer: Running, _: int) -> float:
            return (await peer.call("read_as_of", key="note-000001"))[0]

        await contest.rounds("read_as_of", 5, lost)
        assert peer.lacks["read_as_of"].startswith("failed: OSError: git show failed")
        assert contest.able("read_as_of") == []
        await peer.write("load", [Note("note-000001", "Text.", [0.0])])
        assert "read_as_of" not in contest.outcome(peer).figures


async def test_every_peer_has_a_program_and_pinned_packages_or_runs_on_this_python() -> None:
    folder = Path(environments.__file__).parent
    assert KINDS[0].name == OURS
    for kind in KINDS:
        assert (folder / f"{kind.program}.py").exists()
        assert all("==" in requirement for requirement in kind.requirements)
    assert await python_of(KINDS[0]) == Path(sys.executable)
