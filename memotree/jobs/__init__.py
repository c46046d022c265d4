"""Long work that survives a restart: queued, run, told about, cancelled and resumed.

Others submit to the ``Runner`` and write work functions over a ``RunningJob``; ``JobOperations`` are the calls of
JobService.
"""

from memotree_storage.postgres.jobs import Job

from memotree.jobs.operations import JobOperations
from memotree.jobs.outcome import JobStoppedError
from memotree.jobs.runner import JobNotFoundError, Runner, Work
from memotree.jobs.running import JobInputMissingError, RunningJob

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
