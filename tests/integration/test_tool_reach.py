"""A role may limit what a tool reaches: folders for files, hosts for requests; over every interface."""

from pathlib import Path

import httpx2
import pytest
from integration.guarded import Place, place

from memotree.client import Client, InvalidArgumentError

__all__ = ["place"]

pytestmark = pytest.mark.requirement("TOOL-5")


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


def code_of(client: Client, tool: str, **arguments: object) -> str:
    error = client.run_tool(tool, arguments).error
    return "" if error is None else error.code


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


def test_the_limit_holds_over_http_and_in_a_batch(place: Place, shared: Path) -> None:
    manuals = str(shared / "manuals")
    with entered(place, "by-http", f"read_file:{manuals}") as client:
        assert [each.name for each in client.tools()] == ["read_file"]
    refused = place.http("by-http", "read_file", {"path": f"{shared}/letters/note.txt"})
    assert refused.json()["error"]["code"] == "FILE_NOT_ALLOWED"
    assert place.http("by-http", "read_file", {"path": f"{manuals}/note.txt"}).json()["success"]
    tools = httpx2.get(f"{place.announced.url}/api/tools", headers=place.headers("by-http")).json()["tools"]
    assert [each["name"] for each in tools] == ["read_file"]


def test_another_role_without_the_limit_lifts_it(place: Place, shared: Path) -> None:
    manuals = str(shared / "manuals")
    with entered(place, "two-roles", f"read_file:{manuals}", "read_*") as client:
        assert code_of(client, "read_file", path=f"{shared}/letters/note.txt") == ""


NO_LIMITS = [
    ("read_file:manuals", "give an absolute path"),
    ("read_file:/srv/../etc", "give an absolute path"),
    ("read_file:", "must be the name of a tool"),
    ("read_*:/srv", "must be the name of a tool"),
    ("http_request:https://example.com", "is no host"),
    ("http_request:ex ample.com", "is no host"),
    ("recall:/srv", "reaches no folder and no host"),
    ("search_web:example.com", "reaches no folder and no host"),
    ("read_fil:/srv", "Did you mean read_file?"),
]


def test_a_limit_that_means_nothing_is_refused(place: Place) -> None:
    with place.client("admin") as admin:
        admin.put_principal("unlimited")
        for limit, told in NO_LIMITS:
            with pytest.raises(InvalidArgumentError, match="tools") as refused:
                admin.grant_role("unlimited", "READER", workspace="*", tools=["recall", limit])
            assert told in str(refused.value), limit
