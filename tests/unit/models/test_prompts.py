"""The prompts have the keys and inputs of the design; answers are parsed leniently and checked strictly."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.models.chat_answers import ContextNode
from memotree.models.chat_requests import leaf_question, loop_question, parent_question
from memotree.models.language import differs_in_script
from memotree.models.parsing import first_object
from memotree.models.prompts import AGENTIC_LOOP, LEAF_SUMMARY, PARENT_SUMMARY, QUERY, QUERY_PLAN, Prompt

ALL = [LEAF_SUMMARY, PARENT_SUMMARY, AGENTIC_LOOP, QUERY, QUERY_PLAN]

DIGESTS = {
    "leaf_summary@1": "1402455180634c40",
    "parent_summary@1": "157e957e5145ebf6",
    "agentic_loop@1": "bdc281dc8d8b3a28",
    "query@1": "d3973a9e1dbab27e",
    "query_plan@1": "dc0596ca80717acd",
}
"""A hash of the text of each version. A changed prompt needs a new version, since answers are cached by version."""

CHINESE = "\u8bb0\u5fc6\u68ee\u6797\u662f\u4e00\u79cd\u77e5\u8bc6\u5b58\u50a8\u7cfb\u7edf\u3002"


@pytest.mark.requirement("FOREST-10")
@pytest.mark.parametrize("prompt", ALL, ids=lambda prompt: prompt.name)
def test_a_prompt_that_changes_has_another_version_and_each_says_that_its_data_is_quoted(prompt: Prompt) -> None:
    said = json.dumps(prompt.document, sort_keys=True).encode()
    assert hashlib.sha256(said).hexdigest()[:16] == DIGESTS[prompt.label]
    assert "never" in json.loads(prompt.system)["quoted_data"]


@pytest.mark.requirement("FOREST-10")
@pytest.mark.parametrize(("prompt", "given"), [(LEAF_SUMMARY, "text"), (PARENT_SUMMARY, "child_summaries")])
def test_the_prompts_of_summaries_keep_the_keys_and_inputs_of_the_design(prompt: Prompt, given: str) -> None:
    told = json.loads(prompt.system)
    assert {"role", "task", "input_data", "constraints", "output_format"} <= set(told)
    assert set(told["input_data"]) == {given}
    assert told["constraints"]["max_length_chars"] == 200
    assert "language of the input" in told["constraints"]["language"]
    assert (told["output_format"]["schema"], [*told["output_format"]["json_structure"]]) == ("JSON", ["summary"])


@pytest.mark.requirement("FOREST-10")
def test_the_prompt_of_the_loop_keeps_those_of_the_design_and_answers_or_explores() -> None:
    told = json.loads(AGENTIC_LOOP.system)
    assert {"role", "goal", "input_data", "output_format"} <= set(told)
    assert [action["action_name"] for action in told["available_actions"]] == ["ANSWER", "EXPLORE"]
    payloads = {option["action"]: set(option["payload"]) for option in told["output_format"]["json_structure_options"]}
    assert payloads == {
        "ANSWER": {"final_answer", "cited_node_ids"},
        "EXPLORE": {"node_id_to_explore", "reasoning_for_exploration"},
    }
    assert told["output_format"]["schema"] == "JSON"
    assert set(told["input_data"]) == {"user_query", "context_nodes"}
    assert set(told["input_data"]["context_nodes"][0]) == {"node_id", "node_type", "summary", "hint"}


@given(st.text())
def test_any_text_is_quoted_as_data_without_a_change(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    assert json.loads(LEAF_SUMMARY.user({"text": text})) == {"input_data": {"text": clean}}


def test_a_huge_text_is_cut_and_so_are_too_many_children() -> None:
    assert len(leaf_question("word " * 100_000).user) < 50_000
    many = parent_question([f"Child {number} speaks of many things." for number in range(10_000)])
    assert 500 < len(many.data["child_summaries"]) < 10_000


def test_contents_of_nodes_are_shown_where_there_are_any() -> None:
    nodes = [ContextNode("a", "LEAF_CHUNK", "s", content="c"), ContextNode("b", "SUMMARY_NODE", "t", hint="h")]
    shown = loop_question("q", nodes, must_answer=False).data["context_nodes"]
    assert shown == [
        {"node_id": "a", "node_type": "LEAF_CHUNK", "summary": "s", "hint": "", "content": "c"},
        {"node_id": "b", "node_type": "SUMMARY_NODE", "summary": "t", "hint": "h"},
    ]


# --- Reading what comes back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure! {"a": 1} Anything else? {"b": 2}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Not {this} but\n```\n{"a": 1}\n```', {"a": 1}),
        ('<think>{"a": 0}</think>{"a": 1}', {"a": 1}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('[{"a": 1}]', {"a": 1}),
        ('{"a": {"b": [1, 2]}} }', {"a": {"b": [1, 2]}}),
        ('{"a": "half', None),
        ("no object", None),
        ("", None),
        ("{" * 100_000, None),
    ],
)
def test_the_first_object_is_found(text: str, found: dict[str, Any] | None) -> None:
    assert first_object(text) == found


@given(st.text())
def test_any_text_can_be_parsed_without_an_error(text: str) -> None:
    assert first_object(text) is None or isinstance(first_object(text), dict)


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_an_object_is_found_after_any_prose(value: dict[str, Any]) -> None:
    assert first_object(f"My answer: {json.dumps(value)}. Bye") == value


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("unit", ["{0}Mr. ```\n", "```{", "``` ", "}```", '```{"a":'])
def test_an_answer_of_many_fences_takes_linear_steps(unit: str) -> None:
    """The steps are inside a regular expression; with their square, this would not end."""
    for _ in range(50):
        assert first_object(unit * (131_072 // len(unit))) is None


@pytest.mark.parametrize(
    ("source", "answer", "otherwise"),
    [
        (CHINESE, "The memory forest is a system that stores knowledge.", True),
        (CHINESE, CHINESE[:10], False),
        (CHINESE, "MemoTree" + CHINESE, False),
        ("The memory forest stores what agents know.", CHINESE, True),
        ("The memory forest stores what agents know.", "Ein Wald, der Wissen speichert.", False),
        ("Лес памяти хранит", "A forest of memory.", True),
        ("最新の情報をあつめる", "情報を集める方法の要約", False),
        ("12 + 30 = 42", CHINESE, False),
        ("", "anything at all", False),
    ],
)
def test_an_answer_in_another_script_is_noticed(source: str, answer: str, otherwise: bool) -> None:
    assert differs_in_script(source, answer) is otherwise
