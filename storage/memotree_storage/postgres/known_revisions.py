"""What revisions of workspaces are known to name, so that a call that names one needs no statement to resolve it.

Only this process changes the mirror of its database (`memotree_storage.embedded.lock` and
`memotree_storage.postgres.ownership` see to it), and it does so while it holds the lock of the workspace. A push moves
a branch in Git; the mirror follows under the same lock. So what was read while nobody held the lock is right until
somebody takes it, and a call that begins after a commit was acknowledged never gets an earlier one.
"""

from typing import Final, NamedTuple

from memotree_storage.cache import BoundedCache
from memotree_storage.concurrency.locks import WatchedLocks
from memotree_storage.postgres.registry import Resolved, Workspace

_MOST: Final = 10_000
_SESSION: Final = "session"


class _Known(NamedTuple):
    workspace: Workspace
    resolved: Resolved
    since: int


class KnownRevisions:
    """The latest answers of `registry.resolve` for branches, tags and commits, by the texts of the calls.

    Sessions are not kept: they change without the lock of their workspace.

    Args:
        locks: The locks of the workspaces.
    """

    def __init__(self, locks: WatchedLocks) -> None:
        self._locks = locks
        self._known: BoundedCache[tuple[str, str], _Known] = BoundedCache(_MOST)

    @property
    def moment(self) -> int:
        """A number for now, to be read before a revision is resolved, and given to `put` with the answer."""
        return self._locks.moment

    def get(self, workspace: str, revision: str) -> tuple[Workspace, Resolved] | None:
        """Return what a call names, if it is known and still right; ``None`` otherwise."""
        known = self._known.get((workspace, revision))
        if known is None or not self._locks.is_unchanged(known.workspace.workspace_id, known.since):
            return None
        return known.workspace, known.resolved

    def put(self, workspace: str, revision: str, found: tuple[Workspace, Resolved], since: int) -> None:
        """Keep what was found for a call, unless the workspace may have changed while it was read.

        Args:
            workspace: The workspace as the call names it.
            revision: The revision as the call names it.
            found: What they name.
            since: The moment before it was read.
        """
        row, resolved = found
        if resolved.kind != _SESSION and self._locks.is_unchanged(row.workspace_id, since):
            self._known.put((workspace, revision), _Known(row, resolved, since))
