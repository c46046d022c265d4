"""The OpenAPI document of the tools: valid, complete, and made of what the catalogue tells."""

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from memotree.error_statuses import ERROR_STATUSES
from memotree.gateways.json_schema import OUTPUT, declaration
from memotree.gateways.openapi import openapi_document
from memotree.gateways.tool_definitions import TOOLS
from memotree.planner import declared_tools
from memotree.tools.builtin.services import ToolOptions, builtin_tools

FUNCTIONS = (*builtin_tools(ToolOptions(("/",), (), ("*",), "http://127.0.0.1/")), *declared_tools())

pytestmark = pytest.mark.requirement("TOOL-10")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    tools = [*map(declaration, TOOLS), *(function.declaration for function in FUNCTIONS)]
    return openapi_document([tool.to_json() for tool in tools], "1.2.3")


def test_the_document_is_valid_also_without_tools(document: dict[str, Any]) -> None:
    for each in (copy.deepcopy(document), openapi_document([], "1")):
        assert list(OpenAPIV31SpecValidator(each).iter_errors()) == []


def test_every_tool_has_a_path_with_its_arguments_that_may_ask_for_an_api_key(document: dict[str, Any]) -> None:
    for tool in TOOLS:
        operation = document["paths"][f"/api/tools/{tool.name}/execute"]["post"]
        body = operation["requestBody"]
        told = declaration(tool).to_json()
        assert operation["operationId"] == tool.name
        assert body["content"]["application/json"]["schema"] == told["parameters"]
        assert body["required"] == bool(tool.required)
        assert operation["responses"].keys() >= {"200", "400", "404", "409", "413", "415", "429", "500", "503"}
    assert len(document["paths"]) == len(TOOLS) + len(FUNCTIONS) + 4
    assert document["security"] == [{}, {"key": []}], "it depends on the server whether one is needed"
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    assert all("401" in each["responses"] for each in operations)


def test_every_reference_leads_to_a_part_of_the_document(document: dict[str, Any]) -> None:
    waiting: list[Any] = [document]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            found: Any = document
            for name in part["$ref"].removeprefix("#/").split("/"):
                found = found[name]


def test_the_examples_match_their_schemas(document: dict[str, Any]) -> None:
    bodies = [
        path["post"]["requestBody"]["content"]["application/json"]
        for path in document["paths"].values()
        if "post" in path
    ]
    examples = [(body["schema"], each["value"]) for body in bodies for each in body.get("examples", {}).values()]
    assert examples
    for schema, example in examples:
        Draft202012Validator(schema).validate(example)
    failed = document["components"]["responses"]["Failed400"]["content"]["application/json"]["example"]
    Draft202012Validator(OUTPUT).validate(failed)


def test_every_status_of_a_failure_is_documented(document: dict[str, Any]) -> None:
    responses = document["paths"]["/api/tools/get_node/execute"]["post"]["responses"]
    assert {str(each.http) for each in ERROR_STATUSES} <= responses.keys()
    for status in responses:
        if status != "200":
            kind, name = responses[status]["$ref"].split("/")[-2:]
            assert document["components"][kind][name]["description"]
