"""The roles of a principal: what is kept of its grants answers as a search through all of them does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.access import ALL_WORKSPACES
from memotree_storage.model.protection import names_branch

from memotree.request import principal as module
from memotree.request.principal import ALL_BRANCHES, Grant, Principal, Role

pytestmark = pytest.mark.requirement("SERVE-3")

WORKSPACES = ("red", "green", ALL_WORKSPACES)
BRANCHES = (ALL_BRANCHES, "main", "agents/*", "agents/a")
TOOLS = ((), ("recall",), ("search*",), ("recall", "read_file:/srv"))

grants = st.lists(
    st.builds(
        Grant,
        st.sampled_from(WORKSPACES),
        st.sampled_from(BRANCHES),
        st.sampled_from(list(Role)[1:]),
        st.sampled_from(TOOLS),
    ),
    max_size=8,
).map(tuple)


def highest(found: list[Grant], workspace: str, branch: str | None = None) -> Role:
    return max(
        (
            grant.role
            for grant in found
            if grant.workspace_id in {workspace, ALL_WORKSPACES}
            and (branch is None or names_branch(grant.branches, branch))
        ),
        default=Role.NONE,
    )


@given(grants, st.sampled_from([(), ("recall",), ("search_nodes", "recall")]))
def test_roles_are_those_of_all_grants(given: tuple[Grant, ...], tools: tuple[str, ...]) -> None:
    who = replace(Principal("ada", grants=given), key_id="a key")
    assert who.is_limited == any(grant.tools for grant in given)
    for asked, held in ((who, list(given)), (who.calling(*tools), [each for each in given if each.permits(tools)])):
        assert sorted(map(str, asked.grants)) == sorted(map(str, held))
        assert asked.key_id == "a key"
        for workspace in WORKSPACES:
            assert asked.role(workspace) == highest(held, workspace)
            whole = [each for each in held if each.branches == ALL_BRANCHES]
            assert asked.role_on_all(workspace) == highest(whole, workspace)
            for branch in ("main", "agents/a", "agents/b"):
                assert asked.role(workspace, branch) == highest(held, workspace, branch)
            assert list(asked.grants_in(workspace)) == [each for each in held if each.workspace_id == workspace]
        ids = {each.workspace_id for each in held}
        assert asked.readable == (None if ALL_WORKSPACES in ids else ids)


def test_a_copy_with_other_grants_has_their_roles() -> None:
    who = Principal("ada", grants=(Grant("red", ALL_BRANCHES, Role.ADMIN),))
    assert replace(who, grants=()).role("red") is Role.NONE
    assert replace(who, grants=(Grant("red", "main", Role.READER),)).role("red") is Role.READER
    assert (who.role("red"), who) == (Role.ADMIN, replace(who, name="ada"))


def test_a_call_looks_at_no_grant_of_other_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grants are gone through once; each call then looks at those of its own workspace."""
    looked: list[str] = []

    def counted(pattern: str, branch: str) -> bool:
        looked.append(pattern)
        return names_branch(pattern, branch)

    monkeypatch.setattr(module, "names_branch", counted)
    others = [Grant(f"w{number}", ALL_BRANCHES, Role.READER) for number in range(1_000)]
    who = Principal("ada", grants=(*others, Grant("mine", "agents/*", Role.WRITER)))
    assert who.role("mine", "agents/x") is Role.WRITER
    assert looked == ["agents/*"]


def test_which_roles_hold_for_a_tool_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    permits = Grant.permits

    def counted(self: Grant, tools: tuple[str, ...]) -> bool:
        asked.append(self)
        return permits(self, tools)

    monkeypatch.setattr(Grant, "permits", counted)
    limited = tuple(Grant(f"w{number}", ALL_BRANCHES, Role.READER, ("recall",)) for number in range(100))
    who = Principal("ada", grants=limited)
    for _ in range(5):
        call = replace(who, key_id="a key")
        assert call.calling("recall").role("w7") is Role.READER
        assert call.calling("get_node").role("w7") is Role.NONE
    assert len(asked) == 200


def test_a_proof_ends() -> None:
    now = datetime.now(UTC)
    assert not Principal("ada").has_ended
    assert not Principal("ada", expires_at=now + timedelta(hours=1)).has_ended
    assert Principal("ada", expires_at=now).has_ended
