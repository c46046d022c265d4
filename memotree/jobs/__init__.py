"""Long work that survives a restart: queued, run, told about, cancelled and resumed.

Others submit to the ``JobRunner`` and write work functions over a ``JobContext``; ``JobOperations`` are the calls of
JobService.
"""

from memotree_storage.postgres.jobs import Job

from memotree.jobs.job_context import JobContext, JobInputMissingError
from memotree.jobs.operations import JobOperations
from memotree.jobs.outcomes import JobStoppedError
from memotree.jobs.runner import JobNotFoundError, JobRunner, Work

__all__ = [
    "Job",
    "JobContext",
    "JobInputMissingError",
    "JobNotFoundError",
    "JobOperations",
    "JobRunner",
    "JobStoppedError",
    "Work",
]
