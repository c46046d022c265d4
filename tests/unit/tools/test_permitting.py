"""Who may call a function that reaches beyond workspaces."""

from contextlib import suppress
from dataclasses import replace

import pytest

from memotree.planner import declared_tools
from memotree.request.principal import ALL_BRANCHES, ALL_WORKSPACES, LOCAL, Grant, Principal, Role, acting_as
from memotree.tools.builtin.services import NAMES, ToolOptions, builtin_tools
from memotree.tools.permitting import ToolNotPermittedError, check_permitted

pytestmark = [pytest.mark.requirement("TOOL-3"), pytest.mark.requirement("TOOL-6")]

FUNCTIONS = builtin_tools(ToolOptions(("/",), (), ("*",), "http://127.0.0.1/"))
TOOLS = {tool.name: tool.declaration for tool in (*FUNCTIONS, *declared_tools())}
READS = {"read_file", "list_folder", "check_host", "search_web"}
WRITES = {"http_request"}


def permitted(who: Principal) -> set[str]:
    found = set()
    with acting_as(who):
        for name, told in TOOLS.items():
            with suppress(ToolNotPermittedError):
                check_permitted(told)
                found.add(name)
    return found


def somebody(role: Role, workspace: str = ALL_WORKSPACES, branches: str = ALL_BRANCHES) -> Principal:
    return Principal("ada", grants=(Grant(workspace, branches, role),))


def test_files_and_hosts_need_a_role_in_all_workspaces() -> None:
    everything = set(NAMES)
    assert permitted(LOCAL) == everything, "without authentication, everybody on this machine may do everything"
    assert permitted(somebody(Role.WRITER)) == permitted(somebody(Role.ADMIN)) == everything
    assert permitted(somebody(Role.READER)) == everything - WRITES
    for stranger in (
        Principal("ada"),
        somebody(Role.ADMIN, "0123456789abcdef"),
        somebody(Role.ADMIN, ALL_WORKSPACES, "drafts/*"),
    ):
        assert permitted(stranger) == everything - READS - WRITES


def test_a_function_of_a_plugin_needs_a_role_in_all_workspaces_whatever_it_says() -> None:
    with acting_as(Principal("ada")), pytest.raises(ToolNotPermittedError, match="calculator needs the role writer"):
        check_permitted(replace(TOOLS["calculator"], read_only=False), of_plugin=True)
    with acting_as(somebody(Role.READER)):
        check_permitted(TOOLS["calculator"], of_plugin=True)
