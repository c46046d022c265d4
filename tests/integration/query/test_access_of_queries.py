"""Questions with tools on a server that needs keys: the model reaches what whoever asks may reach, and no more."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from endpoints import CHAT_MODEL, KEY, ModelEndpoint, endpoint_in_a_thread
from integration.http_servers import running

from memotree.client import Client, MemoTreeClientError, QueryAnswer, Workspace
from memotree.server.announcement import Announcement

pytestmark = pytest.mark.requirement("TOOL-9", "SERVE-3")

TALK = "our talk"


@dataclass(frozen=True)
class Place:
    """A server with two workspaces, a reader and a writer of one of them, and a stranger."""

    announced: Announcement
    endpoint: ModelEndpoint
    keys: dict[str, str]

    def client(self, name: str) -> Client:
        return Client(self.announced.address, attempts=1, key=self.keys[name])

    def notes(self, name: str) -> Workspace:
        return self.client(name).workspace("notes")

    def told(self) -> str:
        """All that the model was told in its last turn."""
        return json.dumps(self.endpoint.chat_calls[-1]["messages"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("asked") / "data"
    with endpoint_in_a_thread() as endpoint:
        settings = {
            "MEMOTREE_AUTHENTICATION": "keys",
            "MEMOTREE_API_KEY": "",
            "MEMOTREE_CHAT_URL": endpoint.url,
            "MEMOTREE_CHAT_MODEL": CHAT_MODEL,
            "MEMOTREE_CHAT_API_KEY": KEY,
            "MEMOTREE_MODEL_ATTEMPTS": "1",
            "MEMOTREE_RENEW_SUMMARIES": "false",
        }
        with running(folder, **settings) as (announced, _):
            keys = {"admin": (folder / "admin.key").read_text().strip()}
            found = Place(announced, endpoint, keys)
            with found.client("admin") as admin:
                for name in ("notes", "vault"):
                    admin.create_workspace(name)
                admin.workspace("notes").remember("The harbour closes at nine.", title="Harbour")
                admin.workspace("vault").remember("The code is 0000.", title="Code")
                for name, role in (("reader", "READER"), ("writer", "WRITER"), ("stranger", "")):
                    admin.put_principal(name)
                    keys[name] = admin.create_key(name).key
                    if role:
                        admin.grant_role(name, role, workspace="notes")  # type: ignore[arg-type] # the name of a role
            yield found


@pytest.fixture
def place(guarded: Place) -> Place:
    guarded.endpoint._scripted.clear()
    return guarded


def codes(answer: QueryAnswer) -> list[str]:
    return [call.result.error.code if call.result and call.result.error else "" for call in answer.tool_calls]


def test_who_may_not_read_the_workspace_asks_nothing_of_it(place: Place) -> None:
    before = place.endpoint.calls
    for call in (place.notes("stranger").query, place.notes("stranger").plan_query):
        with pytest.raises(MemoTreeClientError) as caught:
            call("When does it close?")
        assert caught.value.reason == "WORKSPACE_NOT_FOUND"
    assert place.endpoint.calls == before


def test_a_tool_is_refused_as_it_is_to_whoever_asks(place: Place) -> None:
    place.endpoint.call_next(("remember", {"text": "The harbour never closes."}))
    place.endpoint.answer_next("I may not.")
    answer = place.notes("reader").query("Remember that it never closes.", allowed_tools=["remember"])
    assert (codes(answer), answer.text) == (["ROLE_MISSING"], "I may not.")
    assert "ROLE_MISSING" in place.told()
    place.endpoint.call_next(("remember", {"text": "The quay is wet.", "title": "Quay"}))
    place.endpoint.answer_next("Kept.")
    answer = place.notes("writer").query("Remember that the quay is wet.", allowed_tools=["remember"])
    assert codes(answer) == [""]
    (commit,) = list(place.notes("writer").log())[:1]
    assert commit.author.name == "writer"


def test_the_model_reaches_no_other_workspace(place: Place) -> None:
    place.endpoint.call_next(
        ("list_workspaces", {}),
        ("recall", {"query": "code", "workspace": "vault"}),
        ("list_audit_records", {}),
    )
    place.endpoint.answer_next("Nothing.")
    answer = place.notes("reader").query(
        "What is the code?", allowed_tools=["list_workspaces", "recall", "list_audit_records"]
    )
    assert codes(answer) == ["", "OTHER_WORKSPACE", "ROLE_MISSING"]
    assert "vault" not in json.dumps([call.result.data for call in answer.tool_calls if call.result])
    assert "0000" not in place.told()


def test_nobody_asks_in_the_session_of_another(place: Place) -> None:
    session = place.notes("writer").session()
    session.create("Draft", content="The draft is secret.", archive=place.notes("writer").archive("notes"))
    with pytest.raises(MemoTreeClientError) as caught:
        place.notes("reader").at(session.id).query("What is secret?")
    assert caught.value.reason == "REVISION_NOT_FOUND"
    session.query("What is secret?")
    assert "The draft is secret." in place.told()
    session.discard()


def test_a_conversation_goes_with_its_principal(place: Place) -> None:
    admin = place.client("admin")
    for has_turn in (False, False):
        admin.put_principal("guest")
        admin.grant_role("guest", "READER", workspace="notes")
        guest = Client(place.announced.address, attempts=1, key=admin.create_key("guest").key).workspace("notes")
        guest.query("What does the guest know?", conversation_id=TALK)
        assert (len(place.endpoint.chat_calls[-1]["messages"]) > 2) == has_turn
        admin.delete_principal("guest")


def test_an_erasure_takes_all_conversations_of_the_workspace(place: Place) -> None:
    admin = place.client("admin")
    admin.create_workspace("leaky")
    leaky = admin.workspace("leaky")
    note = leaky.remember("The password is swordfish.", title="Password")
    leaky.query("What is the password?", conversation_id=TALK)
    node = note.node
    assert node is not None
    phrase = leaky.preview_erasure(node=node.id).phrase
    job = leaky.erase(node=node.id, phrase=phrase, reason="a secret", by="admin")
    for _ in admin.watch_job(job.id):
        pass
    leaky.query("What did we say?", conversation_id=TALK)
    assert "swordfish" not in place.told()


def test_each_call_of_the_model_has_a_record_of_whoever_asked(place: Place) -> None:
    def kept() -> dict[str, int]:
        found = [record.tool for record in place.client("admin").audit_records(principal="reader")]
        return {name: found.count(name) for name in ("query", "calculator")}

    before = kept()
    place.endpoint.call_next(("calculator", {"expression": "2 + 3"}))
    answer = place.client("reader").run_tool("query", {"query": "What is it?"}, workspace="notes")
    assert answer.success, answer.text
    assert kept() == {name: count + 1 for name, count in before.items()}
