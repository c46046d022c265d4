"""A real server in a process of its own, and everything in its stores that a refused call must not change."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import grpc
import psycopg
from fuzz.requests import methods
from google.protobuf import message_factory
from google.protobuf.message import Message
from integration.wires import Refusal, has_path
from psycopg.conninfo import conninfo_to_dict

from memotree.server.announcement import read_announcement
from memotree.v1 import job_service_pb2

HUNG: Final = 60.0
"""Seconds after which a call or a job counts as hung."""

MOST_SECONDS: Final = 5.0
"""Processor seconds that one call may take of the server, with what runs beside it; they are no wall time."""

_POLL: Final = 0.002

DEFAULT_WORKSPACE: Final = "default"
"""The workspace of a tool call that names none."""

_PROGRAM: Final = """
import sys
from memotree.gateways.http_server import HttpServer
from memotree.server.starting import serve
from memotree.settings import load_settings
settings = load_settings(
    data_folder=sys.argv[1], postgres_url=sys.argv[2], port=0, http_port=0, mcp_tools="all",
    default_workspace="default", log_level="warning", log_format="json", authentication=sys.argv[3],
)
serve(settings, side_server=lambda: HttpServer)
"""

IMPOSSIBLE: Final = frozenset(
    [
        "INTERNAL",
        "UNKNOWN",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNIMPLEMENTED",
        "DEADLINE_EXCEEDED",
        "CANCELLED",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    ]
)
"""The statuses that no request may get from a server whose stores answer."""

_STATE: Final = (
    "select workspace_id, name, description, default_branch from mirror.workspace order by 1",
    "select workspace_id, commit_id, parents, author_name, message from mirror.commit order by 1, 2",
    "select * from mirror.ref order by 1, 2",
    "select line_id, entry_id, from_seq, to_seq, dead, blob, title from mirror.version order by 1, 2, 3",
    "select line_id, entry_id, from_seq, to_seq, dead, home, position from mirror.placement order by 1, 2, 3",
    "select * from mirror.fault order by 1, 2, 3",
    "select session_id, workspace_id, branch, base_commit, agent, state from work.session order by 1",
    "select session_id, entry_id, dead, derived_blob, blob, revision, messages, tools from work.staged order by 1, 2",
    "select workspace_id, request_id, digest, response from work.request order by 1, 2",
    "select view_id, workspace_id, scope, name from work.view order by 1",
    "select view_id, entry_id, level, shown from work.view_node order by 1, 2",
    "select job_id, state, reason, request, result from work.job order by 1",
)
"""What a client can see, or could later; times of use, caches and what is derived in the background are left out."""


class BrokenPromiseError(AssertionError):
    """What a call did against the promises."""


class FuzzedServer:
    """The server, with a connection to it and one to its database."""

    def __init__(self, data: Path, database_url: str, authentication: str = "none") -> None:
        self.data = data
        self.key = ""  # the API key that is sent with each call
        self._log = data.parent / "server.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMOTREE_")}
        url = f"postgresql://?{urlencode(conninfo_to_dict(database_url))}"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and the program above
                [sys.executable, "-c", _PROGRAM, str(data), url, authentication],
                stdout=output,
                stderr=output,
                env=environment,
            )
        self.address, self.url = self._ready()
        self._database = psycopg.connect(database_url, autocommit=True)
        self._channel = grpc.insecure_channel(
            self.address, options=[("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1),
                                   ("grpc.max_metadata_size", 1 << 20)]
        )  # fmt: skip
        self._read = 0

    @classmethod
    @contextmanager
    def running(cls, data: Path, database_url: str, authentication: str = "none") -> Iterator[Self]:
        """A server that answers, stopped at the end."""
        server = cls(data, database_url, authentication)
        try:
            yield server
        finally:
            server._channel.close()
            server._database.close()
            server._process.terminate()
            server._process.wait(HUNG)

    def _ready(self) -> tuple[str, str]:
        end = time.monotonic() + HUNG
        while time.monotonic() < end and self._process.poll() is None:
            found = read_announcement(self.data)
            if found is not None and found.pid == self._process.pid:
                return found.address, found.url
            time.sleep(_POLL)
        self._process.kill()
        raise BrokenPromiseError(f"the server did not start: {self._log.read_text(errors='replace')[-4000:]}")

    # --- Calls -------------------------------------------------------------------------------------------------------

    def send(self, method: str, raw: bytes) -> list[Message] | Refusal:
        """Send a request; return all answers, or the refusal."""
        found = methods()[method]
        kind = message_factory.GetMessageClass(found.output_type)
        path = f"/{found.containing_service.full_name}/{method}"
        make = self._channel.unary_stream if found.server_streaming else self._channel.unary_unary
        call = make(path, response_deserializer=kind.FromString)
        begun = self._processor_seconds()
        try:
            proof = (("authorization", f"Bearer {self.key}"),) if self.key else ()
            answer = call(raw, timeout=HUNG, metadata=proof)
            return list(answer) if found.server_streaming else [answer]
        except grpc.RpcError as error:
            return Refusal.of(error)  # type: ignore[arg-type]  # it has the methods of the asynchronous one
        finally:
            taken = self._processor_seconds() - begun
            if taken > MOST_SECONDS:
                raise BrokenPromiseError(f"{method} took {taken:.1f} seconds of the processor")

    def _processor_seconds(self) -> float:
        """The processor time of the server until now, without the processes that read documents."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answer(self, method: str, request: Message) -> Message:
        """The last answer to a request that must be accepted."""
        found = self.send(method, request.SerializeToString())
        if isinstance(found, Refusal):
            raise BrokenPromiseError(f"{method} was refused: {found}")
        return found[-1]

    # --- Promises ----------------------------------------------------------------------------------------------------

    def check_refusal(self, refusal: Refusal, request: Message | None) -> None:
        """Check that a refusal is one that a client can act on."""
        if refusal.code in IMPOSSIBLE:
            raise BrokenPromiseError(f"answered {refusal.code} {refusal.reason}: {refusal.message}\n{self.logged()}")
        if not refusal.reason and refusal.code != "RESOURCE_EXHAUSTED":  # gRPC's own limit on requests has no details
            raise BrokenPromiseError(f"answered {refusal.code} without a reason: {refusal.message}")
        if not refusal.message:
            raise BrokenPromiseError(f"answered {refusal.code} {refusal.reason} without a sentence")
        unknown = [path for path in refusal.fields if request is not None and not has_path(request, path)]
        if unknown and "…" not in "".join(unknown):
            raise BrokenPromiseError(f"names fields that the request does not have: {unknown}")

    def logged(self) -> str:
        """The errors that the server has logged since the last time."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        self._read += len(new)
        lines = []
        for line in new.decode(errors="replace").splitlines():
            try:
                level = json.loads(line).get("level")
            except (ValueError, AttributeError):
                level = "error"  # what a library wrote
            if level == "error":
                lines.append(line)
        return "\n".join(lines)

    def check_log(self) -> None:
        """Check that the server has logged no error, be it of a call or of what it does in the background."""
        if found := self.logged():
            raise BrokenPromiseError(f"the server logged an error: {found}")

    def settle(self) -> None:
        """Wait until no job runs or waits."""
        end = time.monotonic() + HUNG
        while self._database.execute("select 1 from work.job where state in ('queued', 'running')").fetchone():
            if time.monotonic() > end:
                raise BrokenPromiseError("a job did not end")
            time.sleep(_POLL)
        broken = self._database.execute("select kind, message from work.job where reason = 'INTERNAL'").fetchall()
        if broken:
            self._database.execute("delete from work.job where reason = 'INTERNAL'")
            raise BrokenPromiseError(f"a job failed with an internal error: {broken}\n{self.logged()}")

    def state(self) -> frozenset[str]:
        """Everything that a client can see, over all workspaces, and the refs in Git; a line for each row."""
        rows = (f"{query}: {row!r}" for query in _STATE for row in self._database.execute(query.encode()))
        return frozenset([*rows, *(f"{name}: {value}" for name, value in self._refs())])

    def _refs(self) -> Iterator[tuple[str, str]]:
        for repository in (self.data / "workspaces").glob("*"):
            packed = repository / "packed-refs"
            if packed.exists():
                yield str(packed), packed.read_text(encoding="utf-8")
            for path in (repository / "refs").rglob("*"):
                if path.is_file() and "keep" not in path.parts:  # follows the bases of sessions in the background
                    yield str(path), path.read_text(encoding="utf-8")

    def jobs(self) -> list[job_service_pb2.Job]:
        """All jobs of the server."""
        answer = self.answer("ListJobs", job_service_pb2.ListJobsRequest(page_size=1000))
        return list(answer.jobs)  # type: ignore[attr-defined]  # a ListJobsResponse
