"""Roles for some tools, folders and hosts, the server's policy and the rate of calls: over every interface."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import mcp
import pytest
from integration.clones import Clone
from integration.guarded import Place, guarded, place, refusal

from memotree.client import Client, InvalidArgumentError, Job, PermissionDeniedError, ResourceExhaustedError, ToolCall
from memotree.v1 import access_service_pb2, workspace_service_pb2

__all__ = ["place"]

pytestmark = [pytest.mark.requirement("TOOL-5"), pytest.mark.requirement("SERVE-3")]

LIMITS = {
    "finder": ("READER", ["search_nodes", "get_*"]),
    "scribe": ("WRITER", ["remember", "ingest_document", "search*", "document_count"]),
    "everything": ("ADMIN", ["*"]),
}


@pytest.fixture(scope="module", autouse=True)
def limited(place: Place) -> None:
    """Principals whose roles are limited to tools."""
    for name, (role, tools) in LIMITS.items():
        place.enter(name, role, tools=tools).close()


def errors(place: Place, name: str, tool: str, typed: Callable[[Client], Any], arguments: dict[str, Any]) -> set[str]:
    """The error codes of a call over each interface."""
    generic = place.client(name).run_tool(tool, arguments)
    batch = place.client(name).run_tools([ToolCall(tool, arguments)])
    http = place.http(name, tool, arguments)
    assert http.status_code == 403
    told = place.memotree(place.keys[name], "tools", "run", tool, "--json", "--arguments", json.dumps(arguments))
    assert told.exit_code != 0
    assert generic.error is not None
    assert batch[0].error is not None
    return {
        refusal(lambda: typed(place.client(name))).reason,
        generic.error.code,
        batch[0].error.code,
        http.json()["error"]["code"],
        place.mcp(name, tool, arguments)["error"]["code"],
        json.loads(told.stdout)["error"]["code"],
    }


def code_of(client: Client, tool: str, **arguments: object) -> str:
    """The error code of a call; "" if it succeeds."""
    error = client.run_tool(tool, arguments).error
    return "" if error is None else error.code


# --- Roles ------------------------------------------------------------------------------------------------------------


def test_a_call_that_a_role_does_not_hold_for_is_refused_alike_everywhere(place: Place) -> None:
    given = {"workspace": "notes", "query": "harbour"}
    typed: Callable[[Client], Any] = lambda client: client.workspace("notes").recall("harbour")  # noqa: E731
    assert errors(place, "finder", "recall", typed, given) == {"TOOL_NOT_PERMITTED"}
    error = refusal(lambda: place.notes("finder").recall("harbour"))
    assert isinstance(error, PermissionDeniedError)
    assert "the roles of finder are limited to other tools" in str(error)


def test_a_call_that_a_role_holds_for_works_everywhere(place: Place) -> None:
    given = {"workspace": "notes", "query": "harbour"}
    assert place.notes("finder").search("harbour")
    assert place.client("finder").run_tool("search_nodes", given).success
    assert place.http("finder", "search_nodes", given).status_code == 200
    assert place.mcp("scribe", "remember", {"workspace": "notes", "text": "By MCP."})["success"]
    finder = place.keys["finder"]
    found = place.memotree(finder, "tools", "run", "get_node", "workspace=notes", "node_id=Harbour")
    assert "Harbour" in found.stdout
    events = list(place.notes("scribe").ingest("A book about boats.", name="Boats"))
    assert next(each.state for each in reversed(events) if isinstance(each, Job)) == "SUCCEEDED"


def test_only_what_one_may_call_is_listed_and_described(place: Place) -> None:
    finder = {"search_nodes", "get_job", "get_node", "get_tree", "get_commit", "get_proposal", "get_push_policy"}
    finder |= {"get_erasure", "get_project"}
    assert {tool.name for tool in place.client("finder").tools()} == finder
    assert refusal(lambda: place.client("finder").tool("recall")).reason == "TOOL_NOT_PERMITTED"
    answer = httpx2.get(f"{place.announced.url}/api/tools", headers=place.headers("finder")).json()
    assert {tool["name"] for tool in answer["tools"]} == finder
    one = httpx2.get(f"{place.announced.url}/api/tools/recall", headers=place.headers("finder"))
    assert (one.status_code, one.json()["error"]["code"]) == (403, "TOOL_NOT_PERMITTED")
    document = f"{place.announced.url}/api/openapi.json"
    for _ in range(2):  # the document of one principal is not answered to another
        paths = httpx2.get(document, headers=place.headers("finder")).json()["paths"]
        assert {path.split("/")[3] for path in paths if path.endswith("/execute")} == finder
        assert "/api/tools/recall/execute" in httpx2.get(document, headers=place.headers("admin")).json()["paths"]
    assert place.mcp_tools("scribe") == {"remember", "ingest_document"}
    assert "recall" in place.mcp_tools("admin")
    assert "recall" not in place.memotree(place.keys["finder"], "tools", "list").stdout


def test_another_spelling_of_a_tool_is_no_tool(place: Place) -> None:
    for name in ("Recall", "RECALL", "\uff52ecall", "re\u0441all", "recall\u200b", "recall ", "reca\u0131l"):
        error = refusal(lambda name=name: place.client("everything").run_tool(name, {"query": "x"}))  # type: ignore[misc]
        assert error.reason == "UNKNOWN_TOOL", name
    assert code_of(place.client("scribe"), "getTree", workspace="notes") == "TOOL_NOT_PERMITTED"


def test_a_function_may_do_what_it_does_and_nothing_more(place: Place) -> None:
    """`document_count` reads the tree, which the role does not hold for by itself; it makes no workspace on the way."""
    client = place.client("scribe")
    assert code_of(client, "document_count", workspace="notes") == ""
    for tool in ("get_tree", "list_documents"):
        assert code_of(client, tool, workspace="notes") == "TOOL_NOT_PERMITTED"
    assert refusal(lambda: list(place.notes("scribe").children())).reason == "TOOL_NOT_PERMITTED"
    with place.enter("counter", "WRITER", workspace="*", tools=["document_count"]) as counter:
        assert code_of(counter, "document_count", workspace="notes") == ""
        assert code_of(counter, "document_count") == "TOOL_NOT_PERMITTED", "the default workspace is not there"
    assert "main" not in [each.name for each in place.client("admin").workspaces()]


def test_what_is_no_tool_needs_a_role_without_that_limit(place: Place) -> None:
    """An administrator that is limited to tools makes no roles, for itself neither, and deletes no workspace."""
    raw = place.client("everything").raw
    deletion = workspace_service_pb2.DeleteWorkspaceRequest(workspace="notes", confirm_name="notes")
    with pytest.raises(grpc.RpcError) as caught:
        raw.workspaces.DeleteWorkspace(deletion)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]
    for role in (access_service_pb2.ROLE_READER, access_service_pb2.ROLE_ADMIN):
        grant = access_service_pb2.GrantRoleRequest(principal="everything", workspace="notes", role=role)
        with pytest.raises(grpc.RpcError):
            raw.access.GrantRole(grant)
    with place.client("everything") as limited:
        refusal(lambda: limited.revoke_role("everything", workspace="notes"))
        assert limited.principal().grants[0].tools == ("*",), "it sees its own roles"
        refusal(lambda: list(limited.principals("notes")))
        with Client(place.announced.address, attempts=1, key=limited.create_key().key) as again:
            assert refusal(lambda: list(again.workspace("notes").tags())).reason == "TOOL_NOT_PERMITTED"
    assert place.client("finder").status().version, "everybody may ask whether the server is there"


def test_git_is_no_tool(place: Place, tmp_path: Path) -> None:
    with place.enter("mixed", "READER"), place.client("admin") as admin:
        admin.grant_role("mixed", "ADMIN", workspace="notes", branches="agents/*", tools=["*"])
    for name in ("everything", "scribe"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            Clone(tmp_path / name, place.git_url(name))
        assert "403" in str(failed.value.stderr)
    clone = Clone(tmp_path / "mixed", place.git_url("mixed"))  # the role without a limit reads
    clone.write("README.md", b"# Changed")
    clone.commit()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        clone.run("push", "origin", "main:agents/x")
    assert "403" in str(failed.value.stderr)


def test_a_role_is_limited_anew_and_told(place: Place) -> None:
    with place.enter("ada", "READER") as ada, place.client("admin") as admin:
        granted = admin.grant_role("ada", "READER", workspace="notes", tools=["search*", "recall", "recall"])
        assert [each.tools for each in granted.grants] == [("recall", "search*")], "in place of the one without a limit"
        assert ada.workspace("notes").recall("harbour")
        admin.grant_role("ada", "READER", workspace="notes", tools=["search*"])
        assert refusal(lambda: ada.workspace("notes").recall("harbour")).reason == "TOOL_NOT_PERMITTED"
    granted_by_hand = place.memotree("", "access", "grant", "ada", "reader", "-w", "notes", "--tools", "get_*,ask")
    assert "with ask, get_*" in granted_by_hand.stdout
    for nothing in ("", ",", " "):
        refused = place.memotree("", "access", "grant", "ada", "reader", "-w", "notes", "--tools", nothing)
        assert refused.exit_code != 0, "an empty list is no way to a role without a limit"


# --- What a tool reaches ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared(place: Place) -> Path:
    """The folder that tools may read."""
    folder = place.folder.parent / "shared"
    for name in ("manuals", "manuals-of-others", "letters", "manuals/inner"):
        (folder / name).mkdir()
        (folder / name / "note.txt").write_text(f"A note in {name}.", encoding="utf-8")
    (folder / "manuals" / "leads-out").symlink_to(folder / "letters")
    (folder.parent / "outside.txt").write_text("outside", encoding="utf-8")
    return folder


def entered(place: Place, name: str, *tools: str, role: str = "READER") -> Client:
    """A client of a new principal with a role in all workspaces that is limited so."""
    return place.enter(name, role, workspace="*", tools=tools)


def test_files_are_read_in_the_folders_of_the_role_alone(place: Place, shared: Path) -> None:
    manuals = str(shared / "manuals")
    with entered(place, "reading", f"read_file:{manuals}", f"list_folder:{manuals}") as client:
        assert code_of(client, "read_file", path=f"{manuals}/note.txt") == ""
        assert code_of(client, "read_file", path="inner/note.txt") == ""
        for path in (
            f"{shared}/letters/note.txt",
            f"{shared}/manuals-of-others/note.txt",
            f"{manuals}/leads-out/note.txt",
            f"{manuals}/../letters/note.txt",
            f"{shared.parent}/outside.txt",
        ):
            assert code_of(client, "read_file", path=path) == "FILE_NOT_ALLOWED", path
        listed = client.run_tool("list_folder", {})
        assert listed.data is not None
        assert listed.data["folders"] == [manuals]
        assert code_of(client, "list_folder", path=str(shared)) == "FILE_NOT_ALLOWED"
    refused = place.http("reading", "read_file", {"path": f"{shared}/letters/note.txt"})
    assert refused.json()["error"]["code"] == "FILE_NOT_ALLOWED"
    with entered(place, "two-roles", f"read_file:{manuals}", "read_*") as client:
        assert code_of(client, "read_file", path=f"{shared}/letters/note.txt") == "", "the other entry has no limit"


def test_a_role_never_widens_what_the_server_allows(place: Place, shared: Path) -> None:
    with entered(place, "wide", "read_file:/", "list_folder:/etc") as client:
        assert code_of(client, "read_file", path=f"{shared}/letters/note.txt") == ""
        assert code_of(client, "read_file", path="/etc/passwd") == "FILE_NOT_ALLOWED"
        assert code_of(client, "read_file", path=f"{shared.parent}/outside.txt") == "FILE_NOT_ALLOWED"
        assert code_of(client, "list_folder", path="/etc") == "FILE_NOT_ALLOWED"


def test_hosts_are_those_of_the_role_and_of_the_server(place: Place) -> None:
    tools = ("http_request:api.example.invalid", "http_request:third.invalid", "check_host:*.example.invalid")
    with entered(place, "calling", *tools, role="WRITER") as client:
        # No name server knows these names, so a host that may be reached has no address.
        assert code_of(client, "http_request", url="https://api.example.invalid/") == "HOST_UNREACHABLE"
        for host in ("www.example.invalid", "other.invalid", "third.invalid", "api.example.invalid:8443"):
            assert code_of(client, "http_request", url=f"https://{host}/") == "HOST_NOT_ALLOWED", host
        assert code_of(client, "check_host", host="www.example.invalid") == "HOST_UNREACHABLE"
        assert code_of(client, "check_host", host="other.invalid") == "HOST_NOT_ALLOWED"


NO_LIMITS: list[tuple[str, str]] = [
    ("read_file:manuals", "give an absolute path"),
    ("read_file:/srv/../etc", "give an absolute path"),
    ("read_file:", "must be the name of a tool"),
    ("read_*:/srv", "must be the name of a tool"),
    ("http_request:https://example.com", "is no host"),
    ("http_request:ex ample.com", "is no host"),
    ("recall:/srv", "reaches no folder and no host"),
    ("search_web:example.com", "reaches no folder and no host"),
    ("read_fil:/srv", "Did you mean read_file?"),
    *((tool, "") for tool in ("Recall", "recal", "re*ll", "\uff52ecall", "recall,forget", "nothing*", "")),
]


def test_a_name_of_no_tool_and_a_limit_that_means_nothing_are_refused(place: Place) -> None:
    with place.client("admin") as admin:
        admin.put_principal("unlimited")
        for tool, told in NO_LIMITS:
            with pytest.raises(InvalidArgumentError) as refused:
                admin.grant_role("unlimited", "READER", workspace="*", tools=["recall", tool])
            assert "tools[1]" in str(refused.value.violations), tool
            assert told in str(refused.value), tool


# --- The server -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with a policy and a rate: four calls, and then one a minute."""
    with guarded(
        tmp_path_factory.mktemp("slow") / "data",
        MEMOTREE_TOOLS_LEVEL="normal",
        MEMOTREE_TOOLS_CALLS_PER_MINUTE="1",
        MEMOTREE_TOOLS_BURST="4",
        MEMOTREE_TOOLS_BUILTIN='{"calculator": {"enabled": false}, "history": {"enabled": false}}',
        MEMOTREE_MCP_TOOLS="all",
    ) as found:
        found.enter("everything", "ADMIN", tools=["*"]).close()
        yield found


@pytest.mark.requirement("TOOL-11")
def test_what_the_server_does_not_offer_is_refused_alike_and_not_counted(slow: Place) -> None:
    for _ in range(5):
        given = {"workspace": "notes", "node_id": "Harbour"}
        result = slow.client("admin").run_tool("forget", given)
        assert result.error is not None
        assert result.error.code == "TOOL_NOT_PERMITTED"
    assert "tools_level normal" in result.error.message
    http = slow.http("admin", "forget", given)
    assert (http.status_code, http.json()["error"]["code"]) == (403, "TOOL_NOT_PERMITTED")
    assert slow.mcp("admin", "forget", given)["error"]["code"] == "TOOL_NOT_PERMITTED"
    off = slow.http("admin", "history", {}).json()["error"]
    assert (off["code"], "tools.builtin.history" in off["message"]) == ("TOOL_NOT_PERMITTED", True)
    assert slow.http("admin", "calculator", {"expression": "1"}).json()["error"]["code"] == "UNKNOWN_TOOL"
    with pytest.raises(ExceptionGroup) as unknown:
        slow.mcp("admin", "calculator", {"expression": "1"})
    assert unknown.group_contains(mcp.MCPError, match="off on this server")
    names = {tool.name for tool in slow.client("admin").tools()}
    assert names == slow.mcp_tools("admin")
    assert not names & {"forget", "history", "calculator", "erase"}
    slow.notes("admin").forget("Harbour")  # a typed call is no tool: it needs the role alone


@pytest.mark.requirement("TOOL-4")
def test_who_calls_too_often_is_told_when_to_come_again_over_every_interface(slow: Place) -> None:
    calls = [ToolCall("date_time", {}) for _ in range(6)]
    results = slow.client("admin").run_tools(calls, go_on=True)
    codes = [each.error.code if each.error else "" for each in results]
    assert codes == ["", "", "", "", "TOOL_RATE_EXCEEDED", "TOOL_RATE_EXCEEDED"], "each call of a batch counts"
    error = refusal(lambda: slow.client("admin").run_tool("date_time", {}))
    assert isinstance(error, ResourceExhaustedError)
    assert error.reason == "TOOL_RATE_EXCEEDED"
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 60
    for tool in ("date_time", "status"):  # a function, and a tool that calls an RPC
        http = slow.http("admin", tool, {})
        assert (http.status_code, http.json()["error"]["code"]) == (429, "TOOL_RATE_EXCEEDED")
        assert 0 < int(http.headers["retry-after"]) <= 60
        told = slow.mcp("admin", tool, {})["error"]
        assert (told["code"], told["status"]) == ("TOOL_RATE_EXCEEDED", "RESOURCE_EXHAUSTED")
        assert 0 < told["details"]["retry_after"] <= 60
    printed = slow.memotree("", "tools", "run", "date_time")
    assert printed.exit_code != 0
    assert "send it again in" in " ".join(printed.stderr.split())
    assert slow.client("everything").run_tool("date_time", {}).success, "others are not kept waiting"
    assert slow.client("admin").status().version, "typed calls are not counted"
