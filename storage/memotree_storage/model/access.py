"""What somebody may see, as values that need no database."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

ALL_WORKSPACES: Final = "*"
"""In place of a workspace's id: the role holds in every workspace, and for the server."""


@dataclass(frozen=True, slots=True)
class JobSight:
    """Which jobs somebody sees: their own ones, and all of some workspaces.

    Attributes:
        principal: Whose jobs are seen; ``None`` for those of everybody, in all workspaces.
        workspace_ids: The workspaces in which all jobs are seen.
        own_in: The workspaces in which own jobs are seen; ``None`` for all.
    """

    principal: str | None = None
    workspace_ids: Collection[str] = ()
    own_in: Collection[str] | None = None

    def sees(self, owner: str, workspace_id: str) -> bool:
        """Whether a job is seen, given who owns it and its workspace."""
        if self.principal is None or workspace_id in self.workspace_ids:
            return True
        return self.principal == owner and (self.own_in is None or workspace_id in self.own_in)


ALL_JOBS: Final = JobSight()
