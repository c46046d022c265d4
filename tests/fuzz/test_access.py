"""Nothing of a workspace that a principal may not read reaches it, whatever it sends; and roles hold.

A stranger, who administers a workspace of its own, sends requests about another one: by its name and id, with its
sessions, jobs, commits and nodes, also in its own workspace. A reader, a writer of some branches and an
administrator whose role is limited to a tool send everything to a workspace that they may read.

Many calls are sent between two looks at the state. If it has changed, the call that did it is found by halves.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest
from campaigns import dice, sample
from fuzz.requests import filled, has_effects, methods, request_of, requests, told
from fuzz.server import BrokenPromiseError, FuzzedServer
from fuzz.world import ENDS, World
from google.protobuf.message import Message
from integration.wires import Refusal
from property.store_harness import fresh_database

from memotree.v1 import access_service_pb2 as access

pytestmark = pytest.mark.requirement("SERVE-3")

OWN = "own"
WORDS = ("red and sweet", "green and juicy", "apple apple", "Child content", "Begin", "Delete one", "tester", "Staged")
"""Texts that only the other workspace has."""

BETWEEN_LOOKS = 40
"""Calls of a principal after which the state is compared."""

Call = tuple[str, Message]
Lines = frozenset[str]


class Guarded:
    """A server that needs keys, with the workspace of the generated requests and three principals."""

    def __init__(self, server: FuzzedServer) -> None:
        self.server = server
        self.admin = server.key = (server.data / "admin.key").read_text().strip()
        self.world = World(server)
        self.keys = {name: self._principal(name) for name in ("stranger", "reader", "writer", "searcher")}
        self.stored = dict.fromkeys(self.keys, "")
        """What each principal has stored itself, such as the label of a key."""

    def begin(self) -> None:
        """Make the workspaces unless they are as they were."""
        self.server.key = self.admin
        fresh = not self.world.known
        self.world.begin()
        if fresh:
            self._call("CreateWorkspace", name=OWN)
            self._grant("stranger", OWN, access.ROLE_ADMIN)
            self._grant("reader", self.secret, access.ROLE_READER)
            self._grant("writer", self.secret, access.ROLE_WRITER, "agents/*")
            self._grant("searcher", self.secret, access.ROLE_ADMIN, tools=["search_nodes"])

    @property
    def secret(self) -> str:
        return self.world.known["{workspace_id}"]

    def leaked(self, who: str, sent: Message, answer: list[Message] | Refusal) -> list[str]:
        """What an answer has that only those who may read the other workspace know, but for what the asker wrote."""
        names = ("workspace", "workspace_id", "session", "archive", "book", "job", "commit", "first_commit")
        secrets = {self.world.known["{" + name + "}"] for name in names} | {*WORDS}
        return [each for each in secrets if each in str(answer) and each not in f"{sent} {self.stored[who]}"]

    def state(self) -> Lines:
        """What the other workspace has, without views."""
        return frozenset(
            line for line in self.server.state() if self.secret in line and not line.startswith("work.view:")
        )

    def refs(self) -> Lines:
        """The branches and tags of the other workspace, with their commits."""
        repository = self.server.data / "workspaces" / f"{self.secret}.git"
        packed = repository / "packed-refs"
        lines = [line.partition(" ") for line in packed.read_text().splitlines()] if packed.exists() else []
        found = {name: commit for commit, _, name in lines if name.startswith(("refs/heads/", "refs/tags/"))}
        for kind in ("heads", "tags"):
            for path in (repository / "refs" / kind).rglob("*"):
                if path.is_file():
                    found[str(path.relative_to(repository))] = path.read_text().strip()
        return frozenset(f"{name} {commit}" for name, commit in found.items())

    def send(self, who: str, method: str, request: Message) -> list[Message] | Refusal:
        self.server.key = self.keys[who]
        try:
            answer = self.server.send(method, request.SerializeToString())
        finally:
            self.server.key = self.admin
        if has_effects(method) and not isinstance(answer, Refusal):
            self.stored[who] += str(request)
        return answer

    def again(self) -> None:
        """Let the next example begin with fresh workspaces."""
        self.world.known = {}

    def _principal(self, name: str) -> str:
        self._call("PutPrincipal", name=name)
        made: Any = self._call("CreateKey", principal=name)
        return str(made.key)

    def _grant(
        self, name: str, workspace: str, role: access.Role.ValueType, branches: str = "", tools: Sequence[str] = ()
    ) -> None:
        self._call("GrantRole", principal=name, workspace=workspace, role=role, branches=branches, tools=tools)

    def _call(self, method: str, **fields: Any) -> Message:
        return self.server.answer(method, request_of(method, **fields))


@pytest.fixture(scope="module")
def guarded(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with FuzzedServer.running(tmp_path_factory.mktemp("access"), fresh_database(postgres), "keys") as server:
        yield Guarded(server)


@pytest.fixture(scope="module")
def calls() -> list[list[Call]]:
    """Each call twice or more with random requests, in pieces; those that end a workspace come last."""
    found = [(name, request) for name, method in methods().items() for request in sample(requests(method), 3)[1:]]
    dice("access").shuffle(found)
    found.sort(key=lambda call: call[0] in ENDS)
    return [found[at : at + BETWEEN_LOOKS] for at in range(0, len(found), BETWEEN_LOOKS)]


def check(
    guarded: Guarded,
    who: str,
    calls: Sequence[Call],
    look: Callable[[], Lines],
    *,
    may_tell: Collection[str] = frozenset(methods()),
    may_add: bool = False,
) -> None:
    """Let a principal send calls, after which there is to see what there was before.

    Args:
        guarded: The server.
        who: The principal.
        calls: What it sends.
        look: What there is to see.
        may_tell: The calls whose answers may have something of the other workspace.
        may_add: Whether it may add something.
    """
    guarded.begin()
    before = look()
    answers = []
    for method, request in calls:
        sent = filled(request, guarded.world.known)
        answers.append(guarded.send(who, method, sent))
        leaked = [] if method in may_tell else guarded.leaked(who, sent, answers[-1])
        if leaked:
            guarded.again()
            raise BrokenPromiseError(f"{who} learns {leaked} by {told(method, request)}: {answers[-1]}")
    guarded.server.settle()
    after = look()
    if changed := before - after if may_add else before ^ after:
        guarded.again()
        half = len(calls) // 2
        for some in (calls[:half], calls[half:]) if half else ():
            check(guarded, who, some, look, may_tell=may_tell, may_add=may_add)
        raise BrokenPromiseError(f"{who} changes {sorted(changed)} by {[told(*call) for call in calls]}: {answers}")
    guarded.server.check_log()


def at_home(call: Call) -> Call:
    """The call in the stranger's own workspace, with what it names of the other one."""
    request: Any = type(call[1]).FromString(call[1].SerializeToString())
    if "workspace" in request.DESCRIPTOR.fields_by_name:
        request.workspace = OWN
    return call[0], request


def test_a_stranger_learns_nothing_and_changes_nothing(guarded: Guarded, calls: list[list[Call]]) -> None:
    for some in calls:
        check(guarded, "stranger", some, guarded.state, may_tell=())
    for some in calls:
        check(guarded, "stranger", [at_home(call) for call in some], guarded.state, may_tell=())
    guarded.again()  # its own workspace is gone, or has another name


def test_a_reader_changes_nothing(guarded: Guarded, calls: list[list[Call]]) -> None:
    for some in calls:
        check(guarded, "reader", some, guarded.state)


def test_a_writer_of_some_branches_moves_no_other(guarded: Guarded, calls: list[list[Call]]) -> None:
    for some in calls:
        check(guarded, "writer", some, guarded.refs, may_add=True)


@pytest.mark.requirement("TOOL-5")
def test_an_administrator_that_is_limited_to_a_tool_does_nothing_else(
    guarded: Guarded, calls: list[list[Call]]
) -> None:
    finds = {"SearchNodes", "ResolveNode"}  # what the tool tells
    own = {"GetPrincipal", "ExecuteTool", "ExecuteTools"}  # its own roles, and the tool
    for some in calls:
        check(guarded, "searcher", some, guarded.state, may_tell=finds | own)
