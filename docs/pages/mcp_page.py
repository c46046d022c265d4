"""The page about the tools for agents, from the table of tools: what an agent sees when it lists them."""

from collections.abc import Iterator, Mapping
from typing import Any

from markdown import made_by, prose, table

from memotree.gateways.contract import comment
from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_schema import SHARED, description, in_tools, input_schema
from memotree.gateways.tool import Tool
from memotree.gateways.tool_definitions import TOOLS
from memotree.planner import declared_tools
from memotree.tools.builtin.services import ToolOptions, builtin_tools
from memotree.tools.declaration import Declaration

INTRO = """
What an agent sees of MemoTree over the Model Context Protocol ([how to
connect](../how-to/connect-an-agent-over-mcp.md)), tool by tool. Every tool answers with a text and a structure:
[what a tool answers](../how-to/connect-an-agent-over-mcp.md#what-a-tool-answers).
"""

FUNCTIONS = """
## Functions of the server

They call no operation of the store, and are offered over MCP only with `--tools all` or by name. What they may take and
reach are [settings](settings.md).
"""

_GROUPS = (
    ("The tools of an agent's day", EVERYDAY),
    ("All other tools", [tool for tool in TOOLS if tool not in EVERYDAY]),
)


def page() -> str:
    """The whole page."""
    parts = [made_by("Tools for agents", "`memotree/gateways/tool_definitions.py` and the wire contract"), INTRO]
    shared = table(("argument", "meaning"), [(f"`{name}`", prose(text)) for name, text in SHARED.items() if text])
    parts.append(f"\nArguments that many tools have, with one meaning:\n\n{shared}")
    for heading, tools in _GROUPS:
        parts.append(f"\n## {heading}\n")
        parts += [_section(tool) for tool in tools]
    parts.append(FUNCTIONS)
    functions = builtin_tools(ToolOptions(("/",), (), ("*",), "http://127.0.0.1/"))
    parts += [_function(tool.declaration) for tool in (*functions, *declared_tools())]
    return "".join(parts)


def _section(tool: Tool) -> str:
    schema = input_schema(tool)
    rows = table(("argument", "type", "meaning"), _rows(schema, tool.arguments))
    return f"\n### {tool.name}\n\n{prose(description(tool))}\n\n{_hints(tool)}\n" + (f"\n{rows}" if rows else "")


def _function(tool: Declaration) -> str:
    needed = set(tool.parameters.get("required", ()))
    rows = [
        (f"`{name}`", _kind(schema)[0] + (", needed" if name in needed else ""), prose(schema.get("description", "")))
        for name, schema in tool.parameters["properties"].items()
    ]
    reach = " Reaches beyond the server." if tool.open_world else ""
    told = table(("argument", "type", "meaning"), rows)
    return f"\n### {tool.name}\n\n{prose(tool.description)}\n\n{_hints(tool)}{reach}\n" + (f"\n{told}" if told else "")


def _hints(tool: Tool | Declaration) -> str:
    if tool.read_only:
        return "Changes nothing."
    hints = ["May delete or overwrite something." if tool.destructive else "Only adds."]
    if tool.idempotent:
        hints.append("The same call again has no further effect.")
    return " ".join(hints)


def _rows(schema: Mapping[str, Any], fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    """One row for each argument, with its whole comment; those of nested objects follow, named by their path."""
    needed = set(schema.get("required", ()))
    for name, argument in schema.get("properties", {}).items():
        path = f"{above}{name}"
        kind, nested = _kind(argument)
        told = prose(SHARED.get(name, "") or in_tools(comment(fields[name])))
        yield f"`{path}`", kind + (", needed" if name in needed else ""), told
        if nested is not None:
            below = fields[name].message_type.fields_by_name
            yield from _rows(nested, below, f"{path}[]." if argument.get("type") == "array" else f"{path}.")


def _kind(argument: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """A type in words, and the schema of the objects in it."""
    if "$ref" in argument:
        return str(argument["$ref"]).rpartition("/")[2], None
    match argument.get("type"):
        case "array":
            kind, nested = _kind(argument["items"])
            return f"list of {kind}", nested
        case "object" if "properties" in argument:
            return "object", argument
        case "object":
            return "map", None
        case str(kind):
            return " or ".join(f"`{value}`" for value in argument.get("enum", ())) or kind, None
        case _:
            return "any", None
