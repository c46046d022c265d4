"""Two principals with random roles, which change: each call is answered or refused as a plain model says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from campaigns import effort
from crash.service import serving
from hypothesis import given, note
from hypothesis import strategies as st

from memotree.client import Client, MemoTreeClientError

pytestmark = pytest.mark.requirement("SERVE-3")

PEOPLE: Final = ("ada", "bob")
PLACES: Final = ("red", "green", "*")
BRANCHES: Final = ("*", "main", "agents/*", "agents/a")
ROLES: Final = ("READER", "WRITER", "REVIEWER", "ADMIN")
SECRETS: Final = {"red": "strawberry", "green": "cucumber"}

_number = count()

Grant = tuple[str, str, str, str]
"""Who, where, on which branches, and the role; "" takes it away."""

Call = tuple[str, str, str]
"""Who, in which workspace, and the name of one of `CALLS`."""

grants = st.tuples(*map(st.sampled_from, (PEOPLE, PLACES, BRANCHES, ("", *ROLES)))).filter(
    lambda grant: grant[2] == "*" or grant[3] != "READER"  # who reads, reads all branches
)


@dataclass
class Rights:
    """The plain model: what each principal may do."""

    held: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def change(self, who: str, place: str, branches: str, role: str) -> None:
        self.held.pop((who, place, branches), None)
        if role:
            self.held[who, place, branches] = role

    def level(self, who: str, workspace: str, branch: str = "") -> int:
        """The place of the highest role among `ROLES`, from 1; 0 without one. Without a branch, on any."""
        found = [
            ROLES.index(role) + 1
            for (name, place, pattern), role in self.held.items()
            if name == who and place in {workspace, "*"} and (not branch or covers(pattern, branch))
        ]
        return max(found, default=0)


def covers(pattern: str, branch: str) -> bool:
    return branch.startswith(pattern[:-1]) if pattern.endswith("*") else branch == pattern


@dataclass(frozen=True)
class Calling:
    """What a call does, which level it needs, and on which branch ("": on any)."""

    do: Callable[[Any], Any]
    level: int
    branch: str = ""


def fresh() -> str:
    return f"x{next(_number)}"


CALLS: Final[dict[str, Calling]] = {
    "info": Calling(lambda ws: ws.info(), 1),
    "recall": Calling(lambda ws: ws.recall("fruit or vegetable"), 1),
    "search": Calling(lambda ws: ws.search("fruit or vegetable"), 1),
    "archives": Calling(lambda ws: list(ws.archives()), 1),
    "branches": Calling(lambda ws: list(ws.branches()), 1),
    "log": Calling(lambda ws: list(ws.log()), 1),
    "jobs": Calling(lambda ws: list(ws.jobs()), 1),
    "proposals": Calling(lambda ws: list(ws.proposals()), 1),
    "remember": Calling(lambda ws: ws.remember(f"Note {fresh()}.", find_similar=False), 2, "main"),
    "branch": Calling(lambda ws: ws.branch(f"agents/{fresh()}"), 2, "agents/x"),
    "branch a": Calling(lambda ws: ws.branch(f"agents/a-{fresh()}"), 2, "agents/a-x"),
    "tag": Calling(lambda ws: ws.tag(fresh()), 2, "anything"),
    "rights": Calling(lambda ws: ws.protect("never"), 4, "anything"),
}

calls = st.tuples(st.sampled_from(PEOPLE), st.sampled_from(tuple(SECRETS)), st.sampled_from(tuple(CALLS)))


def answer_of(call: Callable[[], Any]) -> tuple[str, str]:
    """The answer of a call or its error, as a text, and the error's code."""
    try:
        return str(call()), ""
    except MemoTreeClientError as error:
        return f"{error} {error.metadata} {error.violations}", error.code


@dataclass
class House:
    """A server with two workspaces, an administrator, and two principals."""

    admin: Client
    clients: dict[str, Client]
    rights: Rights = field(default_factory=Rights)

    def change(self, who: str, place: str, branches: str, role: str) -> None:
        held = (who, place, branches) in self.rights.held
        self.rights.change(who, place, branches, role)
        if role:
            self.admin.grant_role(who, role, workspace=place, branches=branches)  # type: ignore[arg-type]
        elif held:
            self.admin.revoke_role(who, workspace=place, branches=branches)

    def begin(self) -> None:
        for held in list(self.rights.held):
            self.change(*held, "")

    def call(self, who: str, workspace: str, name: str) -> None:
        calling = CALLS[name]
        permitted = self.rights.level(who, workspace, calling.branch) >= calling.level
        secret = SECRETS[workspace]
        told, code = answer_of(lambda: calling.do(self.clients[who].workspace(workspace)))
        may = f"{who} may {'' if permitted else 'not '}call {name} in {workspace}"
        unseen = self.rights.level(who, workspace) == 0
        assert code == ("" if permitted else "NOT_FOUND" if unseen else "PERMISSION_DENIED"), f"{may}: {told}"
        if permitted and name in {"recall", "search"}:
            assert secret in told, "the answer is the whole one"
        if unseen:
            assert secret not in told
        readable = {each for each in SECRETS if self.rights.level(who, each)}
        assert {each.name for each in self.clients[who].workspaces()} == readable


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder: Path = tmp_path_factory.mktemp("rights") / "data"
    with serving(folder, folder.parent / "server.log", authentication="keys") as server:
        admin = Client(server.address, attempts=1, key=(folder / "admin.key").read_text().strip())
        for name, secret in SECRETS.items():
            admin.create_workspace(name)
            admin.workspace(name).remember(f"A {secret} is a fruit or vegetable.", title=f"About a {secret}")
        clients = {}
        for who in PEOPLE:
            admin.put_principal(who)
            clients[who] = Client(server.address, attempts=1, key=admin.create_key(who).key)
        yield House(admin, clients)
        for client in (admin, *clients.values()):
            client.close()


@effort(12)
@given(st.lists(st.one_of(grants, calls), max_size=20), st.lists(calls, min_size=3, max_size=6))
def test_roles_permit_what_they_say_and_nothing_else(house: House, steps: list[Grant | Call], last: list[Call]) -> None:
    house.begin()
    for step in (*steps, *last):
        note(str(step))
        if len(step) == 4:
            house.change(*step)  # type: ignore[arg-type]
        else:
            house.call(*step)  # type: ignore[arg-type]
