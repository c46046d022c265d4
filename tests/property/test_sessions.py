"""Several sessions on one branch lose nothing and break nothing: every answer equals that of a plain model.

In the model a session is a base state with rows over it, each with the entry it was derived from. A commit merges the
chosen rows onto the head; it must succeed exactly if there is no conflict and the result is a forest.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from by_hand import file_changes
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from memotree_storage.errors import MemoTreeError
from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.node import Archive, Entry, Node, Relation
from memotree_storage.model.paths import parse_path
from memotree_storage.model.validation import canonical_node
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import registry, tree
from memotree_storage.postgres.staging import blob_id
from memotree_storage.postgres.tree import Snapshot, State
from property.session_model import Row, Session, Verdict, carried, merged, overlaid
from property.store_harness import StoreHarness, WorkspaceMachine, numbered_id, pick
from property.trees import ancestors, archive_tree, check_tree, children, faults, subtree

from memotree.canvas import NodeOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.sessions import SessionOperations
from memotree.v1 import node_service_pb2 as nodes_pb
from memotree.v1 import session_service_pb2 as sessions_pb
from memotree.v1 import types_pb2
from memotree.v1 import workspace_service_pb2 as workspaces_pb
from memotree.workspaces import WorkspaceOperations

choices = st.integers(0, 1000)
START = datetime(2024, 1, 1, tzinfo=UTC)
ARCHIVE_NAMES = ["notes", "plans", "drafts"]
RELATIONS = [types_pb2.RELATION_TYPE_REFERENCES, types_pb2.RELATION_TYPE_EXTENDS]


class SessionMachine(WorkspaceMachine):
    """Random edits in two or three sessions of one branch, and commits with git."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        limits, pages = ServiceLimits(), PageTokens()
        self.nodes = NodeOperations(harness.store, pages, limits)
        self.sessions = SessionOperations(
            harness.store, pages, limits, resolver=ConflictResolution(harness.store, limits)
        )
        self.workspaces = WorkspaceOperations(harness.store, pages, limits)
        self.head: dict[str, Entry] = {}
        self.open: list[Session] = []

    # --- steps ---

    @initialize(sessions=st.integers(2, 3))
    def begin(self, sessions: int) -> None:
        self.repository = self.harness.store.repositories.get(self.workspace)
        self._open_one()
        for name in ARCHIVE_NAMES[:2]:
            self._add_archive(self.open[0], name)
        for number in range(4):
            self.create(0, number, number)
        assert not self._commit(self.open[0], [])
        for _ in range(sessions - 1):
            self._open_one()

    @rule(which=choices, below=choices, place=st.none() | st.integers(0, 3))
    def create(self, which: int, below: int, place: int | None) -> None:
        session = pick(self.open, which)
        parent = pick([None, *self._nodes(session)], below)
        archives = self._archives(session)
        if parent is None and not archives:
            return
        request = nodes_pb.CreateNodeRequest(
            node_id=self._new_id(),
            title=f"title {self.count}",
            content=f"content {self.count}",
            auto_generate_summary=False,
            position=place,
            **({"parent_id": parent.id} if parent else {"archive_id": pick(archives, below).id}),
        )
        before = session.state
        node = self._ask(session, self.nodes.create_node, request).node
        made = Node(
            node.id,
            parent.archive_id if parent else pick(archives, below).id,
            parent.id if parent else None,
            node.position,
            title=request.title,
            content=request.content,
        )
        self._check_place(before, made, place)
        session.put(node.id, made)

    @rule(
        which=choices,
        node=choices,
        fields=st.sets(st.sampled_from(["title", "content", "brief", "tags", "attributes"]), min_size=1, max_size=2),
        value=st.integers(0, 2),
    )
    def update(self, which: int, node: int, fields: set[str], value: int) -> None:
        session = pick(self.open, which)
        if not self._nodes(session):
            return
        before = pick(self._nodes(session), node)
        request = nodes_pb.UpdateNodeRequest(node_id=before.id, commit_message=f"make it {value}")
        after = before
        for name in fields - {"tags", "attributes"}:
            setattr(request, name, f"{name} {value}")
            after = replace(after, **{name: f"{name} {value}"})
        if "tags" in fields:
            request.tags.append(f"tag {value}")
            after = replace(after, tags=(*after.tags, f"tag {value}"))
        if "attributes" in fields:
            request.attributes["key"] = str(value)
            after = replace(after, attributes={**after.attributes, "key": str(value)})
        self._ask(session, self.nodes.update_node, request)
        session.put(before.id, canonical_node(after))

    @rule(which=choices, node=choices, below=choices, place=st.none() | st.integers(0, 3))
    def move(self, which: int, node: int, below: int, place: int | None) -> None:
        session = pick(self.open, which)
        archives = self._archives(session)
        if not self._nodes(session) or not archives:
            return
        state = session.state
        before = pick(self._nodes(session), node)
        parent = pick([None, *self._nodes(session)], below)
        archive_id = parent.archive_id if parent else pick(archives, below).id
        request = nodes_pb.MoveNodeRequest(
            node_id=before.id, parent_id=parent.id if parent else "", archive_id=archive_id, position=place
        )
        if parent and before.id in (parent.id, *ancestors(state, parent.id)):
            assert self._refusal(session, self.nodes.move_node, request).reason == "CYCLE"
            return
        position = self._ask(session, self.nodes.move_node, request).node.position
        after = replace(before, parent_id=parent.id if parent else None, archive_id=archive_id, position=position)
        self._check_place({key: entry for key, entry in state.items() if key != before.id}, after, place)
        session.put(before.id, after)
        if archive_id != before.archive_id:
            for below_id, depth in subtree(session.state, [before.id]):
                if depth:
                    session.put(below_id, replace(state[below_id], archive_id=archive_id))  # type: ignore[type-var]

    @rule(which=choices, node=choices, recursive=st.booleans())
    def delete(self, which: int, node: int, recursive: bool) -> None:
        session = pick(self.open, which)
        if not self._nodes(session):
            return
        top = pick(self._nodes(session), node)
        gone = [key for key, _ in subtree(session.state, [top.id])]
        request = nodes_pb.DeleteNodeRequest(node_id=top.id, recursive=recursive)
        if len(gone) > 1 and not recursive:
            assert self._refusal(session, self.nodes.delete_node, request).reason == "HAS_CHILDREN"
            return
        assert list(self._ask(session, self.nodes.delete_node, request).deleted_ids) == gone
        for key in gone:
            session.put(key, None)

    @rule(which=choices, node=choices, other=choices, kind=st.sampled_from(RELATIONS), value=st.integers(0, 1))
    def relate(self, which: int, node: int, other: int, kind: int, value: int) -> None:
        session = pick(self.open, which)
        if not self._nodes(session):
            return
        before, aim = pick(self._nodes(session), node), pick(self._nodes(session), other)
        if before is aim:
            return
        relation = types_pb2.Relation(type=kind, target_id=aim.id, description=f"because {value}")  # type: ignore[arg-type]
        request = nodes_pb.AddRelationRequest(node_id=before.id, relation=relation)
        self._ask(session, self.nodes.add_relation, request)
        name = types_pb2.RelationType.Name(kind).removeprefix("RELATION_TYPE_")  # type: ignore[arg-type]
        added = Relation(name, aim.id, f"because {value}")
        session.put(before.id, canonical_node(replace(before, relations=(*before.relations, added))))

    @rule(which=choices, node=choices, number=choices)
    def unrelate(self, which: int, node: int, number: int) -> None:
        session = pick(self.open, which)
        related = [entry for entry in self._nodes(session) if entry.relations]
        if not related:
            return
        before = pick(related, node)
        gone = pick(before.relations, number)
        kind = types_pb2.RelationType.Value(f"RELATION_TYPE_{gone.type}")
        request = nodes_pb.RemoveRelationRequest(node_id=before.id, type=kind, target_id=gone.target_id)
        self._ask(session, self.nodes.remove_relation, request)
        left = tuple(relation for relation in before.relations if relation != gone)
        session.put(before.id, replace(before, relations=left))

    @rule(which=choices, name=st.sampled_from(ARCHIVE_NAMES))
    def create_archive(self, which: int, name: str) -> None:
        session = pick(self.open, which)
        if any(archive.name == name for archive in self._archives(session)):
            request = workspaces_pb.CreateArchiveRequest(name=name)
            assert self._refusal(session, self.workspaces.create_archive, request).reason == "ARCHIVE_EXISTS"
        else:
            self._add_archive(session, name)

    @rule(which=choices, archive=choices)
    def delete_archive(self, which: int, archive: int) -> None:
        session = pick(self.open, which)
        if len(self._archives(session)) < len(ARCHIVE_NAMES):
            return  # rarely, since afterwards there is little left to do
        gone = pick(self._archives(session), archive)
        below = [key for key, _ in archive_tree(session.state, gone.id)]
        request = workspaces_pb.DeleteArchiveRequest(archive=gone.id)
        assert self._ask(session, self.workspaces.delete_archive, request).deleted_nodes == len(below)
        for key in (*below, gone.id):
            session.put(key, None)

    @rule(which=choices, chosen=st.integers(0, 2**10), repeat=st.booleans())
    def commit_some(self, which: int, chosen: int, repeat: bool) -> None:
        session = pick(self.open, which)
        rows = sorted(session.rows)
        choice = [key for number, key in enumerate(rows) if chosen >> (number % 10) & 1]
        if choice:
            self._commit(session, choice, repeat=repeat)

    @rule(which=choices, repeat=st.booleans())
    def commit_all(self, which: int, repeat: bool) -> None:
        self._commit(pick(self.open, which), [], repeat=repeat)

    @rule(which=choices)
    def commit_two_at_once(self, which: int) -> None:
        """Check that simultaneous calls have the outcome of one after the other, in some order."""
        if len(self.open) < 2:
            return
        pair = (pick(self.open, which), pick(self.open, which + 1))
        calls = [self.sessions.commit_changes(self._commit_request(session, [])) for session in pair]
        answers = self.harness.run(gathered(calls))
        outcomes = [not isinstance(answer, MemoTreeError) for answer in answers]
        if all(outcomes):  # the first one is the one whose commit is the other's parent
            first = self.repository.commit_info(answers[1].commit_id).parents[0] == answers[0].commit_id
            orders = [pair if first else pair[::-1]]
        else:
            orders = [pair, pair[::-1]]
        expected = dict(zip([session.id for session in pair], outcomes, strict=True))
        for order in orders:
            head = self.head
            found = {}
            for session in order:
                verdict = merged(session.rows, head)
                found[session.id] = self._may(verdict, session.rows, head)
                head = verdict.state if found[session.id] else head
            if found == expected:
                break
        else:
            raise AssertionError(f"no order of the two commits gives {expected}")
        for session in order:
            if expected[session.id]:
                self._settle(session, session.rows)

    @rule(which=choices)
    def rebase(self, which: int) -> None:
        session = pick(self.open, which)
        request = sessions_pb.RebaseSessionRequest()
        verdict = merged(session.rows, self.head)
        if verdict.refused:
            assert self._refusal(session, self.sessions.rebase_session, request).reason == "CONFLICT"
            return
        self._ask(session, self.sessions.rebase_session, request)
        session.rows = carried(session.rows, self.head)
        session.base = dict(self.head)

    @rule(which=choices, chosen=st.integers(1, 2**10))
    def discard_some(self, which: int, chosen: int) -> None:
        session = pick(self.open, which)
        ids = [key for number, key in enumerate(sorted(session.rows)) if chosen >> (number % 10) & 1]
        if not ids:
            return
        request = sessions_pb.DiscardChangesRequest(node_ids=ids)
        stay = {key: row for key, row in session.rows.items() if key not in ids}
        if faults(overlaid(session.base, {key: row.entry for key, row in stay.items()})):
            assert self._refusal(session, self.sessions.discard_changes, request).reason == "INCOMPLETE_CHOICE"
            return
        self._ask(session, self.sessions.discard_changes, request)
        session.rows = stay

    @rule(which=choices)
    def begin_anew(self, which: int) -> None:
        session = pick(self.open, which)
        self._ask(session, self.sessions.discard_session, sessions_pb.DiscardSessionRequest())
        self.open.remove(session)
        self._open_one()

    @precondition(lambda self: any(isinstance(entry, Node) for entry in self.head.values()))
    @rule(node=choices, value=st.integers(0, 2), remove=st.booleans())
    def somebody_commits_with_git(self, node: int, value: int, remove: bool) -> None:
        """Change one node with git; the server mirrors it later."""
        entry = pick(self._nodes_of(self.head), node)
        leaf = not children(self.head, entry.id)
        after = None if remove and leaf else replace(entry, title=f"title {value}")
        if after == entry:
            return
        tip = self.repository.refs()["refs/heads/main"]
        self.count += 1
        by = Signature("A person", "", START + timedelta(minutes=self.count))
        changes = file_changes(self.repository, tip, {entry.id: after})
        written = self.repository.write_commit(CommitDraft(tip, changes, f"By hand {self.count}\n", by, by))
        assert self.repository.move_ref("refs/heads/main", tip, written.commit_id)
        self.head = overlaid(self.head, {entry.id: after})

    # --- what holds ---

    @invariant()
    def the_branch_is_a_forest_and_git_has_it(self) -> None:
        assert faults(self.head) == []
        tip = self.repository.refs()["refs/heads/main"]
        files = {change.path: change.new_blob for change in self.repository.diff(None, tip)}
        entries = {
            path: decode_entry(path, self.repository.read_blob(blob or ""))
            for path, blob in files.items()
            if parse_path(path)
        }
        assert {entry.id: entry for entry in entries.values()} == self.head

    @invariant()
    def every_reading_is_that_of_the_model(self) -> None:
        self.harness.run(self._check())

    async def _check(self) -> None:
        async with self.harness.store.database.connection() as conn:
            _, resolved = await registry.resolve(conn, self.workspace, "main")
            if resolved.state.commit_id == self.repository.refs()["refs/heads/main"]:
                await self._check_state(conn, resolved.state, self.head)
            for session in self.open:
                _, resolved = await registry.resolve(conn, self.workspace, session.id)
                await self._check_state(conn, resolved.state, session.state)
        for session in self.open:
            request = sessions_pb.ListChangesRequest(workspace=self.workspace, session_id=session.id, page_size=1000)
            listed = (await self.sessions.list_changes(request)).changes
            assert {change.node_id: change.kind for change in listed} == {
                key: kind_of(row) for key, row in session.rows.items()
            }

    async def _check_state(self, conn: Any, state: State, expected: dict[str, Entry]) -> None:
        found = await tree.everything(Snapshot(conn, state))
        blobs = {key: blob_id(encode_entry(entry)) for key, entry in expected.items()}
        assert {version.entry_id: version.blob for version in found} == blobs
        await check_tree(Snapshot(conn, state), expected, self.count)

    # --- by hand ---

    def _new_id(self) -> str:
        self.count += 1
        return numbered_id(self.count)

    @staticmethod
    def _nodes_of(state: dict[str, Entry]) -> list[Node]:
        return sorted((entry for entry in state.values() if isinstance(entry, Node)), key=lambda node: node.id)

    def _nodes(self, session: Session) -> list[Node]:
        return self._nodes_of(session.state)

    @staticmethod
    def _archives(session: Session) -> list[Archive]:
        found = (entry for entry in session.state.values() if isinstance(entry, Archive))
        return sorted(found, key=lambda archive: archive.id)

    def _open_one(self) -> None:
        request = sessions_pb.OpenSessionRequest(workspace=self.workspace, agent="tester")
        opened = self.harness.run(self.sessions.open_session(request)).session
        self.open.append(Session(opened.id, dict(self.head)))

    def _add_archive(self, session: Session, name: str) -> None:
        request = workspaces_pb.CreateArchiveRequest(name=name, archive_id=self._new_id(), description="d")
        self._ask(session, self.workspaces.create_archive, request)
        session.put(request.archive_id, Archive(request.archive_id, name, "", "d"))

    def _ask(self, session: Session, call: Callable[[Any], Coroutine[Any, Any, Any]], request: Any) -> Any:
        request.workspace, request.session_id = self.workspace, session.id
        return self.harness.run(call(request))

    def _refusal(self, session: Session, call: Callable[[Any], Coroutine[Any, Any, Any]], request: Any) -> Any:
        with pytest.raises(MemoTreeError) as caught:
            self._ask(session, call, request)
        return caught.value

    @staticmethod
    def _check_place(others: dict[str, Entry], node: Node, place: int | None) -> None:
        """Check that the node is at its place among its siblings: the given one, or the last."""
        archive_id = node.archive_id if node.parent_id is None else None
        siblings = children({**others, node.id: node}, node.parent_id or archive_id)
        last = len(siblings) - 1
        wanted = last if place is None else min(place, last)
        twins = [key for key in siblings if key != node.id and others[key].position == node.position]  # type: ignore[union-attr]
        assert twins or siblings.index(node.id) == wanted

    def _commit_request(self, session: Session, choice: list[str]) -> sessions_pb.CommitChangesRequest:
        self.count += 1
        return sessions_pb.CommitChangesRequest(
            workspace=self.workspace,
            session_id=session.id,
            message=f"Commit {self.count}",
            specific_nodes=choice,
            request_id=f"request {self.count}",
        )

    @staticmethod
    def _may(verdict: Verdict, rows: dict[str, Row], head: dict[str, Entry]) -> bool:
        effective = any(entry != head.get(key) for key, entry in verdict.changes.items())
        return bool(rows) and not verdict.refused and effective

    def _commit(self, session: Session, choice: list[str], *, repeat: bool = False) -> str:
        """Commit; check the result with the model and return the reason of a refusal."""
        rows = {key: row for key, row in session.rows.items() if not choice or key in choice}
        verdict = merged(rows, self.head)
        request = self._commit_request(session, choice)
        if not self._may(verdict, rows, self.head):
            error = self._refusal(session, self.sessions.commit_changes, request)
            if verdict.conflicts or verdict.broken:
                left_out = session.rows.keys() - rows.keys()
                assert error.reason in {"CONFLICT", "INCOMPLETE_CHOICE"}
                if error.reason == "CONFLICT":
                    assert error.conflicts
                else:
                    named = {node.entry_id for node in error.nodes}
                    assert verdict.broken
                    assert named
                    assert named <= left_out
            else:
                assert error.reason == "NOTHING_TO_COMMIT"
            return str(error.reason)
        answer = self._ask(session, self.sessions.commit_changes, request)
        assert self.repository.refs()["refs/heads/main"] == answer.commit_id
        self._settle(session, rows)
        assert answer.remaining_changes == len(session.rows)
        if repeat:
            assert self._ask(session, self.sessions.commit_changes, request) == answer
        return ""

    def _settle(self, session: Session, rows: dict[str, Row]) -> None:
        self.head = merged(rows, self.head).state
        left = {key: row for key, row in session.rows.items() if key not in rows}
        session.rows = carried(left, self.head)
        session.base = dict(self.head)


async def gathered(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


def kind_of(row: Row) -> int:
    if row.entry is None:
        return types_pb2.CHANGE_KIND_DELETED
    return types_pb2.CHANGE_KIND_CREATED if row.derived is None else types_pb2.CHANGE_KIND_UPDATED


@pytest.mark.requirement("CANVAS-6", "CANVAS-10", "STORE-2", "GIT-1")
def test_sessions_lose_no_field_and_leave_no_orphan_and_no_cycle(harness: StoreHarness) -> None:
    run_state_machine_as_test(lambda: SessionMachine(harness), settings=effort(3, steps=30, shrink=False))
