"""The workspace that generated requests are about: nodes, a document, branches, a tag, a session, a job and a view."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fuzz.requests import expanded, filled, has_effects, request_of, told
from fuzz.server import DEFAULT_WORKSPACE, BrokenPromiseError, FuzzedServer
from google.protobuf.message import Message
from integration.prepared import CHILD, GONE, LEAF, ROOT, STAGED, TWINS
from integration.wires import Refusal

ENDS = frozenset({"DeleteWorkspace", "UpdateWorkspace", "DiscardSession"})
"""Calls after which most others would be about something that is not there."""

_MOST_CHANGES = 6
"""After so many calls that have changed something, the next one gets a new workspace."""

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
    """A workspace, and a new one after some calls that have changed it."""

    def __init__(self, server: FuzzedServer) -> None:
        self.server = server
        self.known: Mapping[str, str] = {}
        self._state: frozenset[str] = frozenset()
        self._foreign = ""
        self._reads: list[tuple[str, Message]] = []
        """The calls without side effects after which the state was not looked at yet."""
        self._sent: list[str] = []
        """What was sent to this workspace, for the corpus."""
        self._changes = 0

    def begin(self) -> None:
        """Make a workspace unless there is one that is nearly fresh."""
        if not self.known:
            self._renew()

    def expand(self, text: str) -> str:
        """A text with what stands in braces filled in."""
        return expanded(text, self.known)

    def check(self, *calls: tuple[str, Message]) -> None:
        """Send calls one after the other, and check all promises."""
        self.begin()
        with self._telling():
            for method, request in calls:
                self._check_call(method, request)
            self._look_after_reads()
            self._check_sound()

    @contextmanager
    def unchanged_if_refused(self, what: str) -> Iterator[Outcome]:
        """Check all promises about a call that is made in this context, in whatever way; it says how it ended."""
        self.begin()
        outcome = Outcome()
        with self._telling():
            self._sent.append(what)
            yield outcome
            if outcome.refused:
                self._check_same(f"{what} was refused")
            else:
                self._accept()
            self.server.check_log()
            self._check_sound()

    def check_raw(self, method: str, raw: bytes) -> None:
        """Send bytes that may be no request of the method."""
        with self.unchanged_if_refused(f"{method} {raw!r}") as outcome:
            answer = self.server.send(method, raw)
            outcome.refused = isinstance(answer, Refusal)
            if isinstance(answer, Refusal):
                self.server.check_refusal(answer, None)
            elif method in ENDS:
                self._changes = _MOST_CHANGES

    def _check_call(self, method: str, request: Message) -> None:
        self._sent.append(told(method, request))
        sent = filled(request, self.known)
        if has_effects(method):
            self._look_after_reads()
        answer = self.server.send(method, sent.SerializeToString())
        if isinstance(answer, Refusal):
            self.server.check_refusal(answer, sent)
        if not has_effects(method):
            self._reads.append((method, request))
        elif isinstance(answer, Refusal):
            self._check_same(f"{method} was refused ({answer.reason})")
        else:
            self._accept()
            if method in ENDS:
                self._changes = _MOST_CHANGES
        self.server.check_log()

    def _look_after_reads(self) -> None:
        """Check that the calls without side effects had none; if not, find the one that had by sending each again."""
        reads, self._reads = self._reads, []
        if reads:
            self.server.settle()
        if not reads or self.server.state() == self._state:
            return
        self._renew()
        for method, request in reads:
            self.server.send(method, filled(request, self.known).SerializeToString())
            self._check_same(f"{told(method, request)} says that it has no side effects")
        raise BrokenPromiseError("calls that say that they have no side effects changed something, not one alone")

    def _accept(self) -> None:
        self.server.settle()
        before, self._state = self._state, self.server.state()
        self._changes += self._state != before

    def _check_same(self, what: str) -> None:
        self.server.settle()
        if changed := self.server.state() ^ self._state:
            raise BrokenPromiseError(f"{what}, and changed something: {sorted(changed)}")

    def _check_sound(self) -> None:
        """After some changes, check that the stores agree if the workspace is still there, and leave it."""
        if self._changes < _MOST_CHANGES:
            return
        request = request_of("VerifyWorkspace", workspace=self.known["{workspace_id}"])
        events = self.server.send("VerifyWorkspace", request.SerializeToString())
        self.known = {}
        if isinstance(events, Refusal):
            if events.reason != "WORKSPACE_NOT_FOUND":
                raise BrokenPromiseError(f"after the calls, the workspace cannot be verified: {events}")
            return
        found = [event.difference.description for event in events if event.WhichOneof("event") == "difference"]  # type: ignore[attr-defined]
        if found:
            raise BrokenPromiseError(f"after the calls, the stores differ: {found}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell with an error what was sent to the workspace, and leave that."""
        try:
            yield
        except Exception as error:
            error.add_note("\n".join(["Since the workspace was made, these were sent:", *self._sent]))
            self.known, self._reads = {}, []
            raise

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
        self._state, self._sent, self._changes = self.server.state(), [], 0

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
        return self.server.answer(method, request_of(method, **fields))
