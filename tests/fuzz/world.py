"""The workspace that generated requests are about: nodes, a document, branches, a tag, a session, a job and a view."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fuzz.requests import expanded, filled, methods, request_of
from fuzz.server import DEFAULT_WORKSPACE, BrokenPromiseError, FuzzedServer
from google.protobuf.message import Message
from integration.prepared import CHILD, GONE, LEAF, ROOT, STAGED, TWINS
from integration.wires import Refusal

_NO_SIDE_EFFECTS = 1

BOOK = """\
# One

Apples are red and sweet. Pears are green and juicy.

# Two

Trees have leaves. They grow slowly.
"""
"""A document that becomes two sections of two leaves each."""


@dataclass(slots=True)
class Outcome:
    """How a call ended."""

    refused: bool = False


class World:
    """One workspace after the other: a new one after each call that has changed something."""

    def __init__(self, server: FuzzedServer) -> None:
        self.server = server
        self.known: Mapping[str, str] = {}
        self._state: frozenset[str] = frozenset()
        self._foreign = ""

    def check(self, *calls: tuple[str, Message]) -> list[list[Message] | Refusal]:
        """Send calls one after the other, and check all promises after each."""
        self.begin()
        answers = []
        changed = False
        for method, request in calls:
            sent = filled(request, self.known)
            before = self._state
            answer = self.server.send(method, sent.SerializeToString())
            answers.append(answer)
            if isinstance(answer, Refusal):
                self._check_refused(answer, sent, before)
            elif methods()[method].GetOptions().idempotency_level != _NO_SIDE_EFFECTS:
                self.server.settle()
                self._state = self.server.state()
                changed |= self._state != before
            else:
                self._check_same(before, f"{method} says that it has no side effects")
            self.server.check_log()
        if changed:
            self._check_sound()
            self.known = {}
        return answers

    def begin(self) -> None:
        """Make a workspace unless there is a fresh one."""
        if not self.known:
            self._renew()

    def expand(self, text: str) -> str:
        """A text with what stands in braces filled in."""
        return expanded(text, self.known)

    @contextmanager
    def unchanged_if_refused(self, what: str) -> Iterator[Outcome]:
        """Check all promises about a call that is made in this context, in whatever way; it says how it ended."""
        self.begin()
        before = self._state
        outcome = Outcome()
        try:
            yield outcome
            self.server.settle()
            if outcome.refused:
                self._check_same(before, f"{what} was refused")
            elif self.server.state() != before:
                self._check_sound()
                self.known = {}
            self.server.check_log()
        except Exception:
            self.known = {}
            raise

    def check_raw(self, method: str, raw: bytes) -> None:
        """Send bytes that may be no request of the method."""
        self.begin()
        before = self._state
        answer = self.server.send(method, raw)
        if isinstance(answer, Refusal):
            self._check_refused(answer, None, before)
        else:
            self.server.settle()
            self.known = {}
        self.server.check_log()

    def _check_refused(self, refusal: Refusal, request: Message | None, before: frozenset[str]) -> None:
        try:
            self.server.check_refusal(refusal, request)
            self.server.settle()
            self._check_same(before, f"the call was refused ({refusal.reason})")
        except BrokenPromiseError:
            self.known = {}  # the next example begins anew
            raise

    def _check_same(self, before: frozenset[str], what: str) -> None:
        changed = self.server.state() ^ before
        if changed:
            self.known = {}
            raise BrokenPromiseError(f"{what}, and changed something: {sorted(changed)}")

    def _check_sound(self) -> None:
        """Check that the stores agree if the workspace is still there."""
        request = request_of(methods()["VerifyWorkspace"])
        request.workspace = self.known["{workspace_id}"]  # type: ignore[attr-defined]  # it has one
        events = self.server.send("VerifyWorkspace", request.SerializeToString())
        if isinstance(events, Refusal):
            if events.reason != "WORKSPACE_NOT_FOUND":
                raise BrokenPromiseError(f"after the call, the workspace cannot be verified: {events}")
            return
        found = [event.difference.description for event in events if event.WhichOneof("event") == "difference"]  # type: ignore[attr-defined]
        if found:
            self.known = {}
            raise BrokenPromiseError(f"after the call, the stores differ: {found}")

    # --- Making one --------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Delete all workspaces but the neighbour, and make a new one."""
        if not self._foreign:
            self._make("neighbour")
            self._foreign = self.known["{session}"]
        listed: Any = self._call("ListWorkspaces", page_size=1000)
        for workspace in listed.workspaces:
            if workspace.name != "neighbour":
                self._call("DeleteWorkspace", workspace=workspace.id, confirm_name=workspace.name)
        self._call("CreateWorkspace", name=DEFAULT_WORKSPACE)  # else the first call that means it would create it
        self._make(f"w-{secrets.token_hex(4)}")
        self.server.settle()
        self.server.logged()
        self._state = self.server.state()

    def _make(self, name: str) -> None:
        """A workspace as `integration.prepared` has it, with an ingested document."""
        workspace: Any = self._call("CreateWorkspace", name=name)
        here = {"workspace": name}
        ingested: Any = self._call(
            "IngestDocument", **here, name="A book", document_id="book", chunk_size=40,
            text=BOOK,
        )  # fmt: skip
        session: Any = self._call("OpenSession", **here, agent="tester")
        here["session_id"] = session.session.id
        archive: Any = self._call("CreateArchive", **here, name="notes")
        for title, node_id, fields in (
            ("Root", ROOT, {"content": "apple " * 20, "tags": ["a"], "attributes": {"colour": "red"}}),
            ("Child", CHILD, {"parent_id": ROOT, "content": "Child content.\n\nA second part of it.\n"}),
            ("Leaf", LEAF, {"parent_id": CHILD}),
            ("Gone", GONE, {}),
            ("Twin", TWINS[0], {}),
            ("Twin", TWINS[1], {}),
        ):
            home = {} if "parent_id" in fields else {"archive_id": "notes"}
            self._call("CreateNode", **here, title=title, node_id=node_id, **home, **fields)
        first: Any = self._call("CommitChanges", **here, message="Begin", create_tag=True, tag_name="v1")
        self._call("CreateBranch", workspace=name, name="side")
        self._call("DeleteNode", **here, node_id=GONE)
        second: Any = self._call("CommitChanges", **here, message="Delete one", request_id="one")
        self._call("CreateNode", **here, title="Staged", node_id=STAGED, parent_id=ROOT)
        self._call("ExpandNode", workspace=name, revision=here["session_id"], node_id=ROOT)
        tree: Any = self._call("GetTree", workspace=name, archive="A book")
        root: Any = self._call("GetNode", workspace=name, node_id=ROOT)
        types = {item.node.type: item.node.id for item in tree.nodes}
        self.known = {
            "{workspace}": name,
            "{workspace_id}": workspace.workspace.id,
            "{session}": here["session_id"],
            "{foreign_session}": self._foreign,
            "{archive}": archive.archive.id,
            "{book}": ingested.job.ingestion.archive_id,
            "{part}": types["leaf_chunk"],
            "{whole}": types["summary_node"],
            "{job}": ingested.job.id,
            "{commit}": second.commit_id,
            "{commit_prefix}": second.commit_id[:8],
            "{first_commit}": first.commit_id,
            "{etag}": root.node.etag,
            "{request_id}": "one",
        }

    def _call(self, method: str, **fields: Any) -> Message:
        kind = type(request_of(methods()[method]))
        return self.server.answer(method, kind(**fields))
