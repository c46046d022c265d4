"""A server that needs API keys, with a principal for each role."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.test_git_over_http import running
from memotree_storage.model.node import new_id

from memotree.client import (
    Client,
    Job,
    MemoTreeClientError,
    Workspace,
)
from memotree.server.announcement import Announcement

PEOPLE = {"reader": "READER", "writer": "WRITER", "reviewer": "REVIEWER", "keeper": "ADMIN"}


@dataclass(frozen=True)
class Place:
    """A server, with a principal for each role in one workspace, and one that has no role there."""

    announced: Announcement
    folder: Path
    keys: dict[str, str]

    def client(self, name: str) -> Client:
        return Client(self.announced.address, attempts=1, key=self.keys[name])

    def notes(self, name: str) -> Workspace:
        return self.client(name).workspace("notes")

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys", MEMOTREE_API_KEY="") as (announced, _):
        keys = {"admin": (folder / "admin.key").read_text().strip()}
        found = Place(announced, folder, keys)
        with found.client("admin") as admin:
            admin.create_workspace("notes")
            admin.create_workspace("elsewhere")
            admin.workspace("notes").remember("The harbour closes at nine.", title="Harbour")
            for name in (*PEOPLE, "stranger", "limited"):
                admin.put_principal(name, email=f"{name}@example.org")
                keys[name] = admin.create_key(name, label="of the tests").key
            for name, role in PEOPLE.items():
                admin.grant_role(name, role, workspace="notes")  # type: ignore[arg-type] # the name of a role
            admin.grant_role("limited", "WRITER", workspace="notes", branches="agents/*")
            admin.grant_role("stranger", "ADMIN", workspace="elsewhere")
        yield found


def ingested(workspace: Workspace) -> str:
    """The id of the job of a document that was ingested."""
    events = list(workspace.ingest(f"Text {new_id()}.", name=f"Book {new_id()}"))
    return next(event.id for event in events if isinstance(event, Job))


def refusal(call: Any) -> MemoTreeClientError:
    with pytest.raises(MemoTreeClientError) as caught:
        call()
    return caught.value
