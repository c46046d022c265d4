"""The audit log has a record of each change, each refusal and each call of a tool, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp
from integration.clones import Clone
from integration.mcp_clients import over_http
from integration.scripted_server import ScriptedForest, served
from integration.statements import rows_read
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres import audit
from memotree_storage.postgres.database import Connection

from memotree.audit import AuditLog, AuditOperations
from memotree.audit.journal import Journal
from memotree.audit.log import MOST_OF_UNKNOWN, AuditLogUnavailableError
from memotree.audit.operations import AuditLogOffError
from memotree.client import (
    AsyncClient,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from memotree.composition import changing_methods, compose, observed_methods
from memotree.gateways.http_server import HttpServer
from memotree.identity.key_file import KEY_FILE
from memotree.request.observed_calls import CallObservers, ObservedCall
from memotree.request.pages import InvalidPageTokenError
from memotree.request.principal import Principal, acting_as
from memotree.server.app import Server
from memotree.settings import Settings
from memotree.v1 import audit_service_pb2 as pb
from memotree.v1 import node_service_pb2

pytestmark = [pytest.mark.requirement("TOOL-12"), pytest.mark.own_store]


@pytest_asyncio.fixture
async def log(world: World, tmp_path: Path) -> AsyncIterator[AuditLog]:
    made = AuditLog(
        world.store.database, Journal(tmp_path / "journal.jsonl", 20_000), changing_methods(), timedelta(days=1)
    )
    made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def server(world: World, log: AuditLog, tmp_path: Path) -> AsyncIterator[Server]:
    given = {"mcp_tools": "all", "default_workspace": world.workspace}
    async with served(world, ScriptedForest(), tmp_path / "http", [log], **given) as running:
        yield running


@pytest.fixture
def reading(world: World, log: AuditLog) -> AuditOperations:
    return AuditOperations(world.store.database, world.pages, log, observed_methods())


async def listed(reading: AuditOperations, **wanted: Any) -> list[pb.AuditRecord]:
    return list((await reading.list_audit_records(pb.ListAuditRecordsRequest(**wanted))).records)


def told(log: AuditLog, method: str = "memotree.v1.NodeService/CreateNode", code: str = "OK", **given: Any) -> None:
    """A call that has ended."""
    call = ObservedCall(method, **given)
    observers = CallObservers([log])
    observers.began(call, Empty())
    observers.ended(call, code)


async def test_a_change_is_kept_and_a_read_is_not(server: Server, world: World, reading: AuditOperations) -> None:
    async with AsyncClient(server.address) as client:
        workspace = client.workspace(world.workspace)
        async with workspace.session(agent="me") as session:
            request = node_service_pb2.CreateNodeRequest(
                workspace=world.workspace,
                session_id=session.id,
                archive_id=world.archive.id,
                title="T",
                content="A secret text.",
                request_id="mine",
            )
            made = await client.raw.nodes.CreateNode(request)
            await session.node(made.node.id)
    records = await listed(reading)
    assert [each.method.rpartition("/")[2] for each in records] == ["CreateNode", "OpenSession"]
    created = records[0]
    assert (created.principal, created.interface, created.request_id) == ("local", "grpc", "mine")
    assert (created.workspace, created.code, created.tool) == (world.workspace, "OK", "")
    assert created.elapsed_ms > 0
    assert "secret" not in created.arguments_json


async def test_each_call_of_a_tool_is_kept_once(server: Server, reading: AuditOperations) -> None:
    async with AsyncClient(server.address) as client:
        await client.run_tool("list_archives", {})
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
        as_json = {"content-type": "application/json"}
        for content in ('{"name": "idea"}', "{"):
            await http.post("/api/tools/create_branch/execute", content=content, headers=as_json)
    async with over_http(server) as agent:
        await agent.call_tool("get_node", {})
    records = [(each.tool, each.interface, each.code, each.reason) for each in await listed(reading)]
    assert records == [
        ("get_node", "mcp", "INVALID_ARGUMENT", "INVALID_ARGUMENTS"),
        ("create_branch", "http", "INVALID_ARGUMENT", "INVALID_ARGUMENTS"),
        ("create_branch", "http", "OK", ""),
        ("list_archives", "grpc", "OK", ""),
    ]


async def test_the_record_of_a_function_tells_what_it_did_and_no_text(
    server: Server, world: World, reading: AuditOperations
) -> None:
    given = {"url": "https://me:secret@127.0.0.1/secret", "method": "DELETE", "body": "secret", "most_bytes": 7}
    async with AsyncClient(server.address) as client:
        await client.run_tool("http_request", given)
        await client.run_tool("document_count", {"revision": "main"})
    counted, sent = await listed(reading)
    assert (sent.tool, sent.workspace, counted.tool, counted.workspace) == (
        *("http_request", ""),
        *("document_count", world.workspace),
    )
    told = json.loads(sent.arguments_json)
    told.pop("agent", None)
    url = {"host": "127.0.0.1", "chars": len(str(given["url"]))}
    assert told == {"url": url, "method": "DELETE", "body": {"chars": 6}, "most_bytes": 7}
    assert json.loads(counted.arguments_json)["revision"] == "main"


async def test_a_refused_read_is_kept_with_who_was_refused(log: AuditLog, reading: AuditOperations) -> None:
    with acting_as(Principal("mallory")):
        told(log, "memotree.v1.NodeService/GetNode", "PERMISSION_DENIED", interface="grpc")
        told(log, "memotree.v1.NodeService/GetNode", "NOT_FOUND", interface="grpc")
    (record,) = await listed(reading)
    assert (record.principal, record.code) == ("mallory", "PERMISSION_DENIED")


def full(_self: Journal, _line: bytes) -> None:
    raise OSError("No space left on device")


def refused(log: AuditLog, count: int, **given: Any) -> None:
    """Calls of somebody who is not known."""
    for _ in range(count):
        told(log, "memotree.v1.NodeService/CreateNode", "UNAUTHENTICATED", who="", **given)


async def test_calls_without_end_of_somebody_unknown_have_few_records_which_tell_how_many_there_were(
    log: AuditLog, reading: AuditOperations
) -> None:
    refused(log, MOST_OF_UNKNOWN + 5, interface="grpc")
    refused(log, 7, interface="http")
    told(log)
    assert len(await listed(reading, code="UNAUTHENTICATED", page_size=1000)) == MOST_OF_UNKNOWN
    assert len(await listed(reading, code="OK")) == 1, "a caller who is known is always recorded"
    log._end_minute()
    by_http, by_grpc = await listed(reading, page_size=2)
    assert [(each.interface, each.code, each.reason, each.principal) for each in (by_grpc, by_http)] == [
        ("grpc", "UNAUTHENTICATED", "AND_5_MORE", ""),
        ("http", "UNAUTHENTICATED", "AND_7_MORE", ""),
    ]
    assert json.loads(by_http.arguments_json) == {"calls": 7}
    log._end_minute()
    refused(log, 1)
    found = await listed(reading, code="UNAUTHENTICATED", page_size=1000)
    assert len(found) == MOST_OF_UNKNOWN + 3, "nothing is told twice, and a new minute has room"


async def test_how_many_calls_had_no_record_is_told_when_the_log_can_be_written_or_stops(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(world.store.database, Journal(tmp_path / "stopped.jsonl"), changing_methods(), timedelta(days=1))
    refused(log, MOST_OF_UNKNOWN + 1)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        log._end_minute()
    refused(log, MOST_OF_UNKNOWN + 1)
    await log.stop()
    async with world.store.database.connection() as conn:
        kept = await audit.page(conn, audit.AuditFilter(), limit=1000)
    assert [row.reason for row in kept if row.reason] == ["AND_2_MORE"]
    assert len(kept) == 2 * MOST_OF_UNKNOWN + 1


async def test_a_known_caller_who_sends_no_request_is_recorded_with_its_name(server: Server, log: AuditLog) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_unary("/memotree.v1.NodeService/CreateNode")(iter(()))
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    async with log._database.connection() as conn:
        await log.flush()
        (row,) = await audit.page(conn, audit.AuditFilter(), limit=10)
    assert (row.principal, row.reason) == ("local", "REQUEST_MISSING")


async def test_records_of_a_rare_method_or_tool_are_found_without_reading_all_others(
    world: World, reading: AuditOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare, count = datetime(2020, 1, 1, tzinfo=UTC).isoformat(), 2000
    methods = [each for each in sorted(changing_methods()) if not each.endswith("/MergeBranch")][:20]
    record = dict.fromkeys(("principal", "interface", "call_id", "request_id", "workspace", "reason", "tool"), "")
    record |= {"happened_at": rare, "arguments": {}, "code": "OK", "elapsed_ms": 1}
    records = [
        record | {"record_id": "1", "method": "memotree.v1.HistoryService/MergeBranch"},
        record | {"record_id": "2", "method": "memotree.v1.ToolService/ExecuteTool", "tool": "rare_tool"},
        record | {"record_id": "3", "method": "memotree.v1.HistoryService/MergeBranch", "tool": "merge_branch"},
        *(record | {"record_id": f"m{each}", "method": methods[each % len(methods)]} for each in range(count)),
    ]
    async with world.store.database.transaction() as conn:
        await audit.add(conn, json.dumps(records))
        await conn.execute("analyze work.audit")

    async with world.store.database.transaction() as conn:

        @asynccontextmanager
        async def this() -> AsyncIterator[Connection]:
            yield conn

        monkeypatch.setattr(world.store.database, "connection", this)
        named = {"MergeBranch": 2, "memotree.v1.HistoryService/MergeBranch": 2, "rare_tool": 1, "merge_branch": 1}
        for method, expected in (*named.items(), ("Nothing", 0)):
            before = await rows_read(conn, "audit")
            assert len(await listed(reading, method=method)) == expected
            assert await rows_read(conn, "audit") - before < 50, method


async def test_records_are_filtered_and_paged(log: AuditLog, reading: AuditOperations) -> None:
    for number in range(5):
        with acting_as(Principal(f"agent-{number % 2}")):
            told(log, code="OK" if number else "ABORTED")
            told(log, "memotree.v1.HistoryService/MergeBranch")
    later = Timestamp()
    later.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
    merge = "memotree.v1.HistoryService/MergeBranch"
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({"principal": "agent-1"}, 4),
        ({"method": "MergeBranch"}, 5),
        ({"method": merge, "principal": "agent-0"}, 3),
        ({"method": "%Branch"}, 0),
        ({"code": "ABORTED"}, 1),
        ({"workspace": "nowhere"}, 0),
        ({"since": later}, 0),
        ({"until": later}, 10),
    )
    for wanted, count in cases:
        assert len(await listed(reading, **wanted)) == count, wanted
    first = await reading.list_audit_records(pb.ListAuditRecordsRequest(page_size=6))
    told(log)  # a new record does not move the page
    rest = await reading.list_audit_records(pb.ListAuditRecordsRequest(page_size=6, page_token=first.next_page_token))
    ids = [each.call_id for each in (*first.records, *rest.records)]
    assert len(set(ids)) == len(ids) == 10
    assert not rest.next_page_token


async def test_what_no_record_can_have_is_refused(reading: AuditOperations) -> None:
    for wanted in ({"code": "FINE"}, {"principal": "a\0"}, {"method": "x" * 300}, {"page_size": -1}):
        with pytest.raises(InvalidInputError):
            await listed(reading, **wanted)
    with pytest.raises(InvalidPageTokenError):
        await listed(reading, page_token="x")  # noqa: S106 - no password


async def test_a_log_that_is_off_says_so(world: World) -> None:
    with pytest.raises(AuditLogOffError, match="audit_log"):
        await listed(AuditOperations(world.store.database, world.pages, None, []))


async def test_while_no_record_can_be_written_changes_are_refused_and_reads_answered(
    server: Server, world: World, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(server.address, attempts=1) as client:
        workspace = client.workspace(world.workspace)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", full)
            with pytest.raises(UnavailableError, match="may have been carried out"):
                await workspace.branch("one")
            with pytest.raises(UnavailableError, match="was not begun"):
                await workspace.branch("two")
            names = [each.name async for each in workspace.branches()]
            assert "two" not in names
        await workspace.branch("three")  # it heals by itself
    assert log.records == 1


async def test_a_full_journal_is_refused_with_its_reason(log: AuditLog, world: World) -> None:
    def fill() -> None:
        for _ in range(200):  # nothing awaits, so nothing is brought to PostgreSQL meanwhile
            CallObservers([log]).settle(ObservedCall("memotree.v1.NodeService/CreateNode"))

    with pytest.raises(AuditLogUnavailableError):
        fill()
    await log.flush()
    told(log)
    async with world.store.database.connection() as conn:
        kept = await audit.page(conn, audit.AuditFilter(), limit=1000)
    assert len(kept) == log.records - 1


async def test_a_record_that_postgresql_cannot_hold_does_not_stop_the_others(
    log: AuditLog, reading: AuditOperations
) -> None:
    log._journal.append(b'{"record_id": "x", "happened_at": "never"}\n')
    log._journal.append(b"no json\n")
    told(log)
    assert len(await listed(reading)) == 1


async def test_old_records_go(world: World, log: AuditLog, reading: AuditOperations) -> None:
    told(log)
    await log.flush()
    async with world.store.database.connection() as conn:
        assert await audit.delete_old(conn, timedelta(days=1)) == 0
        await conn.execute("update work.audit set happened_at = happened_at - interval '2 days'")
        assert await audit.delete_old(conn, timedelta(days=1)) == 1
    assert not await listed(reading)


async def test_refusals_and_pushes_of_a_server_with_keys_are_recorded_with_who_made_them(tmp_path: Path) -> None:
    settings = Settings(data_folder=tmp_path / "data", port=0, http_port=0, authentication="keys")
    async with compose(settings) as operations, Server(settings, operations, side_server=HttpServer) as server:
        key = (settings.data_folder / KEY_FILE).read_text(encoding="utf-8").strip()
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
            assert (await http.get("/api/tools")).status_code == 401
        async with AsyncClient(server.address, key="mt_wrong") as client:
            with pytest.raises(UnauthenticatedError):
                await client.workspace("notes").branch("idea")
        async with AsyncClient(server.address, key=key) as client:
            made = await client.create_workspace("notes")
            await client.put_principal("ada")
            own = (await client.create_key("ada")).key
            async with AsyncClient(server.address, key=own) as ada:
                with pytest.raises(PermissionDeniedError):
                    await ada.create_workspace("others")
                with pytest.raises(PermissionDeniedError):
                    [each async for each in ada.audit_records()]
            url = server.url.replace("http://", f"http://any:{key}@")
            clone = await asyncio.to_thread(Clone, tmp_path / "clone", f"{url}/git/notes")
            await asyncio.to_thread(clone.run, "push", "-q", "origin", "HEAD:idea")
            found = [each async for each in client.audit_records()]
    told = [(each.method.rpartition("/")[2], each.interface, each.principal, each.code) for each in reversed(found)]
    assert told == [
        ("http", "http", "", "UNAUTHENTICATED"),
        ("CreateBranch", "grpc", "", "UNAUTHENTICATED"),
        ("CreateWorkspace", "grpc", "admin", "OK"),
        ("PutPrincipal", "grpc", "admin", "OK"),
        ("CreateKey", "grpc", "admin", "OK"),
        ("CreateWorkspace", "grpc", "ada", "PERMISSION_DENIED"),
        ("ListAuditRecords", "grpc", "ada", "PERMISSION_DENIED"),
        ("git-receive-pack", "http", "admin", "OK"),
    ]
    assert found[0].workspace == made.id
    kept = " ".join(str(each.arguments) for each in found)
    assert key not in kept
    assert own not in kept
