"""The client remembers, revises, forgets and restores with one call each."""

import pytest
from unit.client.fake_memotree import FakeMemoTree

from memotree.client import Client, FailedPreconditionError, Similarity, memory

pytestmark = pytest.mark.requirement("USE-1")


def test_one_call_each_and_a_result_that_names_note_and_commit(fake: FakeMemoTree, client: Client) -> None:
    client.create_workspace("w")
    notes = client.workspace("w")
    made = notes.remember("Tea is green.", title="Tea", tags=["drink"], agent="ann")
    assert (made.node.title, made.branch, made.node_ids) == ("Tea", "main", (made.id,))
    again = notes.remember("Tea is green.")
    assert [(one.node.id, one.similarity) for one in again.similar] == [(made.id, Similarity.DUPLICATE)]
    assert notes.revise(made.node, "Tea is black.").node.content == "Tea is black."
    assert notes.revise(query="tea is", text="Tea.").id == again.id
    assert notes.forget(made.node).node_ids == (made.id,)
    assert notes.restore(made.id).id == made.id
    done = notes.apply([memory.remember("One."), memory.forget(again.id), memory.restore(again.id)], agent="ben")
    assert len({one.commit_id for one in done}) == 1
    assert done[0].node.title == "One."
    with pytest.raises(FailedPreconditionError, match="clearly"):
        notes.revise(query="nothing like it", text="x")
    assert all(request.request_id for request in fake.requests("Remember")), "a retry changes nothing"


@pytest.mark.requirement("USE-7")
@pytest.mark.parametrize(
    ("argument", "variable", "login", "author"),
    [
        ("planner", "scout", "ada", "planner"),
        ("", "scout", "ada", "scout"),
        ("", "", "ada", "ada"),
        ("", " ", "ada", "ada"),
        ("", "", "", ""),  # the server chooses
    ],
)
def test_the_author_is_the_argument_else_the_variable_else_the_login_name(
    fake: FakeMemoTree,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
    variable: str,
    login: str,
    author: str,
) -> None:
    def user() -> str:
        if not login:
            raise KeyError("no such user")
        return login

    monkeypatch.setattr("getpass.getuser", user)
    monkeypatch.setenv("MEMOTREE_AGENT", variable)
    client.create_workspace("authors")
    workspace = client.workspace("authors")
    workspace.remember("At most five retries.", agent=argument)
    workspace.session(agent=argument)
    workspace.apply([memory.remember("At most three retries.")], agent=argument)
    for method in ("Remember", "OpenSession", "BatchChangeMemory"):
        assert [each.agent for each in fake.requests(method)] == [author]
    (change,) = fake.requests("BatchChangeMemory")[0].changes
    assert not change.remember.agent, "the batch has one author"
