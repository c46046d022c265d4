"""Servers that need API keys: one with a principal for each role, which tests share, and those with other settings."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import httpx2
import pytest
from click.testing import Result
from integration.http_servers import running
from integration.mcp_clients import WHOLE
from mcp import Client as Agent
from mcp.client.streamable_http import streamable_http_client
from memotree_storage.model.node import new_id
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import Client, Job, MemoTreeClientError, Workspace
from memotree.server.announcement import Announcement

_SHARED: Final = pytest.StashKey["Place"]()
PEOPLE: Final = {"reader": "READER", "writer": "WRITER", "reviewer": "REVIEWER", "keeper": "ADMIN"}


@dataclass(frozen=True)
class Place:
    """A server that needs keys, with the workspaces ``notes`` and ``elsewhere`` and keys of some principals by name."""

    announced: Announcement
    folder: Path
    keys: dict[str, str]

    def client(self, name: str) -> Client:
        return Client(self.announced.address, attempts=1, key=self.keys[name])

    def notes(self, name: str) -> Workspace:
        return self.client(name).workspace("notes")

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}

    def git_url(self, name: str) -> str:
        return self.announced.url.replace("http://", f"http://{name}:{self.keys[name]}@") + "/git/notes"

    def http(self, name: str, tool: str, arguments: dict[str, Any]) -> httpx2.Response:
        url = f"{self.announced.url}/api/tools/{tool}/execute"
        return httpx2.post(url, json=arguments, headers=self.headers(name))

    def mcp(self, name: str, tool: str, arguments: dict[str, Any]) -> Any:
        """The result of a tool over MCP."""
        return self._over_mcp(name, lambda agent: agent.call_tool(tool, arguments, meta=WHOLE)).structured_content

    def mcp_tools(self, name: str) -> set[str]:
        """The tools that MCP offers to a principal."""
        return {tool.name for tool in self._over_mcp(name, Agent.list_tools).tools}

    def _over_mcp(self, name: str, call: Callable[[Agent], Awaitable[Any]]) -> Any:
        async def called() -> Any:
            async with (
                httpx2.AsyncClient(headers=self.headers(name)) as http,
                Agent(streamable_http_client(f"{self.announced.url}/mcp", http_client=http)) as agent,
            ):
                return await call(agent)

        return asyncio.run(called())

    def memotree(self, key: str, *arguments: str) -> Result:
        """Run a command on the machine of the server, with a key; with none it uses the one in the data folder."""
        return CliRunner().invoke(app, arguments, env={"MEMOTREE_DATA": str(self.folder), "MEMOTREE_API_KEY": key})

    def enter(self, name: str, role: str = "", *, workspace: str = "notes", **limits: Any) -> Client:
        """A client of a principal, with this role if one is given, and a new key."""
        with self.client("admin") as admin:
            admin.put_principal(name, email=f"{name}@example.org")
            if role:
                admin.grant_role(name, role, workspace=workspace, **limits)  # type: ignore[arg-type] # a role's name
            self.keys[name] = admin.create_key(name, label="of the tests").key
        return self.client(name)


@contextmanager
def guarded(folder: Path, **environment: str) -> Iterator[Place]:
    """A server that needs keys, with two workspaces and a note."""
    with running(folder, MEMOTREE_AUTHENTICATION="keys", MEMOTREE_API_KEY="", **environment) as (announced, _):
        found = Place(announced, folder, {"admin": (folder / "admin.key").read_text().strip()})
        with found.client("admin") as admin:
            admin.create_workspace("notes")
            admin.create_workspace("elsewhere")
            admin.workspace("notes").remember("The harbour closes at nine.", title="Harbour")
        yield found


@contextmanager
def with_roles(folder: Path) -> Iterator[Place]:
    """A server with a principal for each role, whose tools may read ``shared`` beside its data and reach some hosts."""
    (folder / "shared").mkdir()
    limits = {
        "MEMOTREE_TOOLS_FOLDERS": str(folder / "shared"),
        "MEMOTREE_TOOLS_HOSTS": "*.example.invalid,other.invalid",  # there are no such hosts
    }
    with guarded(folder / "data", **limits) as found:
        for name, role in PEOPLE.items():
            found.enter(name, role).close()
        found.enter("limited", "WRITER", branches="agents/*").close()
        found.enter("stranger", "ADMIN", workspace="elsewhere").close()
        yield found


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The server that the modules which import this share; a test that changes principals makes some of its own."""
    stash = request.config.stash
    if _SHARED not in stash:
        server = ExitStack()
        request.config.add_cleanup(server.close)
        stash[_SHARED] = server.enter_context(with_roles(tmp_path_factory.mktemp("guarded")))
    return stash[_SHARED]


def ingested(workspace: Workspace) -> str:
    """The id of the job of a document that was ingested."""
    events = list(workspace.ingest(f"Text {new_id()}.", name=f"Book {new_id()}"))
    return next(event.id for event in events if isinstance(event, Job))


def refusal(call: Callable[[], Any]) -> MemoTreeClientError:
    with pytest.raises(MemoTreeClientError) as caught:
        call()
    return caught.value


def status(call: Callable[[], Any]) -> grpc.StatusCode:
    """The status of a raw call that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    code: grpc.StatusCode = caught.value.code()  # type: ignore[attr-defined] # the stubs do not say so
    return code
