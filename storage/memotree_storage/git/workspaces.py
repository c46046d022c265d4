"""The workspaces on disk: one bare repository each, named by its id; name and description are versioned inside it.

The description of a workspace is the file ``workspace.json`` on the ref ``refs/memotree/workspace``. So a rename is a
commit like any other, and a copied repository still knows which workspace it is.
"""

import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from memotree_storage.errors import (
    AbortedError,
    CorruptError,
    FailedPreconditionError,
    InvalidInputError,
    MemoTreeError,
)
from memotree_storage.git.disk import disk_errors, sync_folder, sync_folders_above
from memotree_storage.git.generations import recover_generations
from memotree_storage.git.hooks import install_check, install_guard, install_hook
from memotree_storage.git.recovery import LEFTOVER_AGE
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.signing import Signer
from memotree_storage.model.node import is_id
from memotree_storage.model.readme import FORMAT_VERSION, README_PATH, describe_layout, read_format_version
from memotree_storage.model.trailers import Request, with_trailers
from memotree_storage.model.validation import check_name, check_text
from memotree_storage.model.workspace import (
    DEFAULT_BRANCH,
    WORKSPACE_REF,
    WorkspaceInfo,
    WorkspaceNotFoundError,
    service_signature,
)
from memotree_storage.ports import CommitDraft

_FILE: Final = "workspace.json"
_SUFFIX: Final = ".git"
_UNFINISHED: Final = ".unfinished"
_MOST_BYTES: Final = 1 << 16
_log = structlog.get_logger(__name__)


class WorkspaceDescriptionError(CorruptError):
    """The description of a workspace is missing or damaged in its repository."""

    reason = "WORKSPACE_DESCRIPTION_DAMAGED"


class WorkspaceTooNewError(FailedPreconditionError):
    """A later version of MemoTree wrote the repository of this workspace."""

    reason = "WORKSPACE_TOO_NEW"


class WorkspaceRacedError(AbortedError):
    """Another writer changed the description of the workspace at the same time."""

    reason = "WORKSPACE_CHANGED"


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The descriptions of all workspaces: those that can be read, oldest first, and why others cannot, by id."""

    readable: list[WorkspaceInfo]
    faults: Mapping[str, str]


class Repositories:
    """The repositories below a folder, each opened once; thread-safe.

    Args:
        folder: Holds the repositories.
        trash: Takes the repositories of deleted workspaces.
        after_push: A command that git runs after each push (`memotree_storage.git.hooks`); none if it is empty.
        before_push: A command that git asks before each push, likewise.
        before_branch: A command that git asks before a branch of a strict workspace moves, likewise.
        signer: Signs all commits and tags; nobody if it is ``None``.
    """

    def __init__(
        self,
        folder: Path,
        trash: Path,
        after_push: Sequence[str] = (),
        before_push: Sequence[str] = (),
        before_branch: Sequence[str] = (),
        signer: Signer | None = None,
    ) -> None:
        self._folder = folder
        self._trash = trash
        self._after_push = after_push
        self._before_push = before_push
        self._before_branch = before_branch
        self.signer = signer
        self._open: dict[str, GitRepository] = {}
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folders_above(folder)

    def path(self, workspace_id: str) -> Path:
        """Return the path of a workspace's repository."""
        return self._folder / f"{workspace_id}{_SUFFIX}"

    def ids(self) -> list[str]:
        """Return the ids of all workspaces that have a repository."""
        names = (path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}") if path.is_dir())
        return sorted(name for name in names if is_id(name))

    def get(self, workspace_id: str) -> GitRepository:
        """Return the open repository of a workspace.

        Raises:
            WorkspaceNotFoundError: There is no workspace with this id.
        """
        with self._lock:
            repository = self._open.get(workspace_id)
            if repository is None:
                path = self.path(workspace_id)
                if not is_id(workspace_id) or not path.is_dir():
                    raise WorkspaceNotFoundError(workspace_id)
                repository = self._open[workspace_id] = GitRepository.open(path, signer=self.signer)
                if self._after_push:
                    install_hook(path, self._after_push)
                if self._before_push:
                    install_guard(path, self._before_push)
                if self._before_branch:
                    install_check(path, self._before_branch)
            return repository

    def opened(self, workspace_id: str) -> GitRepository | None:
        """Return the repository of a workspace if it is open already; this blocks for nothing."""
        return self._open.get(workspace_id)

    def create(self, info: WorkspaceInfo, request: Request | None = None) -> None:
        """Create the repository of a new workspace: its description, and a first commit on the default branch.

        It is built next to its path and renamed when complete, so that a crash leaves a whole workspace or none. The
        request is recorded in the first commit.
        """
        draft = self._folder / f".{info.workspace_id}{_UNFINISHED}"
        try:
            with GitRepository.create(draft, description=info.name, signer=self.signer) as repository:
                self._write(repository, None, info, f"Create workspace {info.name}")
                first = CommitDraft(
                    parent=None,
                    changes={README_PATH: describe_layout()},
                    message=with_trailers(f"Create workspace {info.name}", (request or Request()).trailers()),
                    author=service_signature(info.created_at),
                    committer=service_signature(info.created_at),
                )
                written = repository.write_commit(first)
                repository.move_ref(f"refs/heads/{DEFAULT_BRANCH}", None, written.commit_id)
            with disk_errors("be created"):
                draft.rename(self.path(info.workspace_id))
                sync_folder(self._folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def replaced(self, workspace_id: str) -> None:
        """Forget the open repository of a workspace, since another generation is in its place.

        It is not closed: calls that read it may go on until they end.
        """
        with self._lock:
            self._open.pop(workspace_id, None)

    def clear_unfinished(self) -> None:
        """Remove workspaces that crashed servers left half created; recent ones may belong to another server.

        Erasures that were killed while they replaced a repository are finished or undone.
        """
        for sentence in recover_generations(self._folder):
            _log.warning("recovered", what=sentence)
        for draft in self._folder.glob(f".*{_UNFINISHED}"):
            if draft.stat().st_mtime < time.time() - LEFTOVER_AGE.total_seconds():
                shutil.rmtree(draft, ignore_errors=True)

    def describe(self, workspace_id: str) -> WorkspaceInfo:
        """Read the description of a workspace from its repository.

        Raises:
            WorkspaceDescriptionError: The description is missing or damaged.
            WorkspaceTooNewError: A later version of MemoTree wrote the repository.
        """
        repository = self.get(workspace_id)
        refs = repository.refs()
        _check_format(repository, workspace_id, refs.get(f"refs/heads/{DEFAULT_BRANCH}"))
        tip = refs.get(WORKSPACE_REF)
        data = None if tip is None else repository.read_path(tip, _FILE)
        try:
            return _read_info(workspace_id, data or b"")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, InvalidInputError) as error:
            raise WorkspaceDescriptionError(
                f"The repository {workspace_id} has no readable {_FILE} on {WORKSPACE_REF}: {_why(error)}. Restore "
                "that ref from a backup, or move the repository out of the workspaces folder."
            ) from error

    def update(self, info: WorkspaceInfo, message: str) -> None:
        """Write a new name or description; the id and the repository stay the same.

        Raises:
            WorkspaceRacedError: Another writer did so at the same time.
        """
        repository = self.get(info.workspace_id)
        self._write(repository, repository.refs().get(WORKSPACE_REF), info, message)

    def discard(self, workspace_id: str) -> Path:
        """Move the repository of a workspace into the trash folder; return its new path."""
        with self._lock:
            repository = self._open.pop(workspace_id, None)
            if repository is not None:
                repository.close()
            if not self._trash.is_dir():
                self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folders_above(self._trash)
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            target = self._trash / f"{workspace_id}-{stamp}{_SUFFIX}"
            with disk_errors("be moved to the trash"):
                self.path(workspace_id).rename(target)
                sync_folder(self._trash)
                sync_folder(self._folder)
            return target

    def descriptions(self) -> Descriptions:
        """Read the descriptions of all workspaces, and log which cannot be read."""
        found, faults = list[WorkspaceInfo](), dict[str, str]()
        for workspace_id in self.ids():
            try:
                found.append(self.describe(workspace_id))
            except MemoTreeError as error:
                faults[workspace_id] = error.message
                _log.error("the description of a workspace cannot be read", workspace=workspace_id, why=error.message)
            except Exception as error:  # noqa: BLE001 - a damaged repository may fail anywhere, and must not take the others with it
                faults[workspace_id] = f"Its description cannot be read ({type(error).__name__}); see the log."
                _log.exception("the description of a workspace cannot be read", workspace=workspace_id)
        return Descriptions(sorted(found, key=lambda info: (info.created_at, info.workspace_id)), faults)

    def nameless(self, workspace_id: str) -> WorkspaceInfo:
        """What stands for the description of a workspace that has none: its id as its name, the time of its folder."""
        made_at = datetime.fromtimestamp(self.path(workspace_id).stat().st_mtime, UTC)
        return WorkspaceInfo(workspace_id, workspace_id, "", made_at)

    def close(self) -> None:
        """Close every open repository."""
        with self._lock:
            for repository in self._open.values():
                repository.close()
            self._open.clear()

    @staticmethod
    def _write(repository: GitRepository, tip: str | None, info: WorkspaceInfo, message: str) -> None:
        fields = asdict(info) | {"created_at": info.created_at.isoformat()}
        draft = CommitDraft(
            parent=tip,
            changes={_FILE: (json.dumps(fields, ensure_ascii=False, indent=2) + "\n").encode()},
            message=message + "\n",
            author=service_signature(),
            committer=service_signature(),
        )
        if not repository.move_ref(WORKSPACE_REF, tip, repository.write_commit(draft).commit_id):
            raise WorkspaceRacedError(
                "The workspace was changed at the same time. Read it again and repeat the change."
            )


def _read_info(workspace_id: str, data: bytes) -> WorkspaceInfo:
    """The description of a workspace in a file that anybody may have pushed."""
    if len(data) > _MOST_BYTES:
        message = f"it has over {_MOST_BYTES} bytes"
        raise ValueError(message)
    fields = json.loads(data)
    name, description = fields["name"], fields["description"]
    if not isinstance(name, str) or not isinstance(description, str):
        message = "name and description must be texts"
        raise TypeError(message)
    check_name("name", name)
    if is_id(name):
        message = f"its name {name!r} reads like the id of a workspace"
        raise ValueError(message)
    check_text("description", description, multiline=True)
    created_at = datetime.fromisoformat(fields["created_at"])
    created_at = created_at.replace(tzinfo=UTC) if created_at.tzinfo is None else created_at.astimezone(UTC)
    return WorkspaceInfo(workspace_id, name, description, created_at)


def _why(error: Exception) -> str:
    """The cause in words that may follow a colon."""
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).rstrip(".") or type(error).__name__


def _check_format(repository: GitRepository, workspace_id: str, head: str | None) -> None:
    """Refuse a repository whose README names a format version that this version of MemoTree does not support."""
    readme = None if head is None else repository.read_path(head, README_PATH)
    version = None if readme is None else read_format_version(readme)
    if version is not None and version > FORMAT_VERSION:
        raise WorkspaceTooNewError(
            f"The repository {workspace_id} has format {version} and this version of MemoTree knows {FORMAT_VERSION}. "
            "Use the newer version."
        )
