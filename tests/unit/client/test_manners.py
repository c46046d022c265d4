"""What a programmer meets first: a light import, signatures that help, and errors that end in one readable line."""

import importlib
import inspect
import os
import pydoc
import re
import subprocess
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import pytest
from unit.client.fake_memotree import FakeMemoTree
from unit.client.fake_state import RefusedError

import memotree
from memotree.client import AsyncClient, AsyncSession, Client, FailedPreconditionError, Session, Workspace
from memotree.client.forest_values import RecallResult

pytestmark = pytest.mark.requirement("USE-7")

NOWHERE = "127.0.0.1:1"


def test_every_public_name_can_be_imported_from_the_package_which_shows_no_other() -> None:
    assert all(hasattr(memotree, name) for name in memotree.__all__)
    assert memotree.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        _ = memotree.Server
    importlib.import_module("memotree.client")
    assert dir(memotree) == sorted(memotree.__all__)
    assert memotree.__version__ == version("memotree")


def test_help_begins_with_what_one_wants() -> None:
    shown = pydoc.plain(pydoc.render_doc(memotree)).partition("PACKAGE CONTENTS")[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    example = lines.index('with memotree.open("memory") as memory:')
    assert example < 5
    assert lines[example + 3].startswith("print(")
    assert "Client(" in lines[example + 4] + lines[example + 5]


def test_a_program_without_a_server_ends_in_one_readable_line_without_frames_of_libraries() -> None:
    program = f"import memotree\nmemotree.Client({NOWHERE!r}, attempts=2).status()"
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ}
    )
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith(f"memotree.client.errors.UnavailableError: No MemoTree server answers at {NOWHERE}")
    assert len(lines) <= 8, done.stderr
    assert not [word for word in ("grpc/", "tenacity", "The above exception", "During handling") if word in done.stderr]


async def test_the_asynchronous_client_shows_no_frames_of_libraries_either() -> None:
    async with AsyncClient(NOWHERE, attempts=2) as client:
        with pytest.raises(memotree.UnavailableError) as refused:
            await client.status()
    files = {frame.filename for frame in traceback.extract_tb(refused.value.__traceback__)}
    assert not [file for file in files if "site-packages" in file]
    assert refused.value.__suppress_context__
    assert refused.value.cause is not None  # for debugging
    assert "StatusCode.UNAVAILABLE" in str(refused.value.cause)


def test_signatures_say_parameters_and_results_those_of_the_blocking_client_blocking_ones() -> None:
    for session in (Session, AsyncSession):
        shown = inspect.signature(session.create)
        assert {"title", "content", "parent", "archive", "tags"} <= set(shown.parameters)
        assert shown.return_annotation == "Node"
        assert session.create.__qualname__ == f"{session.__name__}.create"
        assert "title: One line." in (inspect.getdoc(session.create) or "")
    for method, returned in (
        *((Workspace.session, "Session"), (Client.workspaces, "Iterator[WorkspaceInfo]")),
        *((Client.create_workspace, "WorkspaceInfo"), (Workspace.remember, "MemoryResult")),
    ):
        assert inspect.signature(method).return_annotation == returned


def test_no_method_of_the_client_takes_unnamed_arguments() -> None:
    for owner in (Client, Workspace, Session):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                shown = inspect.signature(method)
                kinds = {each.kind for each in shown.parameters.values()}
                assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, name
                assert inspect.getdoc(method), name
                assert name in {"apply", "commit"} or "Request" not in str(shown), name


def test_the_first_field_of_a_recall_is_its_text_and_so_is_the_printed_result() -> None:
    assert RecallResult("Retries: at most five.").text == "Retries: at most five."
    assert str(RecallResult("Retries: at most five.")) == "Retries: at most five."
    assert str(RecallResult()) == ""


def test_what_exists_already_is_returned_as_it_is_if_one_asks_for_that(fake: FakeMemoTree, client: Client) -> None:
    first = client.create_workspace("notes", "mine")
    assert client.create_workspace("notes", "another", exist_ok=True) == first
    with pytest.raises(memotree.AlreadyExistsError):
        client.create_workspace("notes")
    notes = client.workspace("notes")
    branch = notes.branch("draft")
    assert notes.branch("draft", exist_ok=True) == branch
    with pytest.raises(memotree.AlreadyExistsError):
        notes.branch("draft")
    with notes.session() as session:
        ideas = session.create_archive("ideas")
        taken = RefusedError(grpc.StatusCode.ALREADY_EXISTS, "There is an archive ideas.", "ARCHIVE_EXISTS")
        fake.fail("CreateArchive", taken, taken)
        assert session.create_archive("ideas", exist_ok=True) == ideas
        with pytest.raises(memotree.AlreadyExistsError):
            session.create_archive("ideas")


def test_the_page_about_python_names_every_error() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "use-from-python.md").read_text(encoding="utf-8")
    classes = {name for name in memotree.__all__ if name.endswith("Error")} - {"MemoTreeClientError"}
    assert set(re.findall(r"^\| `(\w+Error)` \|", page, re.MULTILINE)) == classes


async def test_a_closed_client_says_that_it_is_closed(fake: FakeMemoTree) -> None:
    client = Client(fake.address)
    client.close()
    notes = client.workspace("notes")
    for call in (client.status, notes.info, lambda: list(client.workspaces()), lambda: list(notes.verify())):
        with pytest.raises(FailedPreconditionError, match="is closed") as caught:
            call()
        assert caught.value.reason == "CLIENT_CLOSED"
    client.close()
    async with AsyncClient(fake.address) as asynchronous:
        workspace = asynchronous.workspace("notes")
    with pytest.raises(FailedPreconditionError, match="is closed"):
        await workspace.info()


def test_objects_show_what_they_are_of(fake: FakeMemoTree) -> None:
    with Client(fake.address) as client:
        workspace = client.workspace("notes")
        assert repr(client) == f"<Client of {fake.address}>"
        assert repr(workspace) == "<Workspace 'notes'>"
        assert repr(workspace.at("v1")) == "<Revision 'notes' at 'v1'>"
        assert repr(workspace.resume("abc")) == "<Session 'notes' at 'abc'>"
        assert repr(workspace.view("plan")) == "<View 'plan' of 'notes'>"
        assert repr(AsyncClient(fake.address).workspace("notes")) == "<AsyncWorkspace 'notes'>"


def test_values_of_a_wrong_type_are_refused_by_the_name_of_the_argument(client: Client) -> None:
    client.create_workspace("notes")
    workspace: Any = client.workspace("notes")
    session = workspace.session()
    several = r"^{} takes several values, .* give \['"
    refused = {
        several.format("tags"): lambda: workspace.remember("Tea.", tags="drink"),
        several.format("about"): lambda: workspace.remember("Tea.", about="4f8rjw2m6tq0x9ka"),
        several.format("archives"): lambda: workspace.recall("Tea?", archives="notes"),
        several.format("node_types"): lambda: workspace.search("Tea?", node_types="note"),
        "'x' is no change of a memory": lambda: workspace.apply(["x"]),
        "'x' is no change of a node": lambda: session.apply(["x"]),
        "text takes text, but is 42": lambda: workspace.remember(42),
        "these values are none: 'score': 0.9": lambda: workspace.remember("Tea.", attributes={"score": 0.9}),
        "attributes takes": lambda: workspace.remember("Tea.", attributes="score"),
        "named by an id or a Node, not by 7": lambda: workspace.forget(7),
        r"^recall\(\) got an unexpected keyword argument 'budget'; did you mean 'token_budget'\?": lambda: (
            workspace.recall("x", budget=100)
        ),
        r"^remember\(\) takes 1 positional argument": lambda: workspace.remember("x", "y"),
        r"^remember\(\) .* 'titel'; did you mean 'title'\?": lambda: workspace.remember("x", titel="y"),
        r"^session\(\) .* 'zzz'; it takes agent, branch": lambda: workspace.session(zzz=1),
        r"^ask\(\) .* 'zzz'; it takes query": lambda: next(workspace.ask("x", zzz=1)),
    }
    for told, call in refused.items():
        with pytest.raises(TypeError, match=told):
            call()
    made = workspace.remember("Tea.")
    assert workspace.revise(made, "Coffee.").id == made.id, "what remember returned names the note"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_url_is_refused_as_an_address(kind: type[Client] | type[AsyncClient]) -> None:
    with pytest.raises(ValueError, match=r"the host and port of gRPC, such as 127\.0\.0\.1:7319"):
        kind("http://127.0.0.1:7320")
