"""What is kept of a conversation, for whom, and how much."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Ask
from integration.worlds import World
from memotree_storage.model.tokens import count_tokens
from memotree_storage.postgres import access, registry
from model_answers import Fault

from memotree.models.model_errors import ModelUnavailableError
from memotree.query.conversation import ConversationNotFoundError
from memotree.query.prompt import EARLIER_TOKENS
from memotree.query.service import QueryOperations
from memotree.request.principal import Principal, acting_as
from memotree.v1 import query_service_pb2 as pb
from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("TOOL-9"), pytest.mark.own_store]


def turns_told(endpoint: ModelEndpoint) -> list[str]:
    """The earlier turns in the last request to the model."""
    told = endpoint.chat_calls[-1]["messages"][1:-1]
    return [
        json.loads(part["content"])["input_data"]["question"] if part["role"] == "user" else part["content"]
        for part in told
    ]


async def test_a_conversation_has_its_earlier_turns_and_no_results_of_tools(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.call_next(("shout", {"length": 3}))
    endpoint.answer_next("The first answer.")
    await ask("The first question?", conversation_id="talk")
    endpoint.answer_next("The second answer.")
    await ask("The second question?", conversation_id="talk")
    await ask("The third question?", conversation_id="talk")
    assert turns_told(endpoint) == [
        "The first question?",
        "The first answer.",
        "The second question?",
        "The second answer.",
    ]
    await ask("Another question?", conversation_id="other")
    assert turns_told(endpoint) == []
    await ask("A question without a conversation?")
    assert turns_told(endpoint) == []


async def put_principals(world: World, *names: str) -> None:
    async with world.store.database.transaction() as conn:
        for name in names:
            await access.put_principal(conn, name, "")


async def test_a_conversation_belongs_to_its_principal_and_workspace(
    ask: Ask, queries: QueryOperations, endpoint: ModelEndpoint, world: World
) -> None:
    await put_principals(world, "ada", "bob")
    for name in ("ada", "bob", "ada"):
        endpoint.answer_next(f"A secret of {name}.")
        with acting_as(Principal(name)):
            await ask(f"What does {name} know?", conversation_id="talk")
        expected = ["What does ada know?", "A secret of ada."] if len(endpoint.chat_calls) == 3 else []
        assert turns_told(endpoint) == expected
    other = await World.create(world.store, world.pages, world.limits, "elsewhere")
    with acting_as(Principal("ada")):
        await queries.query(pb.QueryRequest(workspace=other.workspace, query="And here?", conversation_id="talk"))
    assert turns_told(endpoint) == []


async def test_a_conversation_is_bounded(ask: Ask, endpoint: ModelEndpoint, world: World) -> None:
    for number in range(23):
        endpoint.answer_next(f"Answer {number}." if number != 22 else "word " * 10_000)
        await ask(f"Question {number}?", conversation_id="talk")
    async with world.store.database.connection() as conn:
        cursor = await conn.execute("select question, length(answer) from work.conversation_turn order by number")
        rows = await cursor.fetchall()
    assert [row[0] for row in rows] == [f"Question {number}?" for number in range(3, 23)]
    assert rows[-1][1] == 16_000


async def test_a_long_turn_is_shortened_to_the_room_that_is_left(ask: Ask, endpoint: ModelEndpoint) -> None:
    for question, answer in (("Left out?", "No."), ("A long one?", "\u5b57" * 10_000), ("A short one?", "Yes.")):
        endpoint.answer_next(answer)
        await ask(question, conversation_id="talk")
    await ask("What now?", conversation_id="talk")
    told = turns_told(endpoint)
    assert told[0] == "A long one?"
    assert told[1].endswith("\u5b57\u2026")
    assert told[2:] == ["A short one?", "Yes."]
    assert EARLIER_TOKENS - 10 <= sum(map(count_tokens, told)) <= EARLIER_TOKENS + 10


async def test_a_query_that_fails_keeps_no_turn(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.fail_next(Fault.BROKEN, on="chat", times=2)
    with pytest.raises(ModelUnavailableError):
        await ask("A question that fails?", conversation_id="talk")
    await ask("Another question?", conversation_id="talk")
    assert turns_told(endpoint) == []


async def test_an_answer_from_before_an_erasure_is_not_kept(ask: Ask, endpoint: ModelEndpoint, world: World) -> None:
    async with world.store.database.transaction() as conn:
        await conn.execute(
            "insert into work.job (job_id, workspace_id, kind, subject, lane, state, request)"
            " select 'job', workspace_id, 'erase', '', '', 'running', '' from mirror.workspace"
        )
    await ask("What goes?", conversation_id="talk")
    await ask("What is left?", conversation_id="talk")
    assert turns_told(endpoint) == []


@asynccontextmanager
async def answering(ask: Ask, endpoint: ModelEndpoint) -> AsyncIterator[None]:
    """While a question of Ada is being answered, whose secret comes with the answer."""
    endpoint.answer_next("A secret of Ada.")
    endpoint.hold()
    with acting_as(Principal("ada")):
        asking = asyncio.create_task(ask("What is it?", conversation_id="talk"))
    await endpoint.arrived.wait()
    yield
    endpoint.release()
    answer = await asking
    assert answer.answer == "A secret of Ada."
    assert any("does not keep this turn" in warning for warning in answer.warnings)


def named(world: World, name: str) -> dict[str, str]:
    """The fields of a request about a conversation."""
    return {"workspace": world.workspace, "conversation_id": name}


async def test_conversations_are_listed_read_and_deleted_by_their_principal_alone(
    ask: Ask, queries: QueryOperations, endpoint: ModelEndpoint, world: World
) -> None:
    await put_principals(world, "ada")
    listing = pb.ListConversationsRequest(workspace=world.workspace)
    with acting_as(Principal("ada")):
        for name in ("first", "second", "first"):
            endpoint.answer_next(f"An answer of {name}.")
            await ask(f"A question of {name}?", conversation_id=name)
        found = (await queries.list_conversations(listing)).conversations
        assert [(each.conversation_id, each.turns) for each in found] == [("first", 2), ("second", 1)]
        read = await queries.get_conversation(pb.GetConversationRequest(**named(world, "second")))
        assert read.conversation == found[1]
        assert [(turn.question, turn.answer) for turn in read.turns] == [
            ("A question of second?", "An answer of second.")
        ]
    with acting_as(Principal("bob")):
        assert not (await queries.list_conversations(listing)).conversations
        for call in (
            queries.get_conversation(pb.GetConversationRequest(**named(world, "second"))),
            queries.delete_conversation(pb.DeleteConversationRequest(**named(world, "second"))),
        ):
            with pytest.raises(ConversationNotFoundError):
                await call
    with acting_as(Principal("ada")):
        await queries.delete_conversation(pb.DeleteConversationRequest(**named(world, "first")))
        found = (await queries.list_conversations(listing)).conversations
        assert [each.conversation_id for each in found] == ["second"]
        with pytest.raises(ConversationNotFoundError):
            await queries.delete_conversation(pb.DeleteConversationRequest(**named(world, "first")))


@pytest.mark.parametrize("gone", ["principal", "workspace", "conversation"])
async def test_an_answer_is_not_kept_if_what_it_belongs_to_was_deleted_meanwhile(
    ask: Ask, queries: QueryOperations, endpoint: ModelEndpoint, world: World, gone: str
) -> None:
    await put_principals(world, "ada")
    with acting_as(Principal("ada")):
        await ask("What goes?", conversation_id="talk")
    async with answering(ask, endpoint), world.store.database.transaction() as conn:
        if gone == "principal":
            await access.delete_principal(conn, "ada")
            await access.put_principal(conn, "ada", "")  # somebody else
        elif gone == "workspace":
            name = (await registry.find_workspace(conn, world.workspace)).name
            request = workspace_service_pb2.DeleteWorkspaceRequest(workspace=name, confirm_name=name)
            await WorkspaceOperations(world.store, world.pages, world.limits).delete_workspace(request)
        else:
            with acting_as(Principal("ada")):
                await queries.delete_conversation(pb.DeleteConversationRequest(**named(world, "talk")))
    async with world.store.database.connection() as conn:
        cursor = await conn.execute("select count(*) from work.conversation_turn")
        assert await cursor.fetchone() == (0,)
