"""What every test shares: how many examples hypothesis runs, and a log that a test cannot change for the others."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Small by default, so that the whole suite stays quick; `pytest --hypothesis-profile=ci` looks deeper. Deadlines per
# example are off, because they would measure the machine and not the code.
settings.register_profile(
    "default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "ci", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Undo what a command that ran in this process did to the log of the whole process."""
    before, handlers = structlog.get_config(), list(logging.getLogger().handlers)
    yield
    structlog.configure(**before)
    ours = [handler for handler in logging.getLogger().handlers if handler not in handlers]
    for handler in ours:
        logging.getLogger().removeHandler(handler)
    if ours:
        logging.captureWarnings(capture=False)
