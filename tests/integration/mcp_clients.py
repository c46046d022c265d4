"""Clients of the MCP SDK over streamable HTTP, and calls that must succeed or fail."""

from typing import Any

from jsonschema import Draft202012Validator
from mcp import Client

from memotree.gateways.json_schema import OUTPUT
from memotree.gateways.mcp import FULL
from memotree.server.app import Server

ERAS = ["legacy", "auto"]
WHOLE: Any = {FULL: True}
"""Asks for the whole structured result."""


def over_http(server: Server, era: str = "auto") -> Client:
    return Client(f"{server.url}/mcp", mode=era)


async def done(client: Client, tool: str, **arguments: Any) -> Any:
    """The data of a call that succeeds."""
    result = await client.call_tool(tool, arguments, meta=WHOLE)
    Draft202012Validator(OUTPUT).validate(result.structured_content)
    assert not result.is_error, result.content
    assert result.structured_content["success"]
    return result.structured_content["data"]


async def refused(client: Client, tool: str, **arguments: Any) -> tuple[Any, str]:
    """The error of a call that fails, and the text that a model reads."""
    result = await client.call_tool(tool, arguments, meta=WHOLE)
    Draft202012Validator(OUTPUT).validate(result.structured_content)
    assert result.is_error
    assert not result.structured_content["success"]
    return result.structured_content["error"], result.content[0].text
