"""Nothing of a workspace that a principal may not read reaches it, whatever it sends; and roles hold.

A stranger, who administers a workspace of its own, sends requests about another one: by its name and id, with its
sessions, jobs, commits and nodes, also in its own workspace. A reader, a writer of some branches and an
administrator whose role is limited to a tool send everything to a workspace that they may read.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fuzz.effort import effort
from fuzz.requests import filled, methods, request_of, requests
from fuzz.server import BrokenPromiseError, FuzzedServer
from fuzz.world import World
from google.protobuf.message import Message
from hypothesis import given, note
from hypothesis import strategies as st
from integration.wires import Refusal
from property.store_harness import fresh_database

from memotree.v1 import access_service_pb2 as access

pytestmark = pytest.mark.requirement("SERVE-3")

OWN = "own"
WORDS = ("red and sweet", "green and juicy", "apple apple", "Child content", "Begin", "Delete one", "tester", "Staged")
"""Texts that only the other workspace has."""

HEX = re.compile(r"[0-9a-f]{40}")


class Guarded:
    """A server that needs keys, with the workspace of the generated requests and three principals."""

    def __init__(self, server: FuzzedServer) -> None:
        self.server = server
        self.admin = server.key = (server.data / "admin.key").read_text().strip()
        self.world = World(server)
        self.keys = {name: self._principal(name) for name in ("stranger", "reader", "writer", "searcher")}

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

    def canaries(self) -> set[str]:
        """What only somebody who may read the other workspace can know."""
        known = self.world.known
        names = ("workspace", "workspace_id", "session", "archive", "book", "job", "commit", "first_commit")
        return {known["{" + name + "}"] for name in names} | set(WORDS)

    def state(self) -> frozenset[str]:
        """What the other workspace has, without views."""
        return frozenset(
            line for line in self.server.state() if self.secret in line and not line.startswith("select view_id")
        )

    def send(self, who: str, method: str, request: Message) -> list[Message] | Refusal:
        self.server.key = self.keys[who]
        try:
            return self.server.send(method, request.SerializeToString())
        finally:
            self.server.settle()
            self.server.key = self.admin

    def again(self) -> None:
        """Let the next example begin with fresh workspaces."""
        self.world.known = {}

    def _principal(self, name: str) -> str:
        self._call("PutPrincipal", name=name)
        made: Any = self._call("CreateKey", principal=name)
        return str(made.key)

    def _grant(
        self,
        name: str,
        workspace: str,
        role: access.Role.ValueType,
        branches: str = "",
        tools: Sequence[str] = (),
    ) -> None:
        self._call("GrantRole", principal=name, workspace=workspace, role=role, branches=branches, tools=tools)

    def _call(self, method: str, **fields: Any) -> Message:
        kind = type(request_of(methods()[method]))
        return self.server.answer(method, kind(**fields))


@pytest.fixture(scope="module")
def guarded(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data: Path = tmp_path_factory.mktemp("access") / "data"
    with FuzzedServer.running(data, fresh_database(postgres), "keys") as server:
        yield Guarded(server)


def told(answer: list[Message] | Refusal) -> str:
    return str(answer)


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_stranger_learns_nothing_and_changes_nothing(guarded: Guarded, method: str) -> None:
    @effort(4, shrink=False)
    @given(requests(methods()[method]), st.booleans())
    def check(request: Message, at_home: bool) -> None:
        guarded.begin()
        sent: Any = filled(request, guarded.world.known)
        if at_home and "workspace" in sent.DESCRIPTOR.fields_by_name:
            sent.workspace = OWN
        note(f"{method} {sent}")
        before = guarded.state()
        answer = guarded.send("stranger", method, sent)
        given_words = str(sent)
        leaked = [each for each in guarded.canaries() if each in told(answer) and each not in given_words]
        if leaked or guarded.state() != before:
            changed = guarded.state() ^ before
            guarded.again()
            raise BrokenPromiseError(f"{method} told {leaked} and changed {sorted(changed)}: {answer}")
        guarded.server.check_log()
        if method in {"DeleteWorkspace", "UpdateWorkspace"} and not isinstance(answer, Refusal):
            guarded.again()  # its own workspace is gone, or has another name

    check()


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_reader_changes_nothing(guarded: Guarded, method: str) -> None:
    @effort(2, shrink=False)
    @given(requests(methods()[method]))
    def check(request: Message) -> None:
        guarded.begin()
        sent = filled(request, guarded.world.known)
        note(f"{method} {sent}")
        before = guarded.state()
        answer = guarded.send("reader", method, sent)
        changed = guarded.state() ^ before
        if changed:
            guarded.again()
            raise BrokenPromiseError(f"{method} changed {sorted(changed)}: {answer}")
        guarded.server.check_log()

    check()


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_writer_of_some_branches_moves_no_other(guarded: Guarded, method: str) -> None:
    @effort(2, shrink=False)
    @given(requests(methods()[method]))
    def check(request: Message) -> None:
        guarded.begin()
        sent = filled(request, guarded.world.known)
        note(f"{method} {sent}")
        before = _refs(guarded)
        answer = guarded.send("writer", method, sent)
        after = _refs(guarded)
        if {name: after.get(name) for name in before} != before:
            guarded.again()
            raise BrokenPromiseError(f"{method} moved a ref: {before} is {after} now: {answer}")
        guarded.server.check_log()

    check()


@pytest.mark.requirement("TOOL-5")
@pytest.mark.parametrize("method", sorted(methods()))
def test_an_administrator_that_is_limited_to_a_tool_does_nothing_else(guarded: Guarded, method: str) -> None:
    @effort(2, shrink=False)
    @given(requests(methods()[method]))
    def check(request: Message) -> None:
        guarded.begin()
        sent = filled(request, guarded.world.known)
        note(f"{method} {sent}")
        before = guarded.state()
        answer = guarded.send("searcher", method, sent)
        given_words = str(sent)
        leaked = [each for each in guarded.canaries() if each in told(answer) and each not in given_words]
        finds = method in {"SearchNodes", "ResolveNode"}  # what the tool tells
        finds = finds or method in {"GetPrincipal", "ExecuteTool", "ExecuteTools"}  # its own roles, and the tool
        if guarded.state() != before or (leaked and not finds):
            changed = guarded.state() ^ before
            guarded.again()
            raise BrokenPromiseError(f"{method} told {leaked} and changed {sorted(changed)}: {answer}")
        guarded.server.check_log()

    check()


def _refs(guarded: Guarded) -> dict[str, str]:
    """The branches and tags of the other workspace."""
    found = {}
    repository = guarded.server.data / "workspaces" / f"{guarded.secret}.git"
    for kind in ("heads", "tags"):
        for path in (repository / "refs" / kind).rglob("*"):
            if path.is_file():
                found[str(path.relative_to(repository))] = path.read_text()
    packed = repository / "packed-refs"
    for line in packed.read_text().splitlines() if packed.exists() else ():
        commit, _, name = line.partition(" ")
        if name.startswith(("refs/heads/", "refs/tags/")):
            found.setdefault(name, f"{commit}\n")
    return found
