"""Decides the outcome of a job whose work raised an error."""

from typing import Final

import grpc
import structlog
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres.jobs import FAILED, STOPPED, Job, Outcome

from memotree.error_mapping import HIDDEN, INTERNAL_REASON, classify
from memotree.jobs.job_context import storable

_WAITING_MAY_HELP: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_FAULT: Final = (
    "MemoTree had an internal error; the server's log has the details under the id of this job. "
    "Resume the job to try again."
)
_log = structlog.get_logger(__name__)


class JobStoppedError(UnavailableError):
    """The job cannot continue now and can be resumed later; raised by its work.

    Any other error class has the same effect if it has a class attribute ``stops_job = True``.
    """

    reason = "JOB_STOPPED"


def with_faults(message: str, error: BaseException) -> str:
    """Returns the message of an error with the faults that it lists, as a text that PostgreSQL can store."""
    faults = [f"{fault.field}: {fault.description}" for fault in getattr(error, "violations", ())]
    missing = [fault.rstrip(".") for fault in faults if fault.partition(": ")[2] not in message]
    return storable(f"{message.rstrip('.')}: {'; '.join(missing)}." if missing else message)


def outcome_of(error: BaseException, job: Job) -> Outcome:
    """Returns the outcome of a job whose work raised this error; details of unexpected errors go only to the log."""
    answer = classify(error)
    if answer is HIDDEN:
        _log.error("a job failed with an unexpected error", job=job.id, kind=job.kind, exc_info=error)
        return Outcome(FAILED, INTERNAL_REASON, _FAULT)
    waits = answer.code in _WAITING_MAY_HELP or (isinstance(error, MemoTreeError) and error.stops_job)
    return Outcome(STOPPED if waits else FAILED, answer.reason, with_faults(answer.message, error))
