"""The plots are drawn from the figures alone: well-formed, the same each time, without pictures or foreign fonts."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

from unit.bench.test_peers import a_run

from bench import plots, svg
from bench.peers.outcome import keep


def texts(drawn: str) -> list[str]:
    root = ET.fromstring(drawn)  # noqa: S314 - our own file
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_the_peers_are_drawn_with_what_they_lack(tmp_path: Path) -> None:
    keep(a_run(), tmp_path / "peers.json")
    drawn = plots.peers(tmp_path / "peers.json")
    told = texts(drawn)
    assert "2.5 times, 5 ms, not durable" in told
    assert "no history" in told
    assert "update one note: MemoTree 2 ms" in told
    assert not any("Absent" in text for text in told)


def test_a_plot_is_small_brings_no_font_and_no_picture_and_stays_if_nothing_was_measured(tmp_path: Path) -> None:
    keep(a_run(), tmp_path / "peers.json")
    told = plots.draw(tmp_path, tmp_path / "plots")
    drawn = (tmp_path / "plots" / "peers.svg").read_bytes()
    assert any(line.startswith("peers.svg is drawn") for line in told)
    assert len(drawn) < 20_000
    assert b"prefers-color-scheme:dark" in drawn
    assert not re.search(rb"<image|href|url\(|@font-face|@import", drawn)
    plots.draw(tmp_path, tmp_path / "plots")
    assert (tmp_path / "plots" / "peers.svg").read_bytes() == drawn
    (tmp_path / "peers.json").unlink()
    told = plots.draw(tmp_path, tmp_path / "plots")
    assert any(line.startswith("peers.svg is not drawn: there is no") for line in told)
    assert (tmp_path / "plots" / "peers.svg").read_bytes() == drawn


def test_a_bar_begins_at_one_and_goes_left_for_what_is_faster() -> None:
    drawn = svg.bars("t", [("call", [svg.Bar("slow", 10.0, "10"), svg.Bar("fast", 0.1, "0.1")])])
    slow, fast = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)
    assert float(fast[0]) + float(fast[1]) == float(slow[0])
    drawn = svg.bars("a < b & c", [("<call>", [svg.Bar("p", None, "<none>")])])
    assert "<none>" in texts(drawn), "a text is escaped"


def test_the_texts_of_lines_do_not_cover_each_other() -> None:
    found = [svg.Line([(1000.0, 1.0), (10_000.0, 2.0 + number / 1000)], f"line {number}") for number in range(12)]
    drawn = svg.lines("t", "nodes", "ms", found)
    places = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="">line', drawn))
    assert len(places) == 12
    assert all(below - above >= 14 for above, below in pairwise(places))
