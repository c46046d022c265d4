"""Jobs: long work that survives a restart, and can be watched, cancelled and resumed.

Other packages submit jobs to the ``JobRunner``, and write work functions that get a ``JobContext``. ``JobOperations``
has the calls of JobService.
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
