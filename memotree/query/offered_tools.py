"""The tools that a query offers to the model: which of the catalogue, with which arguments.

Without a choice these are the everyday tools and the functions that only read, and reach nothing beyond the server: a
text in the store that instructs the model can then neither change anything nor send anything away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree_storage.errors import FieldViolation, InvalidInputError

from memotree.gateways.catalogue import Catalogue
from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_schema import WORKSPACE, input_schema
from memotree.gateways.tool_definitions import BY_NAME
from memotree.models.function_calls import Function
from memotree.query.limits import QueryLimits
from memotree.tools.declaration import Declaration

REVISION: Final = "revision"

_OF_QUERIES: Final = "query"
"""The category of the tools that a query never calls: it would call itself."""

_COSTLY: Final = frozenset({"ask"})
"""Tools that ask the chat model themselves, beyond the budget of the query."""

_SHOWN: Final = 60


class ToolNotOfferedError(InvalidInputError):
    """The request allows a tool that a query cannot call."""

    reason = "TOOL_NOT_OFFERED"


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a query, which runs in one workspace and reads one revision.

    Attributes:
        tools: The tools by name.
        workspace: The workspace of all their calls.
        revision: The revision that those read which are given none; the default branch if empty.
    """

    tools: Mapping[str, Declaration]
    workspace: str
    revision: str = ""

    def functions(self) -> list[Function]:
        """The tools as the model gets them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": parameters_of(tool),
                },
            }
            for tool in self.tools.values()
        ]

    def placed(self, tool: Declaration, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call with its workspace, and the revision that it reads."""
        properties = tool.parameters["properties"]
        placed = dict(arguments)
        if WORKSPACE in properties:
            placed[WORKSPACE] = self.workspace
        if self.revision and tool.read_only and REVISION in properties and not placed.get(REVISION):
            placed[REVISION] = self.revision
        return placed

    def is_elsewhere(self, tool: Declaration, arguments: Mapping[str, Any]) -> bool:
        """Whether a call names another workspace."""
        return WORKSPACE in tool.parameters["properties"] and arguments.get(WORKSPACE) not in (
            None,
            "",
            self.workspace,
        )


def parameters_of(tool: Declaration) -> dict[str, Any]:
    """The schema of a tool's arguments as the model gets it: without the workspace, which the query gives."""
    known = BY_NAME.get(tool.name)
    schema = dict(tool.parameters if known is None else input_schema(known, short=True))
    schema["properties"] = {name: each for name, each in schema["properties"].items() if name != WORKSPACE}
    return schema


async def offered_tools(catalogue: Catalogue, limits: QueryLimits, workspace: str, revision: str) -> OfferedTools:
    """The tools that a query offers.

    Raises:
        ToolNotOfferedError: The request allows tools that there are not, or that a query cannot call.
    """
    if not limits.with_tools:
        return OfferedTools({}, workspace, revision)
    known = {tool.name: tool for tool in await catalogue.listed() if tool.category != _OF_QUERIES}
    if limits.allowed:
        _check(limits.allowed, known)
        return OfferedTools({name: known[name] for name in limits.allowed}, workspace, revision)
    everyday = {tool.name for tool in EVERYDAY}
    chosen = {
        name: tool
        for name, tool in known.items()
        if tool.read_only and not tool.open_world and name not in _COSTLY and (name in everyday or name not in BY_NAME)
    }
    return OfferedTools(chosen, workspace, revision)


def _check(allowed: Sequence[str], known: Mapping[str, Declaration]) -> None:
    faults = [
        FieldViolation(
            f"options.allowed_tools[{number}]",
            f"{name[:_SHOWN]!r} is no tool that a query can call; list the tools for their names.",
        )
        for number, name in enumerate(allowed)
        if name not in known
    ]
    if faults:
        raise ToolNotOfferedError(" ".join(f"{each.field}: {each.description}" for each in faults), faults)
