"""What every test shares: the seed of the run, the place of its files, and a log that each finds unchanged."""

import gc
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import certifi
import pytest
import structlog
from hypothesis import HealthCheck, settings
from memotree_storage.qdrant.package import leave_models_unbuilt

pytest_plugins = ["campaigns", "databases", "reporting"]

# Deadlines per example are off, because they would measure the machine and not the code.
settings.register_profile(
    "default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder of Linux for files in memory
_ROOM: Final = 6 * 1024**3


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the order of tests from the seed of the run, and keep their files in memory where there is room.

    The tests sync thousands of commits that nothing needs after the run.
    """
    gc.disable()
    leave_models_unbuilt()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(["event"])],
        logger_factory=structlog.stdlib.LoggerFactory(),  # pytest shows it; a stream may be closed before a thread ends
    )
    if getattr(config.option, "randomly_seed", "") == "default":
        config.option.randomly_seed = config.pluginmanager.get_plugin("campaigns").SEED
    if config.option.markexpr == "not campaign" and "SHAKE_SEED" not in os.environ:
        _stay_on_one_processor(os.environ.get("PYTEST_XDIST_WORKER", ""))
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _stay_on_one_processor(worker: str) -> None:
    """Keep each of the first workers, with the servers that it starts, on a processor of its own; the others may move.

    A worker and its PostgreSQL wake each other with each statement. To wake another processor costs more than that
    statement does: together they take a sixth less time of the processor on the same one. Campaigns and runs under
    delays look for races, and have all processors.
    """
    if worker and hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        number = int(worker.removeprefix("gw"))
        if number < len(processors):
            os.sched_setaffinity(0, processors[number : number + 1])


def pytest_collection_finish() -> None:
    """Collect garbage from here on, and leave out the half million objects of modules and tests, which stay."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority instead of the hundred of the package, which each client of HTTP would read again."""
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    file.write_text(first + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


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
