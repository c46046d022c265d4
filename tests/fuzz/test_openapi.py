"""The tools over HTTP keep what their OpenAPI document says, for arguments that it allows and those that it does not.

No answer is a fault of the server, and each has a status, a type and a body that the document has for its path.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
import schemathesis
from campaigns import TIMES, dice, sample
from fuzz.server import HUNG, FuzzedServer
from fuzz.world import World
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks as promises
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.gateways.tool_definitions import TOOLS
from memotree.planner import declared_tools
from memotree.tools.builtin.services import builtin_tools

pytestmark = pytest.mark.requirement("TOOL-10")

PATHS: Final = {
    "/api/tools": "GET",
    "/api/tools/{name}": "GET",
    "/api/query/with-tools": "POST",
    "/api/query/with-tools/stream": "POST",
} | {f"/api/tools/{tool.name}/execute": "POST" for tool in (*TOOLS, *builtin_tools(), *declared_tools())}
CHECKS: Final = (
    schemathesis.checks.not_a_server_error,
    promises.status_code_conformance,
    promises.content_type_conformance,
    promises.response_headers_conformance,
    promises.response_schema_conformance,
)


@pytest.fixture(scope="module")
def document(fuzzed: FuzzedServer) -> Any:
    return httpx2.get(f"{fuzzed.url}/api/openapi.json", timeout=HUNG).json()


@pytest.fixture(scope="module")
def schema(document: Any, fuzzed: FuzzedServer) -> Iterator[Any]:
    found = schemathesis.openapi.from_dict(document)
    found.config.update(base_url=fuzzed.url)
    return found


def test_every_path_of_the_document_is_tried(document: Any) -> None:
    assert PATHS.keys() == document["paths"].keys()


def test_the_command_line_prints_the_document_too(document: Any, fuzzed: FuzzedServer) -> None:
    command = ["tools", "openapi", "--url", fuzzed.url, "--address", fuzzed.address]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout) == document | {"servers": [{"url": fuzzed.url}]}


@pytest.fixture(autouse=True)
def _fresh_afterwards(world: World) -> Iterator[None]:
    """What the calls here have changed is no matter of the tests that share the server."""
    yield
    world.known = {}


def modes(path: str) -> list[GenerationMode]:
    """Both modes for what is not alike for every tool; for a tool one, drawn for each run."""
    both = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    return [dice("modes", path).choice(both)] if path.endswith("/execute") and not TIMES else both


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_one_of_the_document(schema: Any, fuzzed: FuzzedServer, path: str) -> None:
    operation = schema[path][PATHS[path]]
    for mode in modes(path):
        for case in sample(operation.as_strategy(generation_mode=mode), 3):
            case.call_and_validate(timeout=HUNG, checks=list(CHECKS))
            fuzzed.check_log()
