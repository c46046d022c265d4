"""Long work that survives a restart: queued, run, told about, cancelled and resumed.

Others submit to the ``Runner`` and write work functions over a ``RunningJob``; ``JobOperations`` are the calls of
JobService.
"""

from memotree_storage.postgres.jobs import Job

from memotree.jobs.job_context import JobInputMissingError, RunningJob
from memotree.jobs.operations import JobOperations
from memotree.jobs.outcomes import JobStoppedError
from memotree.jobs.runner import JobNotFoundError, Runner, Work

__all__ = [
    "Job",
    "JobInputMissingError",
    "JobNotFoundError",
    "JobOperations",
    "JobStoppedError",
    "Runner",
    "RunningJob",
    "Work",
]
