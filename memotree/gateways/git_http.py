"""``git clone``, ``fetch`` and ``push`` over HTTP, below ``/git/<workspace>``: git's own programs answer.

Only the three requests of git's smart protocol are served. Which repository it is comes from the workspace, never from
the path, so no path can leave the data folder. Errors are plain text, because git shows that to whoever called it.
"""

import asyncio
import os
import re
import shutil
import signal
import zlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.hooks import has_guard
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from memotree.client.errors import MemoTreeClientError
from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.callers import LocalCaller
from memotree.gateways.push_outcome import Outcome, PushReport, make_notes, outcome_of, take_notes
from memotree.identity.errors import RoleMissingError
from memotree.local.push_output import PUSH_AUTHOR, PUSH_BRANCHES, PUSH_COMMITTER, PUSH_REFUSALS
from memotree.request.observed_calls import GIT_PUSH, HTTP, ObservedCall, calling_through
from memotree.request.principal import Principal, Role, principal
from memotree.server.calls import RunningCalls, Shares, TooManyAtOnceError
from memotree.v1 import workspace_service_pb2 as pb

PATHS: Final = ("/git/{workspace}/info/refs", "/git/{workspace}/{program}")

_FETCH: Final = "git-upload-pack"
_PUSH: Final = GIT_PUSH
_MOST_BYTES: Final = {_FETCH: 64 << 20, _PUSH: 2 << 30}
"""The most bytes of a request by its program, after they are unpacked."""

_PLACES: Final = 16
"""How many requests run at once, if several ask: one alone gets half, and there is always one place for a newcomer."""

_SILENT_SECONDS: Final = 600.0
"""How long git may write nothing, and get nothing more of the request, before it is ended."""

_END_SECONDS: Final = 5.0
"""How long git may remove its lock files before it is killed."""

_FAILURES: Final = {
    400: Outcome("INVALID_ARGUMENT", "PUSH_UNREADABLE"),
    413: Outcome("RESOURCE_EXHAUSTED", "PUSH_TOO_LARGE"),
    500: Outcome("UNKNOWN", "GIT_FAILED"),  # git does not say whether the push or the repository is to blame
    504: Outcome("DEADLINE_EXCEEDED", "GIT_SILENT"),
}
"""How a push has ended that is answered with an HTTP status in place of git's answer."""

_NOTHING: Final = b"0000"
"""The body of a push of nothing: git asks with it, before a long push, whether it may push."""

_CHUNK: Final = 1 << 16
_GZIP: Final = 16 + zlib.MAX_WBITS
_PROTOCOL: Final = re.compile(r"[a-z0-9=:.\-]{1,100}")
_GET_WORKSPACE: Final[MethodDescriptor] = pb.DESCRIPTOR.services_by_name["WorkspaceService"].methods_by_name[
    "GetWorkspace"
]


class GitOverHttp:
    """The ASGI application of `PATHS`.

    Args:
        data_folder: The folder of the server, in which the repositories are.
        caller: Finds workspaces.
        calls: Counts the requests, so that a stop waits for them.
        committer: The committer's addresses of the service's own commits, between spaces; principals may not push
            commits with these.
    """

    def __init__(self, data_folder: Path, caller: LocalCaller, calls: RunningCalls, committer: str) -> None:
        self._committer = committer
        self._data_folder = data_folder
        self._caller = caller
        self._calls = calls
        self._places = Shares(_PLACES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        refusal = _refusal(request)
        if refusal is None and self._calls.closed:
            refusal = _text(503, "The server is stopping; try again when it runs again.")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        with self._calls.running(), ExitStack() as place:
            await self._answer(request, send, place)

    async def _answer(self, request: Request, send: Send, place: ExitStack) -> None:
        """Answer a request; it holds a place from when it is known that its principal sees the workspace."""
        git = shutil.which("git")
        if git is None:
            message = "There is no git program on the server's PATH; install git where the server runs."
            await _text(501, message)(request.scope, request.receive, send)
            return
        try:
            with calling_through(HTTP):
                found = await self._caller.call(
                    _GET_WORKSPACE, pb.GetWorkspaceRequest(workspace=request.path_params["workspace"])
                )
        except MemoTreeClientError as error:
            await _text(HTTP_STATUSES.get(error.code, 500), str(error))(request.scope, request.receive, send)
            return
        assert isinstance(found, pb.GetWorkspaceResponse)  # noqa: S101 - the response of this RPC
        workspace, who = found.workspace, principal().calling()  # git is no tool
        try:
            place.enter_context(self._places.holding(who.name))
        except TooManyAtOnceError:
            message = f"{who.name} has as many requests of git at once as are left for others; try again in a moment."
            await _text(429, message)(request.scope, request.receive, send)
            return
        writes = _PUSH in {request.path_params.get("program"), request.query_params.get("service")}
        repository, branches = self._data_folder / workspace.repository, _writable(who, workspace.id)
        push = ObservedCall(GIT_PUSH, interface=HTTP)
        push.request = pb.GetWorkspaceRequest(workspace=workspace.id)
        refusal = await _push_refusal(who, workspace.id, repository, branches) if writes else None
        if refusal is not None:
            reason, message = refusal
            self._caller.observers.ended(push, "PERMISSION_DENIED", reason)
            await _text(403, message)(request.scope, request.receive, send)
            return
        limits = {
            PUSH_BRANCHES: branches,
            PUSH_COMMITTER: self._committer if who.is_known else "",
            PUSH_AUTHOR: "" if who.administers(workspace.id) else who.owner,
        }
        exchange = _Exchange(request, send)
        if not writes or request.method == "GET":
            await exchange.run(git, repository, limits)
            await exchange.finish()
            return
        notes = await in_store_thread(make_notes)
        try:
            await exchange.run(git, repository, limits | {PUSH_REFUSALS: notes})
            ended = exchange.outcome(await in_store_thread(take_notes, notes))
        except BaseException:
            take_notes(notes)
            self._caller.observers.ended(push, "CANCELLED")
            raise
        if ended is not None:
            self._caller.observers.ended(push, ended.code, ended.reason)
        await exchange.finish()


class _Exchange:
    """One request, answered by one process of git."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self._advertises = request.method == "GET"
        self._program = request.query_params["service"] if self._advertises else request.path_params["program"]
        self._report = PushReport()
        self._received = 0  # bytes of the body
        self._is_left = False  # by its client, before all of it had arrived
        self._refused: Response | None = None
        self._started = False
        self._patience = asyncio.timeout(None)

    def outcome(self, noted: Sequence[Outcome]) -> Outcome | None:
        """How a push has ended; ``None`` if it only asked whether it may send a long one.

        Args:
            noted: Why hooks have refused something.
        """
        if not self._report.moved:
            if self._is_left:
                return Outcome("CANCELLED")
            if self._refused is not None:
                return _FAILURES[self._refused.status_code]
            if self._received == len(_NOTHING):
                return None
        return outcome_of(self._report, noted)

    async def run(self, git: str, repository: Path, limits: Mapping[str, str]) -> None:
        """Let git answer, with variables that tell the hook before a push what it may bring; `finish` sends the end."""
        protocol = self._request.headers.get("git-protocol", "")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= limits
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
        environment["GIT_NO_REPLACE_OBJECTS"] = "1"  # what a push replaces must not hide what it does
        if self._program == _FETCH and _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        process = await asyncio.create_subprocess_exec(
            git,
            *("-c", "receive.hideRefs=refs/memotree"),
            *("-c", "uploadpack.hideRefs=refs/memotree/keep"),  # they are named by the sessions of everybody
            *(self._program.removeprefix("git-"), "--stateless-rpc"),
            *(("--advertise-refs",) if self._advertises else ()),
            str(repository),
            stdin=DEVNULL if self._advertises else PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,  # so that its own children end with it
        )
        feeding = asyncio.create_task(self._feed(process))
        try:
            async with self._patience:
                await self._pass_on(process)
        except TimeoutError:
            self._refused = _text(504, f"git wrote nothing for {_SILENT_SECONDS:g} seconds and was ended.")
        finally:
            feeding.cancel()
            await _end(process)
        if not self._started and self._refused is None and process.returncode != 0:
            self._refused = _text(500, "git could not answer; run `memotree verify` on the workspace.")

    async def finish(self) -> None:
        """Send the end of the answer, or the refusal."""
        if self._refused is None:
            if not self._started:  # git asks first, with a push that is empty, whether it may send a long one
                await self._send(self._head())
            await self._send({"type": "http.response.body", "body": b""})
        elif not self._started:
            await self._refused(self._request.scope, self._request.receive, self._send)

    async def _feed(self, process: Process) -> None:
        """Pass the body to git; end git if the client is gone or sends what is refused."""
        try:
            if process.stdin is not None:
                with suppress(ConnectionError):  # git has its answer already and reads no more
                    async for data in unpacked(self._request, _MOST_BYTES[self._program]):
                        self._received += len(data)
                        process.stdin.write(data)
                        await process.stdin.drain()
                        if self._patience.when() is not None and not self._patience.expired():
                            self._expect_output()  # it cannot write while a long push arrives
                    process.stdin.close()
            if self._program == _PUSH and not self._advertises:
                return  # all of it has arrived: git finishes it, whether or not its client waits
            message: Message = {}
            while message.get("type") != "http.disconnect":
                message = await self._request.receive()
        except ClientDisconnect:
            self._is_left = True
        except BodyRefusedError as error:
            self._refused = _text(error.status, str(error))
        _signal(process, signal.SIGTERM)

    def _expect_output(self) -> None:
        """Give git its time from now on."""
        self._patience.reschedule(asyncio.get_running_loop().time() + _SILENT_SECONDS)

    async def _pass_on(self, process: Process) -> None:
        """Pass git's output to the client as it comes."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while True:
            self._expect_output()
            data = await process.stdout.read(_CHUNK)
            self._patience.reschedule(None)  # whether the client reads is watched by its connection
            if not data:
                return
            if self._program == _PUSH and not self._advertises:
                self._report.read(data)
            if not self._started:
                self._started = True
                await self._send(self._head())
                data = self._announced() + data
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _head(self) -> Message:
        kind = f"application/x-{self._program}-{'advertisement' if self._advertises else 'result'}"
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-cache, max-age=0, must-revalidate")]
        return {"type": "http.response.start", "status": 200, "headers": headers}

    def _announced(self) -> bytes:
        """The line before the refs, which version 2 of the protocol does not have."""
        newest = "version=2" in self._request.headers.get("git-protocol", "").split(":")
        if not self._advertises or (newest and self._program == _FETCH):
            return b""
        line = f"# service={self._program}\n".encode()
        return b"%04x%s0000" % (len(line) + 4, line)


async def _push_refusal(who: Principal, workspace_id: str, repository: Path, branches: str) -> tuple[str, str] | None:
    """Why a principal may push nothing: the error code and the message; ``None`` if it may push something."""
    if who.role(workspace_id) < Role.WRITER:
        return RoleMissingError.reason, f"{who.name} may not push to this workspace: it needs the role WRITER there."
    if branches and not await in_store_thread(has_guard, repository):
        message = "Another pre-receive hook is in the repository, so your role on some branches cannot be kept."
        return "PUSH_NOT_GUARDED", message
    return None


def _writable(who: Principal, workspace_id: str) -> str:
    """The value of `PUSH_BRANCHES` for a principal: the patterns of the branches that it may write."""
    if who.role_on_all(workspace_id) >= Role.WRITER:
        return ""
    return " ".join(grant.branches for grant in who.within(workspace_id) if grant.role >= Role.WRITER)


class BodyRefusedError(Exception):
    """The body of a request is too large or is not what its headers say."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def unpacked(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the body, unpacked in parts of at most `_CHUNK` bytes.

    Args:
        request: May have the Content-Encoding gzip.
        most: The most bytes of the whole after it is unpacked.

    Raises:
        BodyRefusedError: It has more, or is not gzip though it says so.
    """
    packed = request.headers.get("content-encoding", "") in {"gzip", "x-gzip"}
    unpacking = zlib.decompressobj(_GZIP)
    total = 0
    async for data in request.stream():
        left = data
        while left:
            try:
                part = unpacking.decompress(left, _CHUNK) if packed else left
            except zlib.error:
                raise BodyRefusedError(400, "The body is not gzip, as its Content-Encoding says.") from None
            left = unpacking.unconsumed_tail if packed else b""
            total += len(part)
            if total > most:
                raise BodyRefusedError(413, f"The request has more than {most} bytes; push in smaller steps.")
            if part:
                yield part
    if packed and not unpacking.eof:
        raise BodyRefusedError(400, "The gzip body ends too early.")


def _refusal(request: Request) -> Response | None:
    """The answer to a request that is not one of git's three; ``None`` if it is one."""
    if request.method == "GET" and "program" not in request.path_params:
        if request.query_params.get("service") in _MOST_BYTES:
            return None
        return _text(403, "Only the smart protocol of git is served; use git 1.6.6 or newer.")
    program = request.path_params.get("program")
    if request.method != "POST" or program not in _MOST_BYTES:
        return _text(404, f"There is nothing for git at {request.url.path}.")
    if request.headers.get("content-type") != f"application/x-{program}-request":
        return _text(415, "The Content-Type is not that of git.")
    if request.headers.get("content-encoding", "identity") not in {"identity", "gzip", "x-gzip"}:
        return _text(415, "The Content-Encoding may be gzip only.")
    return None


def _text(status: int, message: str) -> Response:
    return PlainTextResponse(message + "\n", status_code=status)


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, number)


async def _end(process: Process) -> None:
    """Wait for git if it has written all, and end it otherwise; it removes its lock files when it is asked to end."""
    if process.stdout is None or not process.stdout.at_eof():
        _signal(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()
