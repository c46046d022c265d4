"""A name that somebody has sent costs no more than its beginning, however long it is, wherever it is refused."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from memotree_storage.errors import InvalidInputError

from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError
from memotree.gateways.functions import LocalFunctions
from memotree.gateways.http import from_query
from memotree.gateways.mcp import _not_offered
from memotree.gateways.tool_definitions import BY_NAME
from memotree.gateways.tool_settings import tool_setting_faults
from memotree.identity.operations import _limits
from memotree.request import nearest_names
from memotree.request.nearest_names import LONGEST_NAME, nearest, nearest_or_all, shown
from memotree.settings import Settings
from memotree.tools.builtin.services import builtin_tools
from memotree.tools.executor import Executor

pytestmark = pytest.mark.requirement("CANVAS-7", "TOOL-3")

LONG = "recal" * 200_000


class NoCaller:
    async def call(self, *_: Any) -> Any:
        raise AssertionError

    def stream(self, *_: Any) -> Any:
        raise AssertionError


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the names that are compared with the known ones."""
    lengths: list[int] = []

    class Matcher(difflib.SequenceMatcher[str]):
        def set_seq2(self, b: Any) -> None:
            lengths.append(len(b))
            super().set_seq2(b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Matcher)
    return lengths


def of_a_setting(**given: Any) -> str:
    return " ".join(each.at("").description for each in tool_setting_faults(Settings.model_validate(given)))


def of_arguments() -> str:
    with pytest.raises(InvalidArgumentsError) as caught:
        Catalogue(NoCaller(), "main").request(BY_NAME["recall"], {"query": "x", LONG: 1})
    return caught.value.message


def of_nested_arguments() -> str:
    given = {"text": "x", "attributes": {LONG: 5.5, f"{LONG}2": [1]}}
    with pytest.raises(InvalidArgumentsError) as caught:
        Catalogue(NoCaller(), "main").request(BY_NAME["remember"], given)
    return caught.value.message


def of_a_query_string() -> str:
    class Twice:
        def multi_items(self) -> list[tuple[str, str]]:
            return [(LONG, "1"), (LONG, "2")]

    with pytest.raises(InvalidArgumentsError) as caught:
        from_query("recall", Twice())  # type: ignore[arg-type] # it reads nothing else
    return caught.value.message


def of_a_role() -> str:
    with pytest.raises(InvalidInputError) as caught:
        _limits([f"read_fil:/{'x' * 900}"], list(BY_NAME), lambda _tool, _resource: "")
    return caught.value.message


@pytest.mark.parametrize(
    "told",
    [
        lambda: _not_offered(LONG, list(BY_NAME)),
        lambda: of_a_setting(tools_builtin={LONG: {"enabled": False}}),
        lambda: of_a_setting(tools_disabled=(LONG,)),
        of_arguments,
        of_nested_arguments,
        of_a_query_string,
        of_a_role,
    ],
)
def test_only_the_beginning_of_a_name_is_compared_and_repeated(told: Callable[[], str], compared: list[int]) -> None:
    assert len(told()) < 5000
    assert max(compared, default=0) <= LONGEST_NAME


async def test_a_function_is_no_exception(compared: list[int]) -> None:
    offered = Catalogue(NoCaller(), "main", LocalFunctions(builtin_tools(), Executor(), NoCaller()))
    result = await offered.call("calculator", {LONG: 1, "expression": "1"})
    assert result.failure is not None
    assert (result.failure.code, len(result.text) < 1000) == ("INVALID_ARGUMENTS", True)
    assert compared
    assert max(compared) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("name", "known", "near", "told"),
    [
        ("recal", ["recall", "forget"], "recall", "; did you mean recall?"),
        ("nothing", ["recall", "forget"], "", "; there are recall, forget."),
        ("nothing", [], "", "."),
    ],
)
def test_the_known_name_that_is_most_similar_is_told(name: str, known: Iterable[str], near: str, told: str) -> None:
    assert (nearest(name, iter(known)), nearest_or_all(name, iter(known))) == (near, told)


def test_a_shown_name_is_valid_text() -> None:
    assert shown("\ud800" + "x" * 100) == "\\ud800" + "x" * (nearest_names.LONGEST_NAME - 1)
