"""Pushes each workspace to a Git remote of its own after its commits, in the background.

No commit waits for it, and a remote that does not answer is tried again, less and less often. What was pushed is noted
in the repository, so a start pushes only what has changed since. All refs go there, so a clone of the remote is a whole
copy; only those that hold the base commits of sessions stay. The remote gets exactly the refs that are here: a branch
that was deleted or moved back, and the new history after an erasure, too.
"""

import asyncio
import hashlib
import os
import random
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog

from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.git.disk import disk_errors, make_folders
from memotree_storage.git.locks import PRIVATE_FOLDER
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.workspace import KEEP_PREFIX, WorkspaceNotFoundError

_WORKERS: Final = 2
_LOOK_AGAIN: Final = 60.0
"""Seconds between two looks for refs that moved without a notice, by a push for example."""

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 600.0
_PATIENCE: Final = 3600.0
_SHOWN: Final = 300
_NOTE: Final = f"{PRIVATE_FOLDER}/pushed"
_REFSPECS: Final = (
    *("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
    *("+refs/memotree/*:refs/memotree/*", f"^{KEEP_PREFIX}*"),
)
_PROTOCOLS: Final = "file:git:http:https:ssh"
"""Not ``ext``, with which a URL is a command."""

_PASSED_ON: Final = frozenset({"GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND"})
_log = structlog.get_logger(__name__)


class RemotePushError(UnavailableError):
    """The remote did not take a push."""

    reason = "REMOTE_PUSH_FAILED"


@dataclass(frozen=True, slots=True)
class BehindCopy:
    """A remote that lacks something of a workspace.

    Attributes:
        workspace_id: The workspace.
        since: Since when.
        why: Why the last push failed; "" if it has not been tried yet.
    """

    workspace_id: str
    since: datetime
    why: str


class RemoteCopies:
    """The copies of all workspaces on Git remotes; belongs to one event loop.

    Args:
        repositories: The repositories.
        template: The URL of a remote, with ``{id}`` or ``{name}`` for the id or the name of the workspace.
        first_pause: The seconds before the first repetition of a failed push; the pause doubles with each failure.
    """

    def __init__(self, repositories: Repositories, template: str, *, first_pause: float = _FIRST_PAUSE) -> None:
        self.template = template
        self._repositories = repositories
        self._first_pause = first_pause
        self._due: dict[str, float] = {}
        self._behind: dict[str, BehindCopy] = {}
        self._failures: dict[str, int] = {}
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to push; first what has changed since the last push."""
        self._tasks = [asyncio.create_task(self._work(), name=f"memotree-push-{number}") for number in range(_WORKERS)]
        self._tasks.append(asyncio.create_task(self._look(), name="memotree-push-look"))

    async def stop(self) -> None:
        """End a push that is running; the next start does it again."""
        tasks, self._tasks = self._tasks, []
        await cancel_and_wait(tasks)

    def notice(self, workspace_id: str) -> None:
        """Note that refs of a workspace may have moved. After a failure, the pause goes on."""
        self._behind.setdefault(workspace_id, BehindCopy(workspace_id, datetime.now(UTC), ""))
        self._due.setdefault(workspace_id, asyncio.get_running_loop().time())
        self._wake.set()

    def behind(self) -> list[BehindCopy]:
        """The copies that lack something, by workspace."""
        return [self._behind[each] for each in sorted(self._behind)]

    async def _look(self) -> None:
        """Find the workspaces whose refs are others than those that were pushed."""
        while True:
            for workspace_id in await in_store_thread(self._repositories.ids):
                if workspace_id in self._due or workspace_id in self._running:
                    continue
                with suppress(MemoTreeError):  # a repository that cannot be read is told elsewhere
                    path, url, digest = await in_store_thread(self._state, workspace_id)
                    if url and digest != await in_store_thread(_noted, path):
                        self.notice(workspace_id)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _work(self) -> None:
        while True:
            workspace_id = self._next()
            if workspace_id is None:
                self._wake.clear()
                await self._pause()
                continue
            self._running.add(workspace_id)
            del self._due[workspace_id]
            try:
                await self._copy(workspace_id)
            except MemoTreeError as error:
                self._failed(workspace_id, error.message)
            except Exception as error:  # noqa: BLE001 - one workspace must not stop the others
                _log.exception("a push to a remote failed", workspace=workspace_id)
                self._failed(workspace_id, f"{type(error).__name__}; see the log of the server.")
            finally:
                self._running.discard(workspace_id)

    def _next(self) -> str | None:
        now = asyncio.get_running_loop().time()
        due = [each for each, when in self._due.items() if when <= now and each not in self._running]
        return min(due, key=self._due.__getitem__, default=None)

    async def _pause(self) -> None:
        """Wait until something is due, or noticed."""
        waiting = [when for each, when in self._due.items() if each not in self._running]
        seconds = min(waiting, default=float("inf")) - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else max(seconds, 0.0)):
                await self._wake.wait()

    async def _copy(self, workspace_id: str) -> None:
        try:
            path, url, digest = await in_store_thread(self._state, workspace_id)
        except WorkspaceNotFoundError:
            self._forget(workspace_id)  # it was deleted; its copy stays
            return
        if digest != await in_store_thread(_noted, path):
            await _push(path, url)
            await in_store_thread(_note, path, digest)
            _log.debug("pushed to a remote", workspace=workspace_id)
        self._forget(workspace_id)

    def _forget(self, workspace_id: str) -> None:
        self._failures.pop(workspace_id, None)
        if workspace_id not in self._due:  # else refs have moved meanwhile
            self._behind.pop(workspace_id, None)

    def _failed(self, workspace_id: str, why: str) -> None:
        count = self._failures[workspace_id] = self._failures.get(workspace_id, 0) + 1
        known = self._behind.get(workspace_id)
        since = datetime.now(UTC) if known is None else known.since
        self._behind[workspace_id] = BehindCopy(workspace_id, since, why)
        pause = min(self._first_pause * 2.0 ** min(count - 1, 16), _LONGEST_PAUSE) * random.uniform(0.8, 1.2)  # noqa: S311 - so that not all come at once
        self._due[workspace_id] = asyncio.get_running_loop().time() + pause
        if count == 1:
            _log.warning("a push to a remote failed; it is tried again", workspace=workspace_id, why=why)
        self._wake.set()

    def _state(self, workspace_id: str) -> tuple[Path, str, str]:
        """The repository of a workspace, the URL of its copy, and a digest of what the copy should have."""
        repository = self._repositories.get(workspace_id)
        refs = repository.refs()
        url = self.template.replace("{id}", workspace_id)
        if "{name}" in url:
            url = url.replace("{name}", quote(self._repositories.describe(workspace_id).name, safe=""))
        return repository.path, url, _digest(url, refs)


def _digest(url: str, refs: Mapping[str, str]) -> str:
    lines = sorted(f"{target} {name}\n" for name, target in refs.items() if not name.startswith(KEEP_PREFIX))
    return hashlib.sha256("".join([f"{url}\n", *lines]).encode("utf-8", "surrogateescape")).hexdigest()


def _noted(repository: Path) -> str:
    """The digest of what was pushed last; "" if nothing was."""
    with suppress(FileNotFoundError), disk_errors("read what was pushed"):
        return (repository / _NOTE).read_text(encoding="ascii") if (repository / _NOTE).exists() else ""
    return ""


def _note(repository: Path, digest: str) -> None:
    """Note what was pushed. If that is lost, the push is repeated and finds nothing to do."""
    note = repository / _NOTE
    with disk_errors("note what was pushed"):
        make_folders(note.parent, repository)
        fresh = note.with_name(f"{note.name}.new")
        fresh.write_text(digest, encoding="ascii")
        fresh.rename(note)


async def _push(repository: Path, url: str) -> None:
    """Give the remote exactly the refs of a repository.

    Raises:
        RemotePushError: The remote refused or did not answer, or there is no git program.
    """
    program = shutil.which("git")
    if program is None:
        raise RemotePushError("There is no git program on the PATH, and a push needs it. Install git.")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _PROTOCOLS, "LC_ALL": "C"}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")  # nobody is there to answer it
    process = await asyncio.create_subprocess_exec(
        *(program, "--git-dir", str(repository), "push", "--quiet", "--prune", "--no-verify", "--", url, *_REFSPECS),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=environment,
        start_new_session=True,  # so that what it starts ends with it
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            _, told = await process.communicate()
    except TimeoutError:
        raise RemotePushError(f"The remote took over {_PATIENCE:g} seconds.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise RemotePushError(_why(told.decode(errors="replace")))


def _why(told: str) -> str:
    """The line of git's answer that says what is wrong."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "! [", "remote: error"))]
    return (telling or lines or ["git failed without a word."])[0][:_SHOWN]
