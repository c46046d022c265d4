"""A role may limit what a tool reaches: folders for files, hosts for requests; over every interface."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from integration.test_git_over_http import running

from memotree.client import Client, InvalidArgumentError

pytestmark = pytest.mark.requirement("TOOL-5")


@dataclass(frozen=True)
class Place:
    """A server whose tools may read a folder and reach some hosts, and its administrator."""

    admin: Client
    address: str
    url: str
    shared: Path

    def client(self, name: str, *tools: str, role: str = "READER") -> Client:
        """A client of a new principal with a role in all workspaces that is limited so."""
        self.admin.put_principal(name)
        self.admin.grant_role(name, role, workspace="*", tools=tools)  # type: ignore[arg-type] # the name of a role
        return Client(self.address, attempts=1, key=self.admin.create_key(name).key)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("reach")
    shared = folder / "shared"
    for name in ("manuals", "manuals-of-others", "letters", "manuals/inner"):
        (shared / name).mkdir(parents=True)
        (shared / name / "note.txt").write_text(f"A note in {name}.", encoding="utf-8")
    (shared / "manuals" / "leads-out").symlink_to(shared / "letters")
    (folder / "outside.txt").write_text("outside", encoding="utf-8")
    settings = {
        "MEMOTREE_AUTHENTICATION": "keys",
        "MEMOTREE_API_KEY": "",
        "MEMOTREE_TOOLS_FOLDERS": str(shared),
        "MEMOTREE_TOOLS_HOSTS": "*.example.invalid,other.invalid",
    }
    data = folder / "data"
    with (
        running(data, **settings) as (announced, _),
        Client(announced.address, attempts=1, key=(data / "admin.key").read_text().strip()) as admin,
    ):
        yield Place(admin, announced.address, announced.url, shared)


def code_of(client: Client, tool: str, **arguments: object) -> str:
    error = client.run_tool(tool, arguments).error
    return "" if error is None else error.code


def test_files_are_read_in_the_folders_of_the_role_alone(place: Place) -> None:
    manuals = str(place.shared / "manuals")
    with place.client("reading", f"read_file:{manuals}", f"list_folder:{manuals}") as client:
        assert code_of(client, "read_file", path=f"{manuals}/note.txt") == ""
        assert code_of(client, "read_file", path="inner/note.txt") == ""
        for path in (
            f"{place.shared}/letters/note.txt",
            f"{place.shared}/manuals-of-others/note.txt",
            f"{manuals}/leads-out/note.txt",
            f"{manuals}/../letters/note.txt",
            f"{place.shared.parent}/outside.txt",
        ):
            assert code_of(client, "read_file", path=path) == "FILE_NOT_ALLOWED", path
        listed = client.run_tool("list_folder", {})
        assert listed.data is not None
        assert listed.data["folders"] == [manuals]
        assert code_of(client, "list_folder", path=str(place.shared)) == "FILE_NOT_ALLOWED"


def test_a_role_never_widens_what_the_server_allows(place: Place) -> None:
    with place.client("wide", "read_file:/", "list_folder:/etc") as client:
        assert code_of(client, "read_file", path=f"{place.shared}/letters/note.txt") == ""
        assert code_of(client, "read_file", path="/etc/passwd") == "FILE_NOT_ALLOWED"
        assert code_of(client, "read_file", path=f"{place.shared.parent}/outside.txt") == "FILE_NOT_ALLOWED"
        assert code_of(client, "list_folder", path="/etc") == "FILE_NOT_ALLOWED"


def test_hosts_are_those_of_the_role_and_of_the_server(place: Place) -> None:
    tools = ("http_request:api.example.invalid", "http_request:third.invalid", "check_host:*.example.invalid")
    with place.client("calling", *tools, role="WRITER") as client:
        # No name server knows these names, so a host that may be reached has no address.
        assert code_of(client, "http_request", url="https://api.example.invalid/") == "HOST_UNREACHABLE"
        for host in ("www.example.invalid", "other.invalid", "third.invalid", "api.example.invalid:8443"):
            assert code_of(client, "http_request", url=f"https://{host}/") == "HOST_NOT_ALLOWED", host
        assert code_of(client, "check_host", host="www.example.invalid") == "HOST_UNREACHABLE"
        assert code_of(client, "check_host", host="other.invalid") == "HOST_NOT_ALLOWED"


def test_the_limit_holds_over_http_and_in_a_batch(place: Place) -> None:
    manuals = str(place.shared / "manuals")
    place.admin.put_principal("by-http")
    place.admin.grant_role("by-http", "READER", workspace="*", tools=[f"read_file:{manuals}"])
    headers = {"authorization": f"Bearer {place.admin.create_key('by-http').key}"}
    url = f"{place.url}/api/tools/read_file/execute"
    refused = httpx2.post(url, json={"path": f"{place.shared}/letters/note.txt"}, headers=headers)
    assert refused.json()["error"]["code"] == "FILE_NOT_ALLOWED"
    assert httpx2.post(url, json={"path": f"{manuals}/note.txt"}, headers=headers).json()["success"]
    tools = httpx2.get(f"{place.url}/api/tools", headers=headers).json()["tools"]
    assert [each["name"] for each in tools] == ["read_file"]


def test_another_role_without_the_limit_lifts_it(place: Place) -> None:
    manuals = str(place.shared / "manuals")
    with place.client("two-roles", f"read_file:{manuals}", "read_*") as client:
        assert code_of(client, "read_file", path=f"{place.shared}/letters/note.txt") == ""


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("read_file:manuals", "give an absolute path"),
        ("read_file:/srv/../etc", "give an absolute path"),
        ("read_file:", "must be the name of a tool"),
        ("read_*:/srv", "must be the name of a tool"),
        ("http_request:https://example.com", "is no host"),
        ("http_request:ex ample.com", "is no host"),
        ("recall:/srv", "reaches no folder and no host"),
        ("search_web:example.com", "reaches no folder and no host"),
        ("read_fil:/srv", "Did you mean read_file?"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(place: Place, limit: str, told: str) -> None:
    place.admin.put_principal("nobody")
    with pytest.raises(InvalidArgumentError, match="tools") as refused:
        place.admin.grant_role("nobody", "READER", workspace="*", tools=["recall", limit])
    assert told in str(refused.value)
