"""``memotree tools``: the tools that agents call, listed, explained and called from the terminal."""

import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from memotree.cli.context import SERVER, WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode
from memotree.cli.target import announced_url
from memotree.cli.terminal.output import ID, facts, table
from memotree.request.json_objects import RepeatedNameError, distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from memotree.client import Tool

NameArgument = Annotated[str, typer.Argument(metavar="TOOL", help="The tool, such as get_node.")]


class ToolArgumentsError(CliError):
    """The arguments of a tool were not given as they must be."""

    reason = "TOOL_ARGUMENTS"


@command("tools list", SERVER)
def list_(
    cli: CliContext,
    category: Annotated[str, typer.Option("--category", help="Only tools of this category, such as node.")] = "",
) -> None:
    """List the tools that agents can call, those of an agent's day first."""
    found = cli.client.tools(category)
    cli.output.show(
        {"tools": found},
        lambda: table(
            [("Tool", ID), "Category", "What it does", ("", "dim")],
            [(each.name, each.category, each.title, _kind(each)) for each in found],
            empty="There are no tools.",
        ),
    )


@command("tools info", SERVER)
def info(cli: CliContext, name: NameArgument) -> None:
    """Show what a tool does, and its arguments."""
    found = cli.client.tool(name)
    cli.output.show(found, lambda: _look(found))


@command("tools openapi", SERVER)
def openapi(
    cli: CliContext,
    url: Annotated[
        str, typer.Option("--url", help="The URL of the server that is in it; that of this server when not given.")
    ] = "",
) -> None:
    """Print the OpenAPI document of the tools over HTTP, for programs that generate clients from it."""
    from memotree.gateways.openapi import openapi_document  # noqa: PLC0415 - other commands need no table of tools

    found = [asdict(each) for each in cli.client.tools()]
    cli.output.document(openapi_document(found, cli.client.status().version, url or announced_url(cli.address) or "/"))


@command("tools run", WORKSPACE)
def run(
    cli: CliContext,
    name: NameArgument,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="Arguments; a value that is no text is written as JSON."),
    ] = None,
    arguments: Annotated[
        str, typer.Option("--arguments", help="All arguments as one JSON object; `-` reads it from stdin.")
    ] = "",
    agent: Annotated[str, typer.Option("--agent", help="Who calls.", envvar="MEMOTREE_AGENT")] = "",
) -> None:
    """Call a tool, as an agent would, and print what the agent would read."""
    values = _object(sys.stdin.read() if arguments == "-" else arguments)
    if given:
        pairs = _pairs(given, cli.client.tool(name).parameters.get("properties", {}))
        twice = sorted(pairs.keys() & values.keys())
        if twice:
            raise ToolArgumentsError(f"{twice[0]} is given twice: by --arguments and by itself.")
        values |= pairs
    result = cli.client.run_tool(name, values, workspace=cli.choice.workspace, agent=agent)
    cli.output.show(result, lambda: f"{result.text}\n" if result.success else None)
    if result.error is not None:
        cli.output.error(result.text)
        raise typer.Exit(ExitCode.FAILED)


def _kind(tool: "Tool") -> str:
    return "reads" if tool.read_only else "may delete or overwrite" if tool.destructive else ""


def _look(tool: "Tool") -> "RenderableType":
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    needed = tool.parameters.get("required", ())
    lines: list[RenderableType] = [
        facts(
            [
                ("tool", tool.name),
                ("category", tool.category),
                ("changes", _kind(tool) or "adds or changes"),
                ("needs", ", ".join(f"to {each.action} a {each.resource}" for each in tool.permissions) or "nothing"),
            ]
        ),
        Text(f"\n{tool.description}\n"),
        table(
            [("Argument", ID), "Type", "What it is"],
            [
                (name, _type(schema), f"{'Needed. ' if name in needed else ''}{schema.get('description', '')}".strip())
                for name, schema in properties.items()
            ],
            empty="It has no arguments.",
        ),
    ]
    examples = (shlex.quote(json.dumps(each, ensure_ascii=False)) for each in tool.examples)
    return Group(*lines, *(Text(f"\nmemotree tools run {tool.name} --arguments {each}") for each in examples))


def _type(schema: "Mapping[str, Any]") -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", ""))


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=distinct) if text.strip() else {}
    except RepeatedNameError as error:
        raise ToolArgumentsError(f"The text of the arguments {error}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ToolArgumentsError('The arguments are no JSON object; give one like {"page_size": 10}.')
    return found


def _pairs(given: "Iterable[str]", properties: "Mapping[str, Any]") -> dict[str, Any]:
    """The arguments of ``name=value``.

    Where the tool is known to expect no text, the value is read as JSON if it is any. A tool takes some arguments under
    other names, too; their values stay texts, and the server reads these as they are meant.
    """
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ToolArgumentsError(f"{pair!r} has no value; write {pair}=VALUE.")
        if name in found:
            raise ToolArgumentsError(f"{name} is given twice; give it once, a list as JSON.")
        found[name] = text if properties.get(name, {}).get("type", "string") == "string" else _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError):
        return text  # the tool says which type it expects
