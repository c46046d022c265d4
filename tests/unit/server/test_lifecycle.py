"""The server starts, announces its address, and stops without losing a call."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from memotree.server.announcement import read_announcement
from memotree.server.app import Server
from memotree.server.binding import OperationsMismatchError
from memotree.server.listen import HostNotAddressError, PortTakenError, PublicAddressError
from memotree.settings import Settings
from memotree.v1 import session_service_pb2 as sessions

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.requirement("SERVE-1")
async def test_health_covers_the_server_and_each_service(channel: aio.Channel) -> None:
    for service in ("", "memotree.v1.SessionService"):
        asked = health_pb2.HealthCheckRequest(service=service)
        assert (await health_pb2_grpc.HealthStub(channel).Check(asked)).status == SERVING


@pytest.mark.requirement("SERVE-1")
async def test_a_health_watcher_receives_every_change_and_the_stop(server: Server, channel: aio.Channel) -> None:
    name = "memotree.v1.SessionService"
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name))
    unknown = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="other"))
    assert (await unknown.read()).status == UNKNOWN
    assert (await watch.read()).status == SERVING
    server.health.set(name, serving=False)
    assert (await watch.read()).status == NOT_SERVING
    server.health.set(name, serving=True)
    assert (await watch.read()).status == SERVING
    await asyncio.wait_for(server.stop(3600), 60)  # a watcher does not delay the stop
    assert (await watch.read()).status == NOT_SERVING
    assert await watch.read() is aio.EOF


@pytest.mark.requirement("SERVE-1")
@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_reflection_lists_the_services_and_gives_their_descriptors(channel: aio.Channel, version: str) -> None:
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked: list[dict[str, str]] = [{"list_services": ""}, {"file_containing_symbol": "memotree.v1.SessionService"}]
    questions = [reflection_pb2.ServerReflectionRequest(**each) for each in asked]
    listed, described = [response async for response in call(iter(questions))]
    assert [service.name for service in listed.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "memotree.v1.MaintenanceService",
        "memotree.v1.SessionService",
    ]
    assert len(described.file_descriptor_response.file_descriptor_proto) > 1


@pytest.mark.requirement("SERVE-1")
async def test_a_graceful_stop_lets_a_running_call_finish_and_refuses_new_ones(
    server: Server, channel: aio.Channel, get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    held = scripted_sessions.holds()
    call = get_session(sessions.GetSessionRequest(session_id="s1"))
    await asyncio.wait_for(held.begun.acquire(), 60)
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
    assert (await watch.read()).status == SERVING
    stopping = asyncio.create_task(server.stop(30))
    assert (await watch.read()).status == NOT_SERVING
    with pytest.raises(aio.AioRpcError) as caught:
        await get_session(sessions.GetSessionRequest())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "send it again" in caught.value.details()
    assert not stopping.done()
    held.proceed.set()
    assert (await call).session.id == "s1"
    await asyncio.wait_for(stopping, 60)
    assert len(scripted_sessions.requests) == 1


async def test_after_its_grace_period_a_stop_cancels_calls_and_waits_for_their_cleanup(
    server: Server, get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    held = scripted_sessions.holds()
    call = get_session(sessions.GetSessionRequest())
    await asyncio.wait_for(held.begun.acquire(), 60)
    first = asyncio.create_task(server.stop(3600))
    await asyncio.sleep(0)
    await asyncio.wait_for(server.stop(0), 60)  # the second stop does not wait
    await first
    assert held.ended.is_set()
    with pytest.raises(aio.AioRpcError):
        await call


async def test_resources_are_closed_in_order_after_the_last_call(settings: Settings, log_lines: list[Any]) -> None:
    order: list[str] = []

    async def drain() -> None:
        order.append("drain")
        raise RuntimeError("this part does not stop well")

    async def close() -> None:
        order.append("close")

    server = Server(settings, {}, on_stop=[drain, close])
    async with server:
        assert order == []
    await server.stop(0)
    assert order == ["drain", "close"]
    errors = [line["event"] for line in log_lines if line["log_level"] == "error"]
    assert errors == ["a part of the server failed to stop"]


async def test_a_running_server_is_found_by_its_file_and_a_stopped_one_is_not(settings: Settings) -> None:
    server = Server(settings, {})
    assert read_announcement(settings.data_folder) is None
    async with server:
        found = read_announcement(settings.data_folder)
        assert found is not None
        assert (found.address, found.pid) == (server.address, os.getpid())
        assert [path.name for path in settings.data_folder.iterdir()] == ["server.json"]
    assert read_announcement(settings.data_folder) is None


async def test_a_stop_does_not_delete_the_announcement_of_another_server(settings: Settings) -> None:
    async with Server(settings, {}):
        file = settings.data_folder / "server.json"
        file.write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1, "version": "0"}))
    found = read_announcement(settings.data_folder)
    assert found is not None
    assert found.pid == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": "x"}', '{"address": "x", "pid": "y", "version": ""}'])
def test_a_file_that_is_no_announcement_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    assert read_announcement(tmp_path) is None


async def test_a_port_in_use_also_by_another_server_is_refused_and_named(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port} .another program listens there"):
            await Server(settings.model_copy(update={"port": port}), {}).start()
    assert read_announcement(settings.data_folder) is None
    async with Server(settings, {}) as first:
        port = int(first.address.rpartition(":")[2])
        with pytest.raises(PortTakenError):
            await Server(settings.model_copy(update={"port": port}), {}).start()


@pytest.mark.requirement("SERVE-3")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1"])  # noqa: S104 - they are refused
def test_an_address_that_other_machines_can_reach_is_refused_without_authentication(
    settings: Settings, host: str
) -> None:
    with pytest.raises(PublicAddressError, match="nothing would check who calls"):
        Server(settings.model_copy(update={"host": host}), {})


def test_a_host_that_is_no_address_is_refused(settings: Settings) -> None:
    with pytest.raises(HostNotAddressError, match="not an IP address"):
        Server(settings.model_copy(update={"host": "example.invalid"}), {})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2"])
async def test_loopback_by_any_name_is_served(settings: Settings, host: str) -> None:
    async with Server(settings.model_copy(update={"host": host}), {}) as server:
        assert server.address.startswith("127.0.0.")


class Incomplete:
    """Lacks most operations, and has one that streams where the contract does not."""

    async def open_session(self, request: object) -> Any:
        yield request


def test_a_server_without_its_operations_does_not_start(settings: Settings) -> None:
    with pytest.raises(OperationsMismatchError) as caught:
        Server(settings, {"SessionService": Incomplete(), "Other": object()})
    for told in (
        "Other is not a service",
        "Incomplete has no method commit_changes for memotree.v1.SessionService.CommitChanges",
        "Incomplete.open_session must return one message",
    ):
        assert told in caught.value.message


SERVE = """
import asyncio, sys
from contextlib import asynccontextmanager
from memotree.server.app import serve
from memotree.settings import load_settings

@asynccontextmanager
async def compose(settings):
    if "slow" in sys.argv:
        print("composing", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("abandoned", flush=True)
    yield {}
    print("closed", flush=True)

serve(load_settings(data_folder=sys.argv[1], port=0), compose)
"""


def spawn(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", SERVE, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.requirement("SERVE-1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_and_then_its_stores(tmp_path: Path, number: signal.Signals) -> None:
    process = spawn(str(tmp_path))
    deadline = time.monotonic() + 60
    while read_announcement(tmp_path) is None:
        assert time.monotonic() < deadline, "the server did not announce its address"
        time.sleep(0.01)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "closed\n")
    assert read_announcement(tmp_path) is None


def test_a_signal_while_the_stores_start_abandons_the_start(tmp_path: Path) -> None:
    process = spawn(str(tmp_path), "slow")
    assert process.stdout is not None
    assert process.stdout.readline() == "composing\n"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "abandoned\n")
