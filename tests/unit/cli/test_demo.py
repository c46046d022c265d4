"""The demo cuts its texts without losing a character, and does its steps through the public client."""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.fake_memotree import FakeMemoTree, serving

from memotree.cli.context import CliContext
from memotree.cli.demo import private_server, run_demo
from memotree.cli.demo.language_reference import cut, once_each, reference
from memotree.cli.demo.script import Demo
from memotree.cli.demo.steps import DemoSteps
from memotree.cli.output import Output
from memotree.client import Client

_LINES = st.sampled_from(["Title", "*****", "=====", "-----", "", "text", "  code", "==", "Longer", "******"])


@given(st.lists(_LINES).map("\n".join))
def test_the_sections_of_a_text_joined_are_the_text(text: str) -> None:
    assert "".join(section.text for section in cut("name", text).walk()) == text


def test_every_topic_of_the_reference_is_cut_into_one_tree() -> None:
    for name, text in reference().items():
        root = cut(name, text)
        assert "".join(section.text for section in root.walk()) == text
        assert all(section.title.strip() for section in root.walk())


def test_a_topic_that_is_a_chapter_of_another_one_is_found_there() -> None:
    trees, parts = once_each(
        {"part": "One\n***\n\nb\n", "whole": "Top\n***\n\na\n\nOne\n===\n\nb\n", "other": "Two\n***\n"}
    )
    assert list(trees) == ["other", "whole"]
    assert parts == {"part": trees["whole"].below[0]}


def test_sections_are_below_the_section_that_contains_them() -> None:
    root = cut("t", "Top\n***\n\na\n\nOne\n===\nb\n\nDeep\n----\nc\n\nTwo\n===\n")
    assert (root.title, [each.title for each in root.below]) == ("Top", ["One", "Two"])
    assert [each.title for each in root.below[0].below] == ["Deep"]


@pytest.mark.parametrize("text", ["no heading at all", "before\n\nA\n***\n\nB\n***\n", "A\n***\n\nB\n***\n"])
def test_a_text_that_is_not_one_section_gets_a_root_of_its_name(text: str) -> None:
    assert cut("name", text).title == "name"


def test_an_underline_of_another_length_is_no_heading() -> None:
    assert cut("name", "Title\n***\nrest").below == []


@pytest.mark.requirement("SERVE-4")
def test_the_demo_does_its_steps_and_reports_them_as_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeMemoTree()) as fake, Client(fake.address) as client:
        stage = DemoSteps(Output(as_json=True))
        Demo(stage, client, home).run()
        stage.end()
        batches = fake.requests("BatchChangeNodes")
    document = json.loads(capsys.readouterr().out)
    facts = {step["title"].partition(":")[0]: step["facts"] for step in document["steps"]}
    assert all(len(batch.changes) <= 500 for batch in batches)
    assert (
        facts["Read it back at the tag"]["same"]
        == facts["Read it back at the tag"]["texts"]
        == len(once_each(reference())[0])
    )
    assert facts["Search in the session, before the commit"]["outside"] == 0
    assert facts["See what differs"]["changed"] == 3


def test_a_folder_that_no_demo_made_is_never_deleted(home: Path) -> None:
    (home / "precious").mkdir()
    (home / "precious" / "file").touch()
    with pytest.raises(private_server.NotADemoFolderError, match="name an empty folder"):
        run_demo(CliContext(), home / "precious")
    assert (home / "precious" / "file").exists()


def test_the_folder_of_an_earlier_demo_is_created_again_unless_its_server_runs(home: Path) -> None:
    folder = private_server.fresh_folder(home / "demo")
    (folder / "old").touch()
    assert not (private_server.fresh_folder(home / "demo") / "old").exists()
    announced = {"address": "127.0.0.1:1", "pid": os.getpid(), "version": "1"}
    (folder / "server.json").write_text(json.dumps(announced), encoding="utf-8")
    with pytest.raises(private_server.NotADemoFolderError, match="still uses"):
        private_server.fresh_folder(home / "demo")


def test_a_server_that_ends_early_is_reported_with_the_end_of_its_output(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = private_server.fresh_folder(home / "demo")
    script = home / "python"
    script.write_text("#!/bin/sh\necho 'no luck'\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with (
        pytest.raises(private_server.StartError, match=r"(?s)ended with exit code 3.*no luck"),
        private_server.server_on(folder),
    ):
        pass
