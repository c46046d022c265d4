"""Runs functions in a process of its own: ``python -m memotree.tools.worker SECONDS BYTES``.

A request has the function and its arguments as its body, pickled by the server. An answer has the JSON of what the
function returned as its body; the server reads nothing else from here, since a function of a plugin may write what it
likes. A request about a plugin names it and its tool in the head, and has the arguments as JSON; this process alone
imports it.
"""

import asyncio
import inspect
import json
import pickle
import sys
import traceback
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from memotree_storage.errors import MemoTreeError

from memotree.tools.errors import to_head
from memotree.tools.function_tool import PLUGINS, FunctionTool, tools_of
from memotree.tools.own_settings import given_settings
from memotree.tools.results import MOST_BYTES, as_text
from memotree.tools.signature import UndeclarableError, WrongArgumentsError
from memotree.workers.process import answer_requests, encode


def main() -> None:
    """Answer requests until the input ends."""
    answer_requests(_answer, float(sys.argv[1]), int(sys.argv[2]))


def _answer(head: dict[str, Any], body: bytes) -> bytes:
    try:
        if "plugin" in head:
            with given_settings(head.get("settings", {})):
                found = _of_plugin(head["plugin"], head.get("tool", ""), body)
        else:
            function, values = pickle.loads(body)  # noqa: S301 - from the server that started this process
            found = function(**values)
        return _within(as_text(found).encode())
    except WrongArgumentsError as error:
        return encode({"faults": [[fault.field, fault.description] for fault in error.violations]})
    except MemoTreeError as error:
        return encode(to_head(error))
    except MemoryError:
        return encode({"cause": "memory"})
    except Exception:  # noqa: BLE001 - whatever a function raises; the server logs it and goes on
        return encode({"defect": traceback.format_exc()})


def _of_plugin(plugin: str, name: str, body: bytes) -> Any:
    """What a tool of a plugin returns; without a name, what the plugin declares."""
    tools = _tools(plugin)
    if not name:
        return {"tools": [_described(tool) for tool in tools.values()]}
    tool = tools[name]
    values, faults = tool.signature.read(json.loads(body))
    if faults:
        raise WrongArgumentsError(faults)
    found = tool.function(**values)
    return asyncio.run(found) if inspect.iscoroutine(found) else found


@cache
def _tools(plugin: str) -> dict[str, FunctionTool]:
    """The tools of a plugin by name."""
    (entry, *_) = entry_points(group=PLUGINS, name=plugin)
    found = entry.load()
    if isinstance(found, type):
        tools: list[FunctionTool] = list(tools_of(found()))
    else:
        tools = [FunctionTool(each) for each in ([found] if callable(found) else found)]
    for tool in tools:
        if tool.signature.given:
            raise UndeclarableError(f"{tool.name} takes a CallContext, which a plugin is not given.")
    return {tool.name: tool for tool in tools}


def _described(tool: FunctionTool) -> dict[str, Any]:
    timeout = tool.options.timeout
    return {**tool.declaration.to_json(), **({"seconds": timeout.total_seconds()} if timeout else {})}


def _within(data: bytes) -> bytes:
    return encode({}, data) if len(data) <= MOST_BYTES else encode({"cause": "length"})


if __name__ == "__main__":
    main()
