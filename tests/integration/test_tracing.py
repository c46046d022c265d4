"""A server with a collector sends the trace of each call: from its caller over the tool and the RPC to the stores."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from memotree.composition import compose
from memotree.gateways.http_server import HttpServer
from memotree.server.app import Server
from memotree.settings import Settings
from memotree.v1 import workspace_service_pb2, workspace_service_pb2_grpc

pytestmark = pytest.mark.requirement("TOOL-12")

TRACES = ("0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d")


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        del context
        for one in request.resource_spans:
            for scope in one.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def names(self, trace_id: str) -> dict[str, str]:
        """The spans of a trace, each with the one above it."""
        found = [span for span in self.spans if span.trace_id.hex() == trace_id]
        names = {span.span_id: span.name for span in found}
        return {span.name: names.get(span.parent_span_id, "the caller") for span in found}


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    made = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(made, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield made, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


async def test_traces_cross_interfaces_tools_and_stores(tmp_path: Path, collector: tuple[Collector, str]) -> None:
    found, url = collector
    settings = Settings(data_folder=tmp_path / "data", port=0, http_port=0, trace_url=url, mcp_tools="all")
    over_grpc, over_http = (f"00-{each}-b7ad6b7169203331-01" for each in TRACES)
    async with compose(settings) as operations, Server(settings, operations, side_server=HttpServer) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub: Any = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
            request = workspace_service_pb2.CreateWorkspaceRequest(name="secret-name")
            await stub.CreateWorkspace(request, metadata=[("traceparent", over_grpc)])
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
            headers = {"content-type": "application/json", "traceparent": over_http}
            note = json.dumps({"workspace": "secret-name", "text": "The roses need water.", "title": "roses"})
            plain = {"content-type": "application/json"}
            assert (await http.post("/api/tools/remember/execute", content=note, headers=plain)).json()["success"]
            arguments = json.dumps({"workspace": "secret-name", "query": "roses"})
            answer = await http.post("/api/tools/search_nodes/execute", content=arguments, headers=headers)
            assert answer.json()["success"], answer.text
    create, search = "memotree.v1.WorkspaceService/CreateWorkspace", "memotree.v1.NodeService/SearchNodes"
    assert found.names(TRACES[0]) == {create: "the caller", "postgresql": create}
    of_tool = found.names(TRACES[1])
    assert of_tool["search_nodes"] == "the caller"
    assert of_tool[search] == "search_nodes"
    assert of_tool["postgresql"] == of_tool["qdrant"] == search
    assert not [span for span in found.spans if "secret" in str(span) or "roses" in str(span)]
