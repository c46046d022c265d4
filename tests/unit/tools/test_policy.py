"""Which tools a server offers to anybody, and which calls a role that is limited to tools holds for."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.tool_patterns import is_tool_pattern, names_tool

from memotree.gateways.json_schema import declaration
from memotree.gateways.tool_definitions import BY_NAME, TOOLS, tools_by_call
from memotree.gateways.tool_settings import OWN
from memotree.identity.errors import ToolNotPermittedError
from memotree.identity.guard import FOR_ALL
from memotree.identity.permissions import PERMISSIONS
from memotree.planner import declared_tools
from memotree.request.principal import ALL_BRANCHES, ALL_WORKSPACES, LOCAL, Grant, Principal, Role, acting_as
from memotree.settings import ToolLevel
from memotree.tools.builtin.services import NAMES, ToolOptions, builtin_tools
from memotree.tools.declaration import Declaration, Permission
from memotree.tools.permitting import check_permitted
from memotree.tools.policy import ToolAdmission, ToolPolicy

pytestmark = pytest.mark.requirement("TOOL-5")

BUILTIN = builtin_tools(ToolOptions(("/",), (), ("*",), "http://127.0.0.1/"))
FUNCTIONS = [tool.declaration for tool in (*BUILTIN, *declared_tools())]
ALL = {tool.name: tool for tool in (*map(declaration, TOOLS), *FUNCTIONS)}
LEVELS: tuple[ToolLevel, ...] = ("strict", "normal", "permissive")
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "tool-policy.md"


def offered(policy: ToolPolicy) -> set[str]:
    return {name for name, tool in ALL.items() if not policy.refusal(tool)}


# --- The server's policy ----------------------------------------------------------------------------------------------


def test_each_level_allows_what_the_one_before_it_does_by_what_tools_declare() -> None:
    strict, normal, permissive = (offered(ToolPolicy(level, own=OWN)) for level in LEVELS)
    assert strict < normal < permissive == set(ALL) == set(OWN)
    for name, tool in ALL.items():
        beyond = {each.resource for each in tool.permissions} - {"workspace", "server"}
        assert (name in strict) == (tool.read_only and not beyond), name
        assert (name in normal) == (not tool.destructive and "host" not in beyond), name


def test_the_page_says_of_each_tool_at_which_level_it_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(strict|normal|permissive)` \|.*?\| ([^|]*) \|$", text, re.MULTILINE))
    before: set[str] = set()
    for level in LEVELS:
        now = offered(ToolPolicy(level, own=OWN))
        assert set(re.findall(r"`(\w+)`", rows[level])) == now - before, (
            f"write the tools of the level {level} into {PAGE.name}"
        )
        before = now


def test_what_a_package_says_of_its_tool_is_believed_at_the_level_normal() -> None:
    harmless = replace(ALL["calculator"], name="show_weather")
    assert ToolPolicy("strict", own=OWN).refusal(harmless)
    assert not ToolPolicy("normal", own=OWN).refusal(harmless)
    for worse in (
        replace(harmless, destructive=True),
        replace(harmless, permissions=(Permission("delete", "workspace"),)),
        replace(harmless, open_world=True),
        replace(harmless, permissions=(Permission("read", "host"),)),
    ):
        assert ToolPolicy("normal", own=OWN).refusal(worse)
        assert not ToolPolicy("permissive", own=OWN).refusal(worse)


def test_all_but_the_allowed_is_denied_when_some_are_allowed() -> None:
    assert offered(ToolPolicy(allowed=("search*", "recall"), own=OWN)) == {"search_nodes", "search_web", "recall"}
    assert offered(ToolPolicy("strict", ("forget", "re*"), own=OWN)) == {
        name for name in ALL if name.startswith("re") and name in offered(ToolPolicy("strict", own=OWN))
    }
    assert offered(ToolPolicy(disabled={"recall"}, own=OWN)) == set(ALL) - {"recall"}
    assert "tools_allowed" in ToolPolicy(allowed=("recall",)).refusal(ALL["forget"])
    assert "tools_level normal" in ToolPolicy("normal").refusal(ALL["forget"])


def test_what_is_no_pattern_is_refused() -> None:
    texts = (
        *("", " ", "Recall", "RECALL*", "recall ", "recall,forget", "*recall", "re*ll", "re**", "**", "recall\n", "_a"),
        *("\uff52ecall", "re\u0441all", "recall\u200b", "reca\u0131l", "recall\x00", "recall/", "r?call", "[a-z]"),
    )
    assert [text for text in (*texts, "a" * 65) if is_tool_pattern(text)] == []


@given(st.text(alphabet="reca*_1", max_size=6), st.text(alphabet="reca_1", min_size=1, max_size=6))
def test_a_pattern_names_what_it_says(pattern: str, name: str) -> None:
    if is_tool_pattern(pattern):
        expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
        assert names_tool((pattern,), name) == expected


# --- Roles ------------------------------------------------------------------------------------------------------------

PATTERNS = ("*", "recall", "re*", "get_node", "get_*", "forget")
NAMED = ("recall", "remember", "get_node", "get_tree", "forget")

grants = st.builds(
    Grant,
    st.sampled_from(("*", "w1", "w2")),
    st.sampled_from(("*", "main", "agents/*")),
    st.sampled_from(list(Role)),
    st.lists(st.sampled_from(PATTERNS), max_size=3).map(tuple),
)


def holds(grant: Grant, tools: Sequence[str]) -> bool:
    """The model: a role without tools holds for every call, any other for the calls of what its patterns match."""
    patterns = [re.escape(each).replace(r"\*", ".*") for each in grant.tools]
    return not grant.tools or any(re.fullmatch(each, tool) for each in patterns for tool in tools)


@given(st.lists(grants, max_size=5), st.lists(st.sampled_from(NAMED), max_size=2, unique=True))
def test_a_call_has_the_roles_that_hold_for_its_tools(given_roles: list[Grant], tools: list[str]) -> None:
    who = Principal("ada", grants=tuple(given_roles))
    calling, expected = who.calling(*tools), [grant for grant in given_roles if holds(grant, tools)]
    assert sorted(map(str, calling.grants)) == sorted(map(str, expected))
    everywhere = [each.role for each in expected if each.workspace_id == each.branches == "*"]
    assert calling.server_role == max(everywhere, default=Role.NONE)
    for tool in tools:
        limited = [grant for grant in given_roles if grant.tools]
        assert who.may_call(tool) == (not limited or any(holds(grant, (tool,)) for grant in given_roles))


def test_every_tool_that_calls_an_rpc_is_known_to_the_check_of_that_rpc() -> None:
    by_call = tools_by_call()
    for tool in TOOLS:
        assert tool.name in by_call[tool.call]
    assert by_call.keys() <= PERMISSIONS.keys()
    assert by_call.keys() >= FOR_ALL
    others = {call: names for call, names in by_call.items() if names - {t.name for t in TOOLS if t.call == call}}
    assert others.keys() == {"NodeService.ResolveNode", "JobService.WatchJob"}, "what stands for another tool, too"
    assert set().union(*by_call.values()) == set(BY_NAME)


def test_a_tool_that_a_role_does_not_hold_for_is_not_permitted() -> None:
    admission = ToolAdmission()
    limited = Principal("ada", grants=(Grant("*", "*", Role.ADMIN, ("re*",)),))
    with acting_as(limited):
        assert {name for name, tool in ALL.items() if admission.permits(tool)} == {
            name for name in ALL if name.startswith("re")
        }
        with pytest.raises(ToolNotPermittedError, match="roles of ada are limited to other tools"):
            admission.check(ALL["calculator"])
    with acting_as(Principal("stranger")):
        assert all(map(admission.permits, ALL.values())), "who has no role at all is kept from workspaces by that"


def test_the_names_of_functions_are_those_of_the_policy() -> None:
    assert {tool.name for tool in FUNCTIONS} == set(NAMES)
    assert all(isinstance(tool, Declaration) for tool in ALL.values())


# --- Functions that reach beyond workspaces ---------------------------------------------------------------------------

READS = {"read_file", "list_folder", "check_host", "search_web"}
WRITES = {"http_request"}


def permitted(who: Principal) -> set[str]:
    found = set()
    with acting_as(who):
        for told in FUNCTIONS:
            with suppress(ToolNotPermittedError):
                check_permitted(told)
                found.add(told.name)
    return found


def somebody(role: Role, workspace: str = ALL_WORKSPACES, branches: str = ALL_BRANCHES) -> Principal:
    return Principal("ada", grants=(Grant(workspace, branches, role),))


@pytest.mark.requirement("TOOL-3", "TOOL-6")
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


@pytest.mark.requirement("TOOL-3", "TOOL-6")
def test_a_function_of_a_plugin_needs_a_role_in_all_workspaces_whatever_it_says() -> None:
    with acting_as(Principal("ada")), pytest.raises(ToolNotPermittedError, match="calculator needs the role writer"):
        check_permitted(replace(ALL["calculator"], read_only=False), of_plugin=True)
    with acting_as(somebody(Role.READER)):
        check_permitted(ALL["calculator"], of_plugin=True)
