"""A real server in a process of its own, and everything in its stores that a refused call must not change."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import urlencode

import grpc
import psycopg
from crash.service import Service, serving
from fuzz.requests import methods
from google.protobuf import message_factory
from google.protobuf.message import Message
from integration.wires import Refusal, has_path
from psycopg.conninfo import conninfo_to_dict

from memotree.server.announcement import read_announcement

HUNG: Final = 60.0
"""Seconds after which a call or a job counts as hung."""

Answer = TypeVar("Answer")

MOST_SECONDS: Final = 5.0
"""Processor seconds that one call may take of the server, with what runs beside it; they are no wall time."""

_POLL: Final = 0.002

LATE: Final = "DATABASE_UNAVAILABLE"
"""The error if PostgreSQL gives the server no connection within a second or two."""

_ATTEMPTS: Final = 30
_PAUSE: Final = 1.0
"""What the error says in seconds."""

DEFAULT_WORKSPACE: Final = "default"
"""The workspace of a tool call that names none."""

IMPOSSIBLE: Final = {
    *("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "UNIMPLEMENTED", "DEADLINE_EXCEEDED", "CANCELLED"),
    *("PERMISSION_DENIED", "UNAUTHENTICATED"),
}
"""The statuses that no request may get from a server whose stores answer."""

_STATE: Final = {
    "mirror.workspace": "workspace_id, name, description, default_branch",
    "mirror.commit": "workspace_id, commit_id, parents, author_name, message",
    "mirror.ref": "*",
    "mirror.version": "line_id, entry_id, from_seq, to_seq, dead, blob, title",
    "mirror.placement": "line_id, entry_id, from_seq, to_seq, dead, home, position",
    "mirror.fault": "*",
    "work.session": "session_id, workspace_id, branch, base_commit, agent, state",
    "work.staged": "session_id, entry_id, dead, derived_blob, blob, revision, messages, tools",
    "work.request": "workspace_id, request_id, digest, response",
    "work.view": "view_id, workspace_id, scope, name",
    "work.view_node": "view_id, entry_id, level, shown",
    "work.job": "job_id, state, reason, request, result",
}
"""What a client can see, or could later; times of use, caches and what is derived in the background are left out."""

_ROWS: Final = " union all ".join(
    f"select '{table}: ' || found::text from (select {columns} from {table}) as found"  # noqa: S608 - no input
    for table, columns in _STATE.items()
)


class BrokenPromiseError(AssertionError):
    """What a call did against the promises."""


def patiently(call: Callable[[], Answer], *, is_late: Callable[[Answer], bool]) -> Answer:
    """The answer to a call, made again as clients do while a starved machine gives the server no connection."""
    for _ in range(_ATTEMPTS):
        answer = call()
        if not is_late(answer):
            break
        time.sleep(_PAUSE)
    return answer


class FuzzedServer:
    """The server, with a connection to it and one to its database."""

    def __init__(self, service: Service, database_url: str) -> None:
        found = read_announcement(service.data)
        assert found is not None
        self.data, self.address, self.url = service.data, found.address, found.url
        self.key = ""  # the API key that is sent with each call
        self._service = service
        self._database = psycopg.connect(database_url, autocommit=True)
        self._channel = grpc.insecure_channel(
            self.address, options=[("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1),
                                   ("grpc.max_metadata_size", 1 << 20)]
        )  # fmt: skip
        self._read = 0

    @classmethod
    @contextmanager
    def running(cls, folder: Path, database_url: str, authentication: str = "none") -> Iterator[Self]:
        """A server that answers, stopped at the end."""
        settings = {
            "postgres_url": f"postgresql://?{urlencode(conninfo_to_dict(database_url))}",
            "authentication": authentication,
            "http_port": 0,
            "mcp_tools": "all",
            "default_workspace": DEFAULT_WORKSPACE,
            "log_level": "warning",
        }
        with serving(folder / "data", folder / "server.log", http=True, **settings) as service:
            server = cls(service, database_url)
            yield server
            server._channel.close()
            server._database.close()

    # --- Calls -------------------------------------------------------------------------------------------------------

    def send(self, method: str, raw: bytes) -> list[Message] | Refusal:
        """Send a request; return all answers, or the refusal."""

        def is_late(answer: list[Message] | Refusal) -> bool:
            return isinstance(answer, Refusal) and answer.reason == LATE

        return patiently(lambda: self._send(method, raw), is_late=is_late)

    def _send(self, method: str, raw: bytes) -> list[Message] | Refusal:
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
        fields = Path(f"/proc/{self._service.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
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
        with self._service.log.open("rb") as file:
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
        rows = self._database.execute(_ROWS.encode()).fetchall()
        return frozenset([*(row for (row,) in rows), *(f"{name}: {value}" for name, value in self._refs())])

    def _refs(self) -> Iterator[tuple[str, str]]:
        for repository in (self.data / "workspaces").glob("*"):
            packed = repository / "packed-refs"
            if packed.exists():
                yield str(packed), packed.read_text(encoding="utf-8")
            for path in (repository / "refs").rglob("*"):
                if path.is_file() and "keep" not in path.parts:  # follows the bases of sessions in the background
                    yield str(path), path.read_text(encoding="utf-8")
