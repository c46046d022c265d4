"""A session of the OpenAI Agents SDK keeps a conversation in order, and people read it in Git."""

import asyncio
from typing import Any

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.memory import Session, SessionSettings
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from memotree.client import AsyncWorkspace, Workspace
from memotree.integrations.openai_agents_session import MemoTreeSession

pytestmark = pytest.mark.requirement("USE-6")

CALL = {"type": "function_call", "name": "weather", "arguments": '{"city": "Rome"}', "call_id": "c1"}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello Ada, how are you?", "annotations": []}],
}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


@pytest.fixture
async def session(async_workspace: AsyncWorkspace) -> MemoTreeSession:
    return MemoTreeSession("ada/2026-11-22", async_workspace)


async def test_a_new_or_cleared_conversation_is_empty(session: MemoTreeSession) -> None:
    assert isinstance(session, Session)
    await session.add_items([])
    await session.clear_session()
    assert await session.get_items() == await session.get_items(limit=3) == []
    assert await session.pop_item() is None
    await session.add_items([user("1"), user("2")])
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([user("3")])
    assert await session.get_items() == [user("3")]


async def test_items_of_any_kind_come_back_in_order(session: MemoTreeSession, async_workspace: AsyncWorkspace) -> None:
    items: Any = [user("Hi"), ANSWER, CALL]
    await session.add_items(items)
    await session.add_items([user("And now?")])
    again = MemoTreeSession("ada/2026-11-22", async_workspace)
    assert await again.get_items() == [*items, user("And now?")]
    assert await MemoTreeSession("bob", async_workspace).get_items() == []


async def test_a_limit_gives_the_newest_items_oldest_first(async_workspace: AsyncWorkspace) -> None:
    session = MemoTreeSession("c", async_workspace, session_settings=SessionSettings(limit=2))
    await session.add_items([user(str(number)) for number in range(5)])
    assert [item["content"] for item in await session.get_items(limit=3)] == ["2", "3", "4"]  # type: ignore[typeddict-item]
    assert [item["content"] for item in await session.get_items()] == ["3", "4"]  # type: ignore[typeddict-item]
    assert await session.get_items(limit=0) == []
    assert len(await session.get_items(limit=100)) == 5


async def test_the_newest_item_is_taken_back_first(session: MemoTreeSession) -> None:
    await session.add_items([user("1"), user("2")])
    assert await session.pop_item() == user("2")
    await session.add_items([user("3")])
    assert await session.get_items() == [user("1"), user("3")]
    assert [await session.pop_item() for _ in range(3)] == [user("3"), user("1"), None]


async def test_what_several_add_and_take_back_at_the_same_time_is_kept_or_taken_once(
    async_workspace: AsyncWorkspace,
) -> None:
    writers = [MemoTreeSession("busy", async_workspace) for _ in range(4)]
    await asyncio.gather(*(each.add_items([user(f"{n}a"), user(f"{n}b")]) for n, each in enumerate(writers)))
    said: Any = await writers[0].get_items()
    texts = [item["content"] for item in said]
    assert sorted(texts) == sorted(f"{n}{letter}" for n in range(4) for letter in "ab")
    assert all(texts.index(f"{n}a") < texts.index(f"{n}b") for n in range(4))
    taken: Any = await asyncio.gather(*(each.pop_item() for each in writers[:2]))
    assert {item["content"] for item in taken} == set(texts[-2:])
    assert await writers[0].get_items() == said[:-2]


async def test_people_read_the_conversation_in_git(session: MemoTreeSession, workspace: Workspace) -> None:
    await session.add_items([user("Do you know me?"), ANSWER])  # type: ignore[list-item] # as the SDK's own are dicts
    (conversation,) = workspace.children(archive="conversations")
    assert conversation.title == "ada/2026-11-22"
    said = list(workspace.children(conversation, level="DETAIL"))
    assert [each.title for each in said] == ["user: Do you know me?", "assistant: Hello Ada, how are you?"]
    assert said[0].content.startswith("Do you know me?")
    assert said[1].content.startswith("Hello Ada, how are you?")
    commit = next(iter(workspace.log()))
    assert commit.subject == "Add to the conversation ada/2026-11-22: assistant: Hello Ada, how are you?"
    assert commit.author.name == "openai-agents"


class Parrot(Model):
    """Says how many items it was given."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: A002, ARG002 - the SDK's signature
        text = ResponseOutputText(text=f"I know {len(input)} items.", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def test_an_agent_remembers_what_was_said_before(session: MemoTreeSession) -> None:
    agent = Agent(name="Parrot", model=Parrot())
    config = RunConfig(tracing_disabled=True)
    first = await Runner.run(agent, "Hello", session=session, run_config=config)
    second = await Runner.run(agent, "And now?", session=session, run_config=config)
    assert (first.final_output, second.final_output) == ("I know 1 items.", "I know 3 items.")
    assert len(await session.get_items()) == 4
