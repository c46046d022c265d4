"""A workspace's id, name and description, the refs that MemoTree keeps in it, and the service's signature."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import NotFoundError
from memotree_storage.ports import Signature

WORKSPACE_REF: Final = "refs/memotree/workspace"
KEEP_PREFIX: Final = "refs/memotree/keep/"
"""Refs that protect commits of open sessions from ``git gc``: the id of the session follows for its base commit, and
the id, a dot and the commit for a commit that it brings."""

DEFAULT_BRANCH: Final = "main"
SERVICE_NAME: Final = "MemoTree"
SERVICE_EMAIL: Final = "memotree@localhost"


class WorkspaceNotFoundError(NotFoundError):
    """No workspace has this name or id."""

    reason = "WORKSPACE_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no workspace {name!r}. List them with ListWorkspaces, or create it.", "workspace", name
        )


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """A workspace's name, description and time of creation."""

    workspace_id: str
    name: str
    description: str
    created_at: datetime

    @property
    def other_name(self) -> str:
        """The name under which it is registered if an older workspace already has its name."""
        return f"{self.name}-{self.workspace_id}"


def service_signature(when: datetime | None = None) -> Signature:
    """Return MemoTree itself as author or committer, at the given time or now."""
    return Signature(SERVICE_NAME, SERVICE_EMAIL, (when or datetime.now(UTC)).replace(microsecond=0))
