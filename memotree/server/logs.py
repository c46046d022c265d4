"""Configures the server's log: one event per line, to standard error, in one format for all parts.

Libraries log through the module ``logging``; their warnings and errors are forwarded. gRPC's core, written in C, writes
lines of its own form to standard error; it is silenced unless ``GRPC_VERBOSITY`` asks for it, because each failed call
is in our log anyway.
"""

import contextlib
import logging
import os
import sys
from typing import Final, TextIO, cast

import structlog

from memotree.settings import LogFormat

HTTP_LIBRARIES: Final = ("uvicorn", "uvicorn.error", "mcp", "sse_starlette")
"""Loggers that may have handlers of their own."""

REPEATED: Final = ("psycopg.pool",)
"""Loggers that repeat every attempt of an outage; the store logs its beginning and its end."""

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
        [structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=structlog.dev.plain_traceback)]
        if for_people
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
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
