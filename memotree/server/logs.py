"""Configures the server's log: one event per line, to standard error, in one format for all parts.

Libraries log through the module ``logging``; their warnings and errors are forwarded. gRPC's core, written in C, writes
lines of its own form to standard error; it is silenced unless ``GRPC_VERBOSITY`` asks for it, because each failed call
is in our log anyway.

Texts are cut, since a client may have chosen them: a line is written between calls, and must not take long.
"""

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO, cast

import structlog

from memotree.settings import LogFormat

HTTP_LIBRARIES: Final = ("uvicorn", "uvicorn.error", "mcp", "sse_starlette")
"""Loggers that may have handlers of their own."""

REPEATED: Final = ("psycopg.pool",)
"""Loggers that repeat every attempt of an outage; the store logs its beginning and its end."""

_MOST_CHARACTERS: Final = 2_000
"""The most characters of a text in an event; a longer one is cut, and says so."""

_TRACEBACK_CHARACTERS: Final = 20_000
"""The most characters of a traceback, of which the beginning and the end are kept."""

_GRPC_VERBOSITY: Final = "GRPC_VERBOSITY"


def configure_logging(level: str, form: LogFormat) -> None:
    """Send the log of this process to standard error: our own events, and what libraries say through ``logging``.

    Only programs of our own call this, since it changes the handlers of the whole process.

    Args:
        level: The lowest level that is logged, e.g. ``"info"``.
        form: ``console`` for people, ``json`` for programs, ``auto`` for ``console`` on a terminal and else ``json``.
    """
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    for_people = form == "console" or (form == "auto" and on_terminal)
    shape: list[structlog.typing.Processor] = (
        [
            _without_control_characters,
            structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=_indented_traceback),
        ]
        if for_people
        else [
            structlog.processors.ExceptionRenderer(_traceback),
            structlog.processors.JSONRenderer(ensure_ascii=False),
            _printable_json,
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_short_texts,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shape,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=False,  # so that a test or an embedding program can configure it again
    )
    os.environ.setdefault(_GRPC_VERBOSITY, "NONE")  # read by gRPC when its first channel or server is made
    _forward_library_logs()


def _with_short_texts(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Cut the texts of an event, also those in its lists and mappings."""
    for name, value in event.items():
        event[name] = _shortened(value)
    return event


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[:_MOST_CHARACTERS]}… ({len(value):,} characters, cut)"
    if isinstance(value, Mapping):
        return {_shortened(name): _shortened(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        some = map(_shortened, value)
        return list(some) if isinstance(value, list) else tuple(some)
    return value


def _without_control_characters(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape what would end a line or move a cursor, in names and values that a caller may have chosen."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = _escaped(value)  # values of other types are escaped where they are written
    return event


def _printable_json(_logger: object, _method: str, line: Any) -> str:
    """A line of JSON without the characters that JSON may have and that some programs take for the end of a line."""
    if line.isprintable():
        return str(line)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _escaped(text: str) -> str:
    """The text with its unprintable characters as Python writes them; other characters stay."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _traceback(exc_info: structlog.typing.ExcInfo) -> str:
    """A traceback; of one that is too long, the middle is left out. The message of an error may have any length."""
    whole = io.StringIO()
    structlog.dev.plain_traceback(whole, exc_info)
    text = whole.getvalue().strip("\n")
    if len(text) <= _TRACEBACK_CHARACTERS:
        return text
    half = _TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… ({len(text):,} characters, cut)\n{text[-half:]}"


def _indented_traceback(out: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """A traceback with indented lines: the message of an error must not look like a line of the log."""
    out.write("".join(f"\n    | {_escaped(line)}" for line in _traceback(exc_info).split("\n")))


class _StandardError:
    """What is standard error when a line is written; a line that it does not take is dropped.

    A call must not fail because nobody reads the log any more, or because its disk is full.
    """

    def write(self, text: str) -> None:
        """Write a line, or drop it."""
        with contextlib.suppress(OSError, ValueError):  # a reader that is gone, a full disk; a closed file
            if sys.stderr is not None:
                sys.stderr.write(text)

    def flush(self) -> None:
        """Hand what was written to the system, or drop it."""
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.flush()


class _ToStructlog(logging.Handler):
    """Forwards the log records of libraries to the server's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        facts = {"exc_info": record.exc_info} if record.exc_info else {}
        message = " ".join(record.getMessage().split("\n"))
        structlog.get_logger(record.name).log(record.levelno, message, logger=record.name, **facts)


def _forward_library_logs() -> None:
    """Forward warnings and errors of all libraries, and Python's warnings; their messages of lower levels are dropped.

    Safe to repeat.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _ToStructlog) for handler in root.handlers):
        root.addHandler(_ToStructlog(logging.WARNING))
    for name in HTTP_LIBRARIES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        logger.propagate = True
        logger.handlers.clear()
    for name in REPEATED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.captureWarnings(capture=True)
