"""All parts of the server write one log: one event per line, in the format of the settings."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from memotree_storage.embedded.child_log import LogFollower

from memotree.server.logs import configure_logging

PROGRAM = """
import logging, warnings
from memotree.server.logs import configure_logging
configure_logging("info", "json")
import structlog
structlog.get_logger("memotree.call").info("call", method="Recall")
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
logging.getLogger("asyncio").error("Task was destroyed\\nbut it is pending")
logging.getLogger("psycopg.pool").warning("error connecting")
logging.getLogger("some.library").info("of no interest")
warnings.warn("old", DeprecationWarning, stacklevel=1)
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("grpc").exception("failed")
"""

pytestmark = pytest.mark.requirement("USE-8")


def test_every_line_of_a_json_log_is_one_event_whoever_wrote_it() -> None:
    ran = subprocess.run([sys.executable, "-Wd", "-c", PROGRAM], capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    assert ran.stdout == ""
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [(event["level"], event.get("logger")) for event in events] == [
        ("info", None),
        ("warning", "uvicorn.error"),
        ("error", "asyncio"),
        ("warning", "py.warnings"),
        ("error", "grpc"),
    ], "the store logs the beginning and the end of an outage, not the pool"
    assert all(event["timestamp"] and event["event"] for event in events)
    assert events[2]["event"] == "Task was destroyed but it is pending"
    assert "ZeroDivisionError" in events[4]["exception"]


@pytest.mark.requirement("TOOL-12")
@pytest.mark.parametrize("form", ["json", "console"])
def test_no_name_or_message_of_a_caller_forges_a_line_or_moves_the_cursor(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("info", form)
    name = "a\n2026-11-26 12:00:00 [info     ] call code=OK\x1b[2J\r\u2028\x85"
    log = structlog.get_logger("memotree.call")
    log.info("call", method=name, values=[name])
    log.warning(name, why=name)
    try:
        raise ValueError(name)  # noqa: TRY301 - the text is what is tested
    except ValueError:
        log.exception("failed")
    text = capsys.readouterr().err
    assert not [each for each in text if not each.isprintable() and each != "\n"]
    lines = text.splitlines()
    assert sum(not line.startswith("    |") for line in lines) == 3
    assert ("method=" in lines[0]) is (form == "console")
    assert not [line for line in lines if line.startswith("2026-11-26 12:00:00")]


@pytest.mark.parametrize("form", ["json", "console"])
def test_texts_of_any_length_are_cut_before_they_are_written(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each unprintable character is escaped by itself, and no other call goes on while it is."""
    configure_logging("info", form)
    log, text = structlog.get_logger("memotree.call"), chr(0x80) * (1 << 22)
    with structlog.contextvars.bound_contextvars(principal=text):
        log.info("call", request=text, values=[text, {"inner": (text,)}])
        log.warning(text)
        try:
            raise ValueError(text)  # noqa: TRY301 - the text is what is tested
        except ValueError:
            log.exception("failed")
        log.info("call", method="m" * 2_000)
    told = capsys.readouterr().err
    assert len(told) < 400_000
    assert "4,194,304 characters, cut" in told
    assert "ValueError" in told
    assert "m" * 2_000 in told.splitlines()[-1], "a text of 2,000 characters is whole"


def test_the_end_of_a_long_traceback_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    try:
        raise ValueError("begin" + "x" * 100_000 + "end")  # noqa: TRY301 - the text is what is tested
    except ValueError:
        structlog.get_logger("memotree.call").exception("failed")
    told = json.loads(capsys.readouterr().err)["exception"]
    assert told.startswith("Traceback")
    assert "begin" in told
    assert told.endswith("end")
    assert len(told) < 21_000


WITHOUT_A_READER = """
import os, sys
from memotree.server.logs import configure_logging
configure_logging("info", "json")
import structlog, logging
reader, writer = os.pipe()
os.dup2(writer, 2)
os.close(reader), os.close(writer)
structlog.get_logger("memotree.call").info("call", method="Recall")
logging.getLogger("some.library").error("failed")
sys.stderr = None
structlog.get_logger("memotree.call").info("call", method="Recall")
print("still serving")
"""


def test_a_log_without_a_reader_stops_no_call() -> None:
    """As in ``memotree serve 2>&1 | head``, or with a full disk behind standard error."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_A_READER], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert (ran.stdout, ran.returncode) == ("still serving\n", 0)


def test_the_log_goes_to_what_is_standard_error_at_that_moment(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is run inside a process, as tests do, must not keep the standard error of that moment."""
    moment = io.StringIO()
    with contextlib.redirect_stderr(moment):
        configure_logging("info", "json")
    moment.close()
    structlog.get_logger("memotree.call").info("call", method="Recall")
    assert json.loads(capsys.readouterr().err)["method"] == "Recall"


def test_what_an_embedded_server_writes_is_repeated_line_by_line(tmp_path: Path, log_lines: list[Any]) -> None:
    path = tmp_path / "postgres.log"
    path.write_text("from an earlier start\n")
    follower = LogFollower("PostgreSQL", path)
    with path.open("a") as file:
        file.write("LOG:  database system is ready\nPANIC:  could not write\nLOG:  half a li")
    assert follower.repeat() == 2
    with path.open("a") as file:
        file.write("ne\n")
    assert follower.repeat() == 1
    path.write_text("LOG:  after a rotation\n")
    assert follower.repeat() == 1
    path.unlink()
    assert follower.repeat() == 0
    assert [(line["log_level"], line["line"]) for line in log_lines] == [
        ("debug", "LOG:  database system is ready"),
        ("error", "PANIC:  could not write"),
        ("debug", "LOG:  half a line"),
        ("debug", "LOG:  after a rotation"),
    ]
    assert {line["name"] for line in log_lines} == {"PostgreSQL"}
