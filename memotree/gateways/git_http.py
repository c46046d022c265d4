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
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from memotree.client.errors import MemoTreeClientError
from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.callers import LocalCaller
from memotree.server.calls import RunningCalls
from memotree.v1 import workspace_service_pb2 as pb

PATHS: Final = ("/git/{workspace}/info/refs", "/git/{workspace}/{program}")

_FETCH: Final = "git-upload-pack"
_PUSH: Final = "git-receive-pack"
_MOST_BYTES: Final = {_FETCH: 64 << 20, _PUSH: 2 << 30}
"""The most bytes of a request by its program, after they are unpacked."""

_MOST_AT_ONCE: Final = 8
_SILENT_SECONDS: Final = 600.0
"""How long git may write nothing before it is ended."""

_END_SECONDS: Final = 5.0
"""How long git may remove its lock files before it is killed."""

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
    """

    def __init__(self, data_folder: Path, caller: LocalCaller, calls: RunningCalls) -> None:
        self._data_folder = data_folder
        self._caller = caller
        self._calls = calls
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        refusal = _refusal(request) or self._full()
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._running += 1
        try:
            with self._calls.running():
                await self._answer(request, send)
        finally:
            self._running -= 1

    def _full(self) -> Response | None:
        if self._calls.closed:
            return _text(503, "The server is stopping; try again when it runs again.")
        if self._running >= _MOST_AT_ONCE:
            return _text(503, f"The server answers {_MOST_AT_ONCE} requests of git at once; try again in a moment.")
        return None

    async def _answer(self, request: Request, send: Send) -> None:
        git = shutil.which("git")
        if git is None:
            message = "There is no git program on the server's PATH; install git where the server runs."
            await _text(501, message)(request.scope, request.receive, send)
            return
        try:
            found = await self._caller.call(
                _GET_WORKSPACE, pb.GetWorkspaceRequest(workspace=request.path_params["workspace"])
            )
        except MemoTreeClientError as error:
            await _text(HTTP_STATUSES.get(error.code, 500), str(error))(request.scope, request.receive, send)
            return
        assert isinstance(found, pb.GetWorkspaceResponse)  # noqa: S101 - the response of this RPC
        await _Exchange(request, send).run(git, self._data_folder / found.workspace.repository)


class _Exchange:
    """One request, answered by one process of git."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self._advertises = request.method == "GET"
        self._program = request.query_params["service"] if self._advertises else request.path_params["program"]
        self._refused: Response | None = None
        self._started = False

    async def run(self, git: str, repository: Path) -> None:
        protocol = self._request.headers.get("git-protocol", "")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
        if self._program == _FETCH and _PROTOCOL.fullmatch(protocol):
            environment["GIT_PROTOCOL"] = protocol
        process = await asyncio.create_subprocess_exec(
            git,
            *("-c", "receive.hideRefs=refs/memotree"),
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
            async with asyncio.timeout(None) as patience:
                await self._pass_on(process, patience)
        except TimeoutError:
            self._refused = _text(504, f"git wrote nothing for {_SILENT_SECONDS:g} seconds and was ended.")
        finally:
            feeding.cancel()
            await _end(process)
        if not self._started and self._refused is None and process.returncode == 0:
            self._started = True  # git asks first, with a push that is empty, whether it may send a long one
            await self._send(self._head())
        if not self._started:
            refused = self._refused or _text(500, "git could not answer; run `memotree verify` on the workspace.")
            await refused(self._request.scope, self._request.receive, self._send)
        elif self._refused is None:
            await self._send({"type": "http.response.body", "body": b""})

    async def _feed(self, process: Process) -> None:
        """Pass the body to git; end git if the client is gone or sends what is refused."""
        try:
            if process.stdin is not None:
                with suppress(ConnectionError):  # git has its answer already and reads no more
                    async for data in unpacked(self._request, _MOST_BYTES[self._program]):
                        process.stdin.write(data)
                        await process.stdin.drain()
                    process.stdin.close()
            if self._program == _PUSH and not self._advertises:
                return  # all of it has arrived: git finishes it, whether or not its client waits
            message: Message = {}
            while message.get("type") != "http.disconnect":
                message = await self._request.receive()
        except ClientDisconnect:
            pass
        except BodyRefusedError as error:
            self._refused = _text(error.status, str(error))
        _signal(process, signal.SIGTERM)

    async def _pass_on(self, process: Process, patience: asyncio.Timeout) -> None:
        """Pass git's output to the client as it comes."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while True:
            patience.reschedule(asyncio.get_running_loop().time() + _SILENT_SECONDS)
            data = await process.stdout.read(_CHUNK)
            patience.reschedule(None)  # whether the client reads is watched by its connection
            if not data:
                return
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
