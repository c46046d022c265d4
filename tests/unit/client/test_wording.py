"""Messages of the server name methods and arguments of Python when the client raises them."""

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import grpc
import memotree_storage
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.rpc import error_details_pb2
from unit.client.fake_memotree import FakeMemoTree
from unit.client.fake_state import RefusedError

import memotree
from memotree import v1
from memotree.client import AsyncClient, Client, InvalidArgumentError, NotFoundError, Session, View, Workspace
from memotree.client.wording import METHODS, ORDINARY_WORDS, argument, in_python
from memotree.v1 import job_service_pb2

pytestmark = pytest.mark.requirement("USE-7")

OWNERS = {"client": Client, "workspace": Workspace, "session": Session, "view": View}
GIVEN_BY_OBJECTS = {"workspace", "revision", "session_id", "view_name", "page_size", "page_token"}
"""Fields that come from the workspace, session, revision or view that is called, or from the iteration."""
FILLED_IN = {"request_id", "update_mask"}
"""Fields that the client fills in itself, where the method has no argument for them."""
NOT_OFFERED = {
    "BatchChangeNodes": {"commit"},
    "CommitChanges": {"renew_summaries"},
    "Erase": {"target"},
    "PlanQuery": {"options.max_answer_tokens", "options.temperature"},
    "PreviewErasure": {"target"},
    "ReviewProposal": {"verdict"},
}
"""Fields that the named method never sets, or always alike; `workspace.commit` sets the first."""
VALUES = {"commit_id", "document_id", "session_id", "valid_from", "valid_to"}
"""Names that results of the client have as well."""
NO_SERVER = {"cli", "client", "gateways", "integrations", "v1"}
NEVER_MET = {"must set one of create, update, move, delete, add_relation and remove_relation."}
"""Messages about requests that the client cannot make."""


def requests() -> dict[str, Descriptor]:
    """The request message of each RPC."""
    names = [each.name for each in pkgutil.iter_modules(v1.__path__) if each.name.endswith("_service_pb2")]
    modules = [import_module(f"{v1.__name__}.{name}") for name in names]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    return {method.name: method.input_type for service in services for method in service.methods}


def templates(name: re.Pattern[str], left_out: set[str]) -> Iterator[str]:
    """Every text of several words in modules that have such a name, but for these folders, except docstrings.

    Each value in a text is written as ``…``.
    """
    for folder in (Path(memotree.__path__[0]), Path(memotree_storage.__path__[0])):
        for path in folder.rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if name.search(source) and not left_out & set(path.relative_to(folder).parts):
                yield from _templates(source)


def _templates(source: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    no_texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    no_texts |= {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in no_texts:
            text = node.value
        else:
            continue
        if " " in text and "select " not in text and "\n" not in text:
            yield text


def arguments_of(rpc: str) -> set[str]:
    owner, _, name = METHODS[rpc].partition(".")
    return set(inspect.signature(getattr(OWNERS[owner], name)).parameters) - {"self"}


def paths(rpc: str) -> Iterator[str]:
    """The fields of a request that callers give, those of a filter and of options each."""
    for field in requests()[rpc].fields:
        if field.name in {"filter", "options"}:
            yield from (f"{field.name}.{each.name}" for each in field.message_type.fields)
        else:
            yield field.name


def test_every_rpc_has_its_method() -> None:
    assert set(METHODS) == set(requests())


@pytest.mark.parametrize("rpc", sorted(METHODS))
def test_every_field_of_a_request_has_its_argument(rpc: str) -> None:
    given = arguments_of(rpc)
    unknown = {path: argument(path, requests()[rpc]) for path in paths(rpc)}
    left = {path for path, word in unknown.items() if re.split(r"[.\[]", word)[0] not in given}
    assert left <= GIVEN_BY_OBJECTS | FILLED_IN | NOT_OFFERED.get(rpc, set())


def test_no_message_of_the_server_names_an_rpc_or_a_field_of_the_wire_to_a_program_in_python() -> None:
    spelled = {each.name for request in requests().values() for each in all_fields(request) if "_" in each.name}
    of_python = {name for rpc in METHODS for name in arguments_of(rpc)}
    of_wire = {name for name in spelled if argument(name) != name or name not in of_python | VALUES}
    name = re.compile(rf"(?<![\w.])({'|'.join((METHODS.keys() - ORDINARY_WORDS) | of_wire)})(?!\w)")
    named = [text for text in templates(name, NO_SERVER) if name.search(text) and text not in NEVER_MET]
    assert len(named) > 15, "the search finds no messages any more"
    for text in named:
        assert not name.search(in_python(text)), text


def all_fields(message: Descriptor, seen: frozenset[str] = frozenset()) -> Iterator[FieldDescriptor]:
    """The fields of a message and of the messages in it."""
    for field in message.fields:
        yield field
        if field.message_type is not None and field.message_type.full_name not in seen:
            yield from all_fields(field.message_type, seen | {message.full_name})


def test_paths_of_fields_become_those_of_arguments() -> None:
    found = requests()
    assert argument("archive_id", found["CreateNode"]) == "archive"
    assert argument("node_id", found["CreateNode"]) == "node_id"
    assert argument("node_id", found["UpdateNode"]) == "node"
    assert argument("parts[0].node_id", found["SplitNode"]) == "parts[0].node_id"
    assert argument("changes[2].create.archive_id", found["BatchChangeNodes"]) == "batch[2].archive"
    assert argument("changes[2].revise.node_id", found["BatchChangeMemory"]) == "changes[2].node"
    assert argument("filter.archives[1]", found["Recall"]) == "archives[1]"
    assert argument("conversation.turns[3].text", found["IngestDocument"]) == "document[3].text"
    assert argument("relations[0].target_id", found["CreateNode"]) == "relations[0].target_id"
    assert argument("attributes['node_id']", found["CreateNode"]) == "attributes['node_id']"
    assert argument("Retries and pauses") == "Retries and pauses"


def test_names_become_methods_and_text_of_people_is_not_changed() -> None:
    assert in_python("There is no branch 'see ListTags'. List them with ListBranches, or create it.") == (
        "There is no branch 'see ListTags'. List them with `workspace.branches()`, or create it."
    )
    assert in_python("The agent's archive_id isn't known, nor is \"archive_id\".") == (
        "The agent's archive= isn't known, nor is \"archive_id\"."
    )
    assert in_python("Restore that ref from a backup.") == "Restore that ref from a backup."


def test_an_error_names_what_python_calls_or_as_a_program_asks_the_names_of_the_contract(fake: FakeMemoTree) -> None:
    text = "There is no workspace 'GetTree'. List them with ListWorkspaces, or create it."
    told = "There is no workspace 'GetTree'. List them with `client.workspaces()`, or create it."
    for contract_names in (False, True):
        fake.fail("GetWorkspace", RefusedError(grpc.StatusCode.NOT_FOUND, text, "WORKSPACE_NOT_FOUND"))
        with Client(fake.address, contract_names=contract_names) as client, pytest.raises(NotFoundError) as caught:
            client.workspace("GetTree").info()
        assert caught.value.message == str(caught.value) == (text if contract_names else told)


def refused(path: str, message: str, description: str) -> RefusedError:
    fault = error_details_pb2.BadRequest.FieldViolation(field=path, description=description)
    details = error_details_pb2.BadRequest(field_violations=[fault])
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message, "INVALID_ARGUMENT", details)


def test_a_fault_names_the_argument_and_not_what_the_client_sets_by_itself(fake: FakeMemoTree, client: Client) -> None:
    client.create_workspace("demo")
    with client.workspace("demo").session() as session:
        fake.fail("CreateNode", refused("type", "The node is not allowed: type 'X' is no type.", "'X' is no type"))
        with pytest.raises(InvalidArgumentError) as caught:
            session.create("Retries", archive="notes", node_type="X")
        assert caught.value.message == "The node is not allowed: node_type 'X' is no type."
        assert caught.value.violations[0].field == "node_type"
        path = "changes[0].create.archive_id"
        fake.fail("BatchChangeNodes", refused(path, "changes[0]: archive_id: is needed", "is needed"))
        with pytest.raises(InvalidArgumentError) as caught:
            session.apply([])
        assert caught.value.message == "batch[0]: archive: is needed"
        assert caught.value.violations[0].field == "batch[0].archive"
        text = "Nothing to change was given. Set a field, or name it in update_mask to empty it."
        fake.fail("UpdateNode", refused("update_mask", f"update_mask: {text}", text))
        with pytest.raises(InvalidArgumentError) as caught:
            session.update("4f8rjw2m6tq0x9ka")
        assert caught.value.message == "Nothing to change was given. Give a new value, or an empty one."


async def test_the_asynchronous_client_says_the_same(fake: FakeMemoTree) -> None:
    text = "There is no workspace 'x'. List them with ListWorkspaces."
    fake.fail("GetWorkspace", RefusedError(grpc.StatusCode.NOT_FOUND, text, "WORKSPACE_NOT_FOUND"))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(NotFoundError, match=r"`client\.workspaces\(\)`"):
            await client.workspace("x").info()


def test_a_job_says_why_it_failed_in_words_of_python(fake: FakeMemoTree, client: Client) -> None:
    text = "There is no branch 'x'. List them with ListBranches."
    fake.jobs["j"] = job_service_pb2.Job(id="j", state=job_service_pb2.JOB_STATE_FAILED, message=text)
    assert client.job("j").message == "There is no branch 'x'. List them with `workspace.branches()`."
