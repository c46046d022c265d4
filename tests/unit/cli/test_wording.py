"""Messages of the server name commands when they are shown at the command line."""

import re

import grpc
import pytest
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError
from unit.client.test_wording import requests, templates

from memotree.cli.app import load
from memotree.cli.wording import COMMANDS, in_commands, in_options
from memotree.client.wording import ORDINARY_WORDS

pytestmark = pytest.mark.requirement("SERVE-4")

RPCS = requests().keys() - ORDINARY_WORDS
WITHOUT_COMMAND = {"BatchChangeNodes", "BatchChangeMemory"}


def test_every_rpc_has_its_command_or_is_known_to_have_none() -> None:
    assert set(COMMANDS) == RPCS - WITHOUT_COMMAND
    for command in COMMANDS.values():
        assert load(command.partition(" -")[0]).params


def test_no_message_of_the_server_names_an_rpc_to_a_person_at_the_command_line() -> None:
    name = re.compile(rf"\b({'|'.join(RPCS - WITHOUT_COMMAND)}|regenerate_summary)\b")
    named = [text for text in templates(name, {"cli", "v1"}) if name.search(text)]
    assert len(named) > 10, "the search finds no messages any more"
    for text in named:
        assert not name.search(in_commands(text)), text


def test_names_become_commands_and_text_of_people_is_not_changed() -> None:
    assert in_commands("There is no branch 'ListTags'. List them with ListBranches, or create it.") == (
        "There is no branch 'ListTags'. List them with `memotree branch list`, or create it."
    )
    assert in_commands("NotGetTree, pass regenerate_summary.") == "NotGetTree, pass --regenerate-summary."


@pytest.mark.requirement("USE-10")
def test_fields_of_requests_are_named_as_options_and_items_numbered_as_people_count() -> None:
    for of_request, of_command in {
        "archive_id: is needed.": "--archive: is needed.",
        "node_ids[1]": "NODE[1]",
        "Give archive_id, 'parent_id' or parent_id.": "Give --archive, 'parent_id' or --parent.",
        "parts[0].node_id: leave it empty.": "part 1: NODE: leave it empty.",
        "changes[2].remember.text: is needed.": "change 3: text: is needed.",
        "It has tags[1] twice.": "It has --tag[1] twice.",
    }.items():
        assert in_options(of_request) == of_command
    for same in ("The tags are many.", "title: give one line.", "No 'archive_id: x'.", "No 'archive_id: parts[0].x'."):
        assert in_options(same) == same


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
