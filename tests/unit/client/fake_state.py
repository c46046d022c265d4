"""The state of the fake server: workspaces with commits and sessions, each a plain dictionary of nodes and archives."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from grpc import StatusCode

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2 as types
from memotree.v1 import workspace_service_pb2 as workspaces

_counter = itertools.count(1)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def fresh_id() -> str:
    """Sixteen characters, different in the first four."""
    number = (next(_counter) * 7919) % 32**4
    head = "".join(_ALPHABET[(number >> shift) & 31] for shift in (15, 10, 5, 0))
    return head + "0" * 12


class RefusedError(Exception):
    """A call that the fake refuses, with a status and details."""

    def __init__(self, code: StatusCode, message: str, reason: str, *details: Message) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details


def not_found(what: str, name: str) -> RefusedError:
    message = f"There is no {what} {name}; look at what there is."
    return RefusedError(StatusCode.NOT_FOUND, message, f"{what.upper()}_NOT_FOUND")


def taken(what: str, name: str) -> RefusedError:
    return RefusedError(StatusCode.ALREADY_EXISTS, f"There is a {what} {name} already.", f"{what.upper()}_EXISTS")


def unmet(message: str, reason: str, *details: Message) -> RefusedError:
    return RefusedError(StatusCode.FAILED_PRECONDITION, message, reason, *details)


@dataclass
class State:
    """One state of the tree."""

    nodes: dict[str, types.Node] = field(default_factory=dict)
    archives: dict[str, types.Archive] = field(default_factory=dict)

    def copy(self) -> "State":
        return State(dict(self.nodes), dict(self.archives))

    def find(self, prefix: str) -> types.Node:
        found = [node for node_id, node in self.nodes.items() if node_id.startswith(prefix)] if prefix else []
        if len(found) > 1:
            message = f"{prefix} could be {len(found)} nodes; write more of the id."
            raise RefusedError(StatusCode.INVALID_ARGUMENT, message, "AMBIGUOUS_ID", types.NodeList(nodes=found))
        if not found:
            raise not_found("node", prefix)
        return found[0]

    def archive(self, name: str) -> types.Archive:
        return next(each for each in self.archives.values() if each.name == name or (name and each.id.startswith(name)))

    def children(self, parent: str, archive: str = "") -> list[types.Node]:
        return [
            node
            for node in sorted(self.nodes.values(), key=lambda each: (each.position, each.id))
            if node.parent_id == parent and (not archive or node.archive_id == archive)
        ]

    def below(self, node_id: str) -> list[types.Node]:
        found = [self.nodes[node_id]]
        for child in self.children(node_id):
            found += self.below(child.id)
        return found


@dataclass
class FakeCommit:
    """A commit and the state it names."""

    message: history.Commit
    state: State


@dataclass
class FakeSession:
    """A session, its own state and the views in it."""

    message: sessions.Session
    state: State
    reasons: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class FakeWorkspace:
    """A workspace with everything in it."""

    message: workspaces.Workspace
    commits: dict[str, FakeCommit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, history.Tag] = field(default_factory=dict)
    sessions: dict[str, FakeSession] = field(default_factory=dict)
    views: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def commit(self, parents: list[str], subject: str, author: types.CommitAuthor, state: State, session: str) -> str:
        text = subject.splitlines()[0]
        commit_id = hashlib.sha1(f"{parents}{subject}{fresh_id()}".encode(), usedforsecurity=False).hexdigest()
        message = history.Commit(
            id=commit_id, parent_ids=parents, author=author, subject=text, message=subject, session_id=session
        )
        message.commit_time.FromSeconds(1_800_000_000 + next(_counter))
        self.commits[commit_id] = FakeCommit(message, state)
        return commit_id


def resolve(workspace: FakeWorkspace, revision: str) -> str:
    """The commit that a revision names; a session's base for a session."""
    name = revision or workspace.message.default_branch
    if name in workspace.branches:
        return workspace.branches[name]
    if name in workspace.tags:
        return workspace.tags[name].commit_id
    if name in workspace.sessions:
        return workspace.sessions[name].message.base_commit_id
    found = [commit_id for commit_id in workspace.commits if len(name) > 3 and commit_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    raise not_found("revision", name)


def state_of(workspace: FakeWorkspace, revision: str) -> State:
    """The state that a revision names."""
    if revision in workspace.sessions:
        return workspace.sessions[revision].state
    return workspace.commits[resolve(workspace, revision)].state


def changed(old: State, new: State) -> list[tuple[str, Any, Message | None, Message | None]]:
    """The differences: id, kind, the entry before and after."""
    found = []
    for before, after in ((old.nodes, new.nodes), (old.archives, new.archives)):
        for each in sorted({*before, *after}):
            was, now = before.get(each), after.get(each)
            if was is None:
                found.append((each, types.CHANGE_KIND_CREATED, was, now))
            elif now is None:
                found.append((each, types.CHANGE_KIND_DELETED, was, now))
            elif was != now:
                found.append((each, types.CHANGE_KIND_UPDATED, was, now))
    return found


def listed(answer: Callable[..., Any], field: str, items: Sequence[Any], request: Any, **more: Any) -> Any:
    """An answer with one page of ``items``: the token is the offset of the next."""
    start, size = int(request.page_token or 0), request.page_size or 50
    token = str(start + size) if start + size < len(items) else ""
    return answer(**{field: items[start : start + size]}, next_page_token=token, **more)


class FakeStates:
    """The workspaces that every service of the fake reads and changes."""

    spaces: dict[str, FakeWorkspace]

    def space(self, name: str) -> FakeWorkspace:
        for space in self.spaces.values():
            if name and name in {space.message.name, space.message.id}:
                return space
        raise not_found("workspace", name)

    def state(self, request: Any) -> State:
        return state_of(self.space(request.workspace), request.revision)

    def session_of(self, request: Any) -> FakeSession:
        session = self.space(request.workspace).sessions.get(request.session_id)
        if session is None:
            raise not_found("session", request.session_id)
        return session
