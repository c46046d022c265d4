"""What becomes of a job whose work ended with an error."""

from typing import Final

import grpc
import structlog
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres.jobs import FAILED, STOPPED, Job, Outcome

from memotree.errors import HIDDEN, INTERNAL_REASON, classify
from memotree.jobs.job_context import storable

_WAITING_MAY_HELP: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_FAULT: Final = (
    "MemoTree met a fault of its own; the log of the server has it under the id of this job. "
    "Resume the job to try again."
)
_log = structlog.get_logger(__name__)


class JobStoppedError(UnavailableError):
    """Raised by the work of a job that cannot go on now and can be resumed later.

    An error class of another family does the same with a class attribute ``stops_job = True``.
    """

    reason = "JOB_STOPPED"


def outcome_of(error: BaseException, job: Job) -> Outcome:
    """How a job ends that met this error; what nobody foresaw goes to the log and to nobody else."""
    answer = classify(error)
    if answer is HIDDEN:
        _log.error("a job met a fault", job=job.id, kind=job.kind, exc_info=error)
        return Outcome(FAILED, INTERNAL_REASON, _FAULT)
    waits = answer.code in _WAITING_MAY_HELP or (isinstance(error, MemoTreeError) and error.stops_job)
    return Outcome(STOPPED if waits else FAILED, answer.reason, storable(answer.message))
