"""While PostgreSQL is away, calls end soon, and status, readiness and health all say so; afterwards all goes on."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import grpc
import httpx2
import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from integration.calls import reason
from integration.scripted_postgres import ScriptedPostgres, in_front_of
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from property.store_harness import fresh_database

from memotree.composition import compose
from memotree.gateways.http_server import HttpServer
from memotree.server.app import Server
from memotree.server.binding import contract
from memotree.server.health import Health
from memotree.settings import load_settings
from memotree.v1 import forest_service_pb2, maintenance_service_pb2, workspace_service_pb2

pytestmark = pytest.mark.requirement("USE-8")

DOWN: Final = ("57P03", "the database system is shutting down")
DEADLINE: Final = 8.0
"""Seconds: less than the pool's patience with a server that answers, and enough on a busy machine."""

GIVEN: Final = {
    "workspace": "garden",
    "query": "trees",
    "session_id": "s" * 16,
    "node_id": "n" * 16,
    "job_id": "j" * 16,
}


@dataclass
class Place:
    """A whole server whose PostgreSQL a test can take away."""

    server: Server
    postgres: ScriptedPostgres
    channel: grpc.aio.Channel
    http: httpx2.AsyncClient

    def take_away(self) -> None:
        self.postgres.down = DOWN
        self.postgres.drop()

    async def call(self, request: Message) -> Any:
        name = type(request).__name__.removesuffix("Request")
        return await self.call_method(
            next(m for s in contract().values() for m in s.methods if m.name == name), request
        )

    async def call_method(self, method: Any, request: Message) -> Any:
        answer = message_factory.GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{method.name}"
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        sent = kind(path, type(request).SerializeToString, answer.FromString)(request, timeout=DEADLINE)
        return [each async for each in sent] if method.server_streaming else await sent

    async def health(self) -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)).status)


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> AsyncIterator[Place]:
    """One server for all tests; each takes its PostgreSQL away."""
    folder = tmp_path_factory.mktemp("outage")
    async with AsyncExitStack() as stack:
        engine = EmbeddedQdrant(folder / "engine")
        endpoint = await engine.start()
        stack.push_async_callback(engine.stop)
        postgres = await stack.enter_async_context(in_front_of(fresh_database(postgres)))
        parts = dict(part.split("=", 1) for part in postgres.conninfo.split())
        settings = load_settings(
            data_folder=folder / "data",
            port=0,
            postgres_url=f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}",
            qdrant_url=endpoint.url,
            qdrant_api_key=endpoint.api_key,
        )
        operations = await stack.enter_async_context(compose(settings))
        server = await stack.enter_async_context(Server(settings, operations, side_server=HttpServer))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url))
        place = Place(server, postgres, channel, http)
        await place.call(workspace_service_pb2.CreateWorkspaceRequest(name="garden"))
        yield place


@pytest.fixture
def place(whole: Place) -> Iterator[Place]:
    """The server; its PostgreSQL is back afterwards."""
    yield whole
    whole.postgres.down = None


async def test_every_rpc_ends_before_its_deadline_while_postgres_is_away(place: Place) -> None:
    place.take_away()
    codes: dict[str, Any] = {}
    for method in (method for service in contract().values() for method in service.methods):
        request = message_factory.GetMessageClass(method.input_type)()
        for name, value in GIVEN.items():
            field = method.input_type.fields_by_name.get(name)
            if field is not None and field.cpp_type == field.CPPTYPE_STRING:
                setattr(request, name, value)
        try:
            await place.call_method(method, request)
            codes[method.name] = grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            codes[method.name] = error.code()
    # these read Git alone, or memory
    without = {"GetStatus", "BackUp", "ListTools", "GetPrincipal", "ListKeys", "ReloadSettings"}
    assert {name for name, code in codes.items() if code is grpc.StatusCode.OK} == without
    unavailable = {name for name, code in codes.items() if code is grpc.StatusCode.UNAVAILABLE}
    assert {"Recall", "SearchNodes", "GetNode", "ListWorkspaces", "VerifyWorkspace", "GetJob"} <= unavailable
    asking = {"Query", "StreamQuery", "PlanQuery"}  # without a chat model they ask nobody
    assert {codes[name] for name in asking} == {grpc.StatusCode.FAILED_PRECONDITION}
    other = {code for name, code in codes.items() if name not in unavailable | without | asking}
    assert other <= {grpc.StatusCode.INVALID_ARGUMENT}  # refused before a store is asked


async def test_calls_go_on_as_soon_as_postgres_answers_again(place: Place) -> None:
    recall = forest_service_pb2.RecallRequest(workspace="garden", query="trees")
    listing = workspace_service_pb2.ListWorkspacesRequest()
    place.take_away()
    for _ in range(20):  # a pool that paused longer after each failure would not answer below
        for request in (listing, recall):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await place.call(request)
            assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    place.postgres.down = None
    assert [each.name for each in (await place.call(listing)).workspaces] == ["garden"]
    await place.call(recall)


async def test_status_says_that_postgres_is_away_and_still_counts_the_workspaces(place: Place) -> None:
    place.take_away()
    status = await place.call(maintenance_service_pb2.GetStatusRequest())
    assert {store.name: store.healthy for store in status.stores} == {"git": True, "postgres": False, "qdrant": True}
    assert status.workspace_count == 1


async def test_readiness_and_health_agree_and_tell_the_reason(place: Place) -> None:
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    ready = await place.http.get("/readyz")
    assert (ready.status_code, ready.json(), await place.health()) == (200, {"status": "ready"}, serving)
    place.take_away()
    for path in ("/readyz", "/healthz"):
        silent = await place.http.get(path)
        assert (silent.status_code, silent.json()["status"]) == (503, "not ready")
        assert list(silent.json()["reasons"]) == ["postgres"]
        assert "PostgreSQL does not answer" in silent.json()["reasons"]["postgres"]
    assert await place.health() == not_serving
    assert (await place.http.get("/livez")).status_code == 200
    place.postgres.down = None
    assert ((await place.http.get("/readyz")).status_code, await place.health()) == (200, serving)


class _Watcher:
    """The context of a watch call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


async def test_a_watcher_of_the_health_service_learns_that_stores_fell_silent() -> None:
    answers = [True, True, False, False, True]

    async def ready() -> bool:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    health = Health(ready, watch_seconds=0.001)
    health.set_serving(["a.Service"])
    sent = []
    async for message in health.Watch(health_pb2.HealthCheckRequest(service="a.Service"), _Watcher()):
        sent.append(message.status)
        if len(sent) == 3:
            health.stop()
    names = [health_pb2.HealthCheckResponse.ServingStatus.Name(status) for status in sent]
    assert names == ["SERVING", "NOT_SERVING", "SERVING", "NOT_SERVING"]
