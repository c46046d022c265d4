"""What a workspace is: its id, name and purpose, the refs that MemoTree keeps in it, and who signs for the service."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import NotFoundError
from memotree_storage.ports import Signature

WORKSPACE_REF: Final = "refs/memotree/workspace"
KEEP_PREFIX: Final = "refs/memotree/keep/"
"""The refs that hold the base commits of open sessions against ``git gc``."""

DEFAULT_BRANCH: Final = "main"
SERVICE_NAME: Final = "MemoTree"
SERVICE_EMAIL: Final = "memotree@localhost"


class WorkspaceNotFoundError(NotFoundError):
    """No workspace has that name or id."""

    reason = "WORKSPACE_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no workspace {name!r}. List them with ListWorkspaces, or create it.", "workspace", name
        )


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """What a workspace is called, what it is for, and when it was made."""

    workspace_id: str
    name: str
    description: str
    created_at: datetime

    @property
    def other_name(self) -> str:
        """What it is registered as when an older workspace has its name."""
        return f"{self.name}-{self.workspace_id}"


def service_signature(when: datetime | None = None) -> Signature:
    """MemoTree itself as author or committer; now when no time is given."""
    return Signature(SERVICE_NAME, SERVICE_EMAIL, (when or datetime.now(UTC)).replace(microsecond=0))
