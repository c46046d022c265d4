"""Messages of the server name commands when they are shown at the command line."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import grpc
import memotree_storage
import pytest
from google.protobuf import descriptor_pb2
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError

import memotree
from memotree import v1
from memotree.cli.app import load
from memotree.cli.wording import COMMANDS, in_commands, in_options

pytestmark = pytest.mark.requirement("SERVE-4")

WITHOUT_COMMAND = {"BatchChangeNodes", "BatchChangeMemory"}
ORDINARY_WORDS = {"Ask", "Query", "Recall", "Remember", "Revise", "Forget", "Restore"}
"""RPCs whose names are words that also occur in sentences that are not about them."""
ROOMS = [Path(package.__path__[0]) for package in (memotree, memotree_storage)]


def rpcs() -> set[str]:
    found = set()
    for each in pkgutil.iter_modules(v1.__path__):
        if each.name.endswith("_service_pb2"):
            file = descriptor_pb2.FileDescriptorProto()
            import_module(f"{v1.__name__}.{each.name}").DESCRIPTOR.CopyToProto(file)
            found |= {method.name for service in file.service for method in service.method}
    return found - ORDINARY_WORDS


def sentences(name: re.Pattern[str]) -> Iterator[str]:
    """Every text of several words in the modules that have such a name, except docstrings."""
    for path in (path for room in ROOMS for path in room.rglob("*.py")):
        if {"cli", "v1"} & set(path.parts[len(ROOMS[0].parts) :]) or path.name.endswith("_pb2.py"):
            continue
        source = path.read_text(encoding="utf-8")
        if not name.search(source):
            continue
        tree = ast.parse(source)
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in described]
        yield from (text.value for text in texts if isinstance(text.value, str) and " " in text.value)


def test_every_rpc_has_its_command_or_is_known_to_have_none() -> None:
    assert set(COMMANDS) == rpcs() - WITHOUT_COMMAND


def test_every_command_named_for_an_rpc_exists() -> None:
    for command in COMMANDS.values():
        assert load(command.partition(" -")[0]).params


def test_no_message_of_the_server_names_an_rpc_to_a_person_at_the_command_line() -> None:
    name = re.compile(rf"\b({'|'.join(rpcs() - WITHOUT_COMMAND)}|regenerate_summary)\b")
    named = [sentence for sentence in sentences(name) if name.search(sentence)]
    assert len(named) > 10, "the search finds no messages any more"
    for sentence in named:
        assert not name.search(in_commands(sentence)), sentence


def test_names_become_commands_and_text_of_people_is_not_changed() -> None:
    assert in_commands("There is no branch 'ListTags'. List them with ListBranches, or create it.") == (
        "There is no branch 'ListTags'. List them with `memotree branch list`, or create it."
    )
    assert in_commands("NotGetTree, pass regenerate_summary.") == "NotGetTree, pass --regenerate-summary."


@pytest.mark.requirement("USE-10")
def test_fields_of_requests_are_named_as_options() -> None:
    assert in_options("archive_id: is needed.") == "--archive: is needed."
    assert in_options("node_ids[1]") == "NODE[1]"
    assert in_options("Give archive_id, 'parent_id' or parent_id.") == "Give --archive, 'parent_id' or --parent."
    assert in_options("The tags are many.") == "The tags are many."
    assert in_options("title: give one line.") == "title: give one line."
    assert in_options("There is no archive 'archive_id: x'.") == "There is no archive 'archive_id: x'."


@pytest.mark.requirement("USE-10")
def test_a_field_is_named_by_the_option_of_the_command_that_sent_it(ready: CommandLine) -> None:
    told = "The node cannot be stored: node_id 'BAD' is not a full id."
    bad = RefusedError(grpc.StatusCode.INVALID_ARGUMENT, told, "BAD_ID")
    ready.fake.fail("CreateNode", bad)
    assert ready("node", "create", "--title", "T", "-a", "notes", "--id", "BAD").err == (
        "error: The node cannot be stored: --id 'BAD' is not a full id.\n"
    )
    place = RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "position: counts siblings from 0.", "BAD_POSITION")
    ready.fake.fail("CreateNode", place)
    assert ready("node", "create", "--title", "T", "-a", "notes").err == "error: --position: counts siblings from 0.\n"


@pytest.mark.requirement("USE-10")
def test_items_of_lists_are_numbered_as_people_count() -> None:
    assert in_options("parts[0].node_id: leave it empty.") == "part 1: NODE: leave it empty."
    assert in_options("changes[2].remember.text: is needed.") == "change 3: text: is needed."
    assert in_options("It has tags[1] twice.") == "It has --tag[1] twice."
    assert in_options("There is no node 'parts[0].x'.") == "There is no node 'parts[0].x'."
