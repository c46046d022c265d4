"""The client reads like the domain, blocking and asynchronous alike."""

import inspect
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.message import Message
from unit.client.fake_memotree import FakeMemoTree

from memotree.client import (
    AsyncClient,
    AsyncRevision,
    AsyncSession,
    AsyncView,
    AsyncWorkspace,
    Author,
    ChangeKind,
    Client,
    Node,
    Relation,
    RelationType,
    Revision,
    Session,
    SessionState,
    Source,
    View,
    Workspace,
    changes,
)
from memotree.v1.workspace_service_pb2 import ListWorkspacesRequest


@pytest.mark.requirement("SERVE-4")
def test_a_session_creates_updates_searches_commits_and_the_tag_reads_it_back(client: Client) -> None:
    client.create_workspace("demo", "a place")
    workspace = client.workspace("demo")
    with workspace.session(agent="planner") as session:
        session.create_archive("notes", model_id="m1")
        root = session.create("Root", "All of it", archive="notes", tags=["b", "a"], attributes={"k": "v"})
        child = session.create(title="Child", content="alpha beta", parent=root)
        session.update(child, content="alpha gamma")
        assert [hit.node.id for hit in session.search("gamma")] == [child.id]
        assert list(workspace.archives()) == []
        commit = session.commit("First\n\nbody", tag="v1", author=Author("Ada", "ada@example.org"))
        assert session.update(child, content="later").content == "later"
        second = session.commit("Second")

    then = workspace.at("v1")
    assert commit.tag_name == "v1"
    assert then.node(child).content == "alpha gamma"
    assert workspace.node(child).content == "later"
    assert [each.title for each in then.children(root)] == ["Child"]
    assert [(each.depth, each.node.title) for each in then.tree(archive="notes").nodes] == [(0, "Root"), (1, "Child")]
    assert [each.subject for each in workspace.log()] == ["Second", "First", "Begin"]
    assert next(workspace.at("v1").log()).author.email == "ada@example.org"
    difference = workspace.diff("v1", second.commit_id)
    assert [(each.kind, each.fields[0].field) for each in difference.changes] == [(ChangeKind.UPDATED, "content")]
    assert workspace.show("v1").commit.tags == ("v1",)
    assert [each.name for each in workspace.branches()] == ["main"]
    assert [each.commit.subject for each in workspace.revisions(child)] == ["Second", "First"]


def test_every_change_of_a_node_has_a_method(client: Client) -> None:
    client.create_workspace("demo")
    session = client.workspace("demo").session(agent="a")
    archive = session.create_archive("notes")
    first = session.create("A", "one", archive=archive, position=0, source=Source("doc", 1, 2))
    second = session.create("B", "two", archive=archive, relations=[Relation("ABOUT", first.id, "why")])
    assert session.relate(first, "DEPENDS_ON", second).relations[0].type is RelationType.DEPENDS_ON
    assert session.unrelate(first, RelationType.DEPENDS_ON, second).relations == ()
    assert session.move(second, parent=first).parent_id == first.id
    assert session.move(second, to_root=True).parent_id is None
    parts = session.split(first, [("A1", "x"), ("A2", "y")], as_children=True)
    assert [part.title for part in parts] == ["A1", "A2"]
    merged = session.merge([first, second], title="Both")
    assert (merged.node.title, merged.deleted_ids) == ("Both", (second.id,))
    assert session.delete(first, recursive=True) == (first.id, parts[1].id)
    results = session.apply(
        [changes.create("C", archive="notes", node_id="c" * 16), changes.update("c" * 16, title="D")]
    )
    assert [result.node.title for result in results] == ["C", "D"]
    assert session.update_archive(archive, name="papers").name == "papers"
    assert {change.kind for change in session.changes()} == {ChangeKind.CREATED}
    assert session.discard_changes(["c" * 16]).change_count == 1
    assert session.delete_archive("papers") == 0
    assert session.rebase().state is SessionState.OPEN
    assert session.discard().state is SessionState.DISCARDED


def test_only_fields_that_are_given_are_named_in_the_mask(client: Client, fake: FakeMemoTree) -> None:
    client.create_workspace("demo")
    session = client.workspace("demo").session()
    node = session.create("A", "text", archive=session.create_archive("notes"), tags=["x"])
    emptied = session.update(node, content="", tags=[], mode="REPLACE")
    assert (emptied.title, emptied.content, emptied.tags) == ("A", "", ())
    assert list(fake.requests("UpdateNode")[0].update_mask.paths) == ["content", "tags"]


def test_a_workspace_keeps_working_after_a_renaming_and_is_deleted_when_confirmed(client: Client) -> None:
    client.create_workspace("demo")
    workspace = client.workspace("demo")
    assert workspace.change(name="other").name == "other"
    assert workspace.info().name == "other"
    assert workspace.remove(confirm_name="other") == "trash/other.git"
    assert list(client.workspaces()) == []


def test_leaving_a_session_discards_it_only_if_nothing_is_staged_and_no_error_leaves_it(client: Client) -> None:
    client.create_workspace("demo")
    workspace = client.workspace("demo")
    with workspace.session(agent="idle"):
        pass
    with workspace.session(agent="busy") as busy:
        busy.create_archive("notes")
    with pytest.raises(KeyError), workspace.session(agent="unlucky"):
        raise KeyError
    assert [each.agent for each in workspace.sessions()] == ["busy", "unlucky"]
    assert {each.agent for each in workspace.sessions(include_closed=True)} == {"idle", "busy", "unlucky"}
    assert workspace.resume(busy.id).info().change_count == 1


def test_lists_are_complete_over_any_number_of_pages(client: Client, fake: FakeMemoTree) -> None:
    client.create_workspace("demo")
    session = client.workspace("demo").session()
    archive = session.create_archive("notes")
    for number in range(7):
        session.create(f"Node {number}", archive=archive)
        session.commit(f"Commit {number}")
    found = client.workspace("demo").log(page_size=3)
    assert next(found).subject == "Commit 6"
    assert len(fake.requests("ListCommits")) == 1
    assert len(list(found)) == 7
    assert [request.page_token for request in fake.requests("ListCommits")] == ["", "3", "6"]


def test_values_are_frozen_plain_python_and_unknown_words_refused(client: Client) -> None:
    info = client.create_workspace("demo")
    assert info.create_time == datetime.fromtimestamp(1_800_000_000, UTC)
    with pytest.raises(FrozenInstanceError):
        info.name = "other"  # type: ignore[misc] # the point of the test
    assert not hasattr(info, "__dict__")
    assert hash(Node("a", attributes={"k": "v"})) == hash(Node("a"))
    with pytest.raises(ValueError, match="TITLE, BRIEF, SUMMARY, DETAIL"):
        client.workspace("demo").node("abcd", "EVERYTHING")  # type: ignore[arg-type] # the point of the test


def test_warnings_of_answers_reach_the_caller_and_messages_without_a_wrapper_the_server(fake: FakeMemoTree) -> None:
    heard: list[str] = []
    with Client(fake.address, on_warning=heard.append) as client:
        client.create_workspace("demo")
        session = client.workspace("demo").session(ttl=timedelta(hours=1))
        session.create("A", archive=session.create_archive("notes"))
        answer = client.raw.workspaces.ListWorkspaces(ListWorkspacesRequest())
    assert heard == ["The content is empty."]
    assert isinstance(answer, Message)
    assert answer.workspaces[0].name == "demo"


def test_warnings_are_logged_unless_they_are_part_of_an_answer_to_a_question(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_workspace("demo")
    assert client.workspace("demo").recall("nothing").warnings
    assert caplog.records == []
    session = client.workspace("demo").session()
    session.create("A", archive=session.create_archive("notes"))
    assert [record.message for record in caplog.records] == ["The content is empty."]


async def test_the_asynchronous_client_does_the_same(fake: FakeMemoTree) -> None:
    async with AsyncClient(fake.address) as client:
        await client.create_workspace("demo")
        workspace = client.workspace("demo")
        async with workspace.session(agent="planner") as session:
            archive = await session.create_archive("notes")
            node = await session.create("A", "alpha", archive=archive)
            assert [hit.node.id for hit in await session.search("alpha")] == [node.id]
            await session.commit("First", tag="v1")
        assert (await workspace.at("v1").node(node)).content == "alpha"
        assert [commit.subject async for commit in workspace.log()] == ["First", "Begin"]
        assert [type(event).__name__ async for event in workspace.verify()] == ["Progress", "Progress"]
        opened = await workspace.session()
        assert (await opened.info()).state is SessionState.OPEN
        assert (await client.raw.workspaces.ListWorkspaces(ListWorkspacesRequest())).workspaces[0].name == "demo"


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (AsyncClient, Client),
        (AsyncWorkspace, Workspace),
        (AsyncRevision, Revision),
        (AsyncSession, Session),
        (AsyncView, View),
    ],
)
def test_both_clients_offer_the_same_methods_with_the_same_parameters(
    asynchronous: type[object], blocking: type[object]
) -> None:
    def offered(kind: type[object]) -> dict[str, list[str]]:
        found = {}
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if not name.startswith("_"):
                parameters = inspect.signature(member).parameters if inspect.isfunction(member) else []
                found[name] = list(parameters)
        return found

    assert offered(asynchronous) == offered(blocking)
