"""Configures the server's log: one event per line, to standard error."""

import logging
import sys

import structlog

from memotree.settings import LogFormat


def configure_logging(level: str, form: LogFormat) -> None:
    """Send the log of this process to standard error.

    Args:
        level: The lowest level that is logged, e.g. ``"info"``.
        form: ``console`` for people, ``json`` for programs, ``auto`` for ``console`` on a terminal and else ``json``.
    """
    target = sys.stderr
    for_people = form == "console" or (form == "auto" and target.isatty())
    shape: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)]
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
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,  # so that a test or an embedding program can configure it again
    )
