"""The operations on nodes."""

from collections.abc import Iterable
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.provenance import shown_summary
from memotree_storage.postgres import tree, views
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.postgres.tree_pages import Top
from memotree_storage.store import Store

from memotree.canvas import edits, moves, names, relations, tree_pages
from memotree.canvas.committed_batches import committed_batch
from memotree.canvas.edits import EditResult
from memotree.canvas.node_messages import node_at, nodes_at, remembered_node
from memotree.canvas.search import NodeSearch
from memotree.canvas.view_operations import DEFAULT_VIEW, view_key
from memotree.canvas.view_rendering import render, shown
from memotree.request import lookup
from memotree.request.batches import naming_change
from memotree.request.limits import ServiceLimits
from memotree.request.lookup import WorkspaceRevision
from memotree.request.messages import DETAIL, SUMMARY, TITLE, level_or, node_message
from memotree.request.pages import InvalidPageSizeError, PageTokens, page_size
from memotree.sessions.editing import SessionEditor, check_note, edit_session
from memotree.sessions.immediate import FollowingSummaries, ImmediateCommits
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

_DEFAULT_TREE: Final = 1000
_MOST_TREE: Final = 10_000
_MOST_CHANGES: Final = 1000


class NodeOperations:
    """Reads, changes and searches nodes.

    Args:
        store: The store.
        pages: Makes page tokens.
        limits: What the service allows.
        summaries: Renews the summaries that follow a batch which is committed at once.
    """

    def __init__(
        self, store: Store, pages: PageTokens, limits: ServiceLimits, summaries: FollowingSummaries | None = None
    ) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._commits = ImmediateCommits(store, limits, summaries)

    # --- reading ---

    async def get_node(self, request: pb.GetNodeRequest) -> pb.GetNodeResponse:
        """Read a node."""
        level = level_or(request.level, DETAIL)
        place = lookup.known_revision(self._store, request.workspace, request.revision)
        if place is not None:
            known = await remembered_node(place.state, self._store, request.node_id, level)
            if known is not None:
                return pb.GetNodeResponse(node=known)
        async with self._store.database.connection() as conn:
            place = await lookup.read_revision(self._store, conn, request.workspace, request.revision)
            entry_id = await lookup.full_id(Snapshot(conn, place.state), request.node_id)
            node = await node_at(
                Snapshot(conn, place.state), self._store, entry_id, level, limit=self._limits.node.content_bytes
            )
        return pb.GetNodeResponse(node=node)

    async def resolve_node(self, request: pb.ResolveNodeRequest) -> pb.ResolveNodeResponse:
        """Find the node that a name means."""
        most = names.most_candidates(request.max_candidates)
        async with self._store.database.connection() as conn:
            place = await lookup.read_revision(self._store, conn, request.workspace, request.revision)
            snapshot = Snapshot(conn, place.state)
            find = names.beginning if request.prefix else names.resolve
            found = await find(snapshot, request.name, most)
            ids = [one.version.entry_id for one in found.candidates]
            nodes = {node.id: node for node in await nodes_at(snapshot, self._store, ids, TITLE)}
        return pb.ResolveNodeResponse(
            candidates=[
                pb.NamedNode(node=nodes[one.version.entry_id], path=one.path)
                for one in found.candidates
                if one.version.entry_id in nodes
            ],
            more=found.more,
            warnings=found.warnings,
        )

    async def list_children(self, request: pb.ListChildrenRequest) -> pb.ListChildrenResponse:
        """List the nodes directly below a node or archive."""
        size = page_size(request.page_size)
        level = level_or(request.level, TITLE)
        cursor = self._pages.read(request, {"position": str, "id": str, **lookup.PINNED})
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            home_id, _ = await self._home(conn, place, request.parent_id, request.archive, "parent_id")
            found = await tree.children(
                Snapshot(conn, place.state),
                home_id,
                after=(cursor["position"], cursor["id"]) if cursor else ("", ""),
                limit=size + 1,
            )
            ids = [child.entry_id for child in found[:size]]
            nodes = await nodes_at(
                Snapshot(conn, place.state), self._store, ids, level, limit=self._limits.node.content_bytes
            )
        last = found[size - 1] if len(found) > size else None
        more = {"position": last.position, "id": last.entry_id, **lookup.pinned(place)} if last is not None else None
        return pb.ListChildrenResponse(nodes=nodes, next_page_token=self._pages.write(request, more))

    async def get_tree(self, request: pb.GetTreeRequest) -> pb.GetTreeResponse:
        """Read the structure of a subtree or archive."""
        level = min(level_or(request.level, TITLE), DETAIL if request.page_size else SUMMARY)
        if request.max_depth < 0 or request.max_nodes < 0:
            raise InvalidInputError.at("max_depth" if request.max_depth < 0 else "max_nodes", "must be 0 or more.")
        if request.page_size < 0:
            raise InvalidPageSizeError("page_size", request.page_size)
        most = min(request.page_size or request.max_nodes or _DEFAULT_TREE, _MOST_TREE)
        cursor = self._pages.read(request, {**tree_pages.CURSOR, **lookup.PINNED})
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            home_id, is_archive = await self._home(conn, place, request.node_id, request.archive, "node_id")
        # A root of an archive is one level below the archive, and has depth 0.
        top = Top(home_id, is_archive, request.max_depth - is_archive if request.max_depth else None)
        async with self._store.database.repeatable_read() as conn:
            snapshot = Snapshot(conn, place.state)
            if not request.page_size and cursor is None:
                return await tree_pages.beginning(snapshot, self._store, top, most, level)
            answer, more = await tree_pages.one_page(snapshot, self._store, top, most, level, cursor)
        answer.next_page_token = self._pages.write(request, {**more, **lookup.pinned(place)} if more else None)
        return answer

    async def search_nodes(self, request: pb.SearchNodesRequest) -> pb.SearchNodesResponse:
        """Find nodes by words, by meaning, by both, or along relations."""
        return await NodeSearch(self._store, request, self._limits).run()

    # --- levels of detail ---

    async def expand_node(self, request: pb.ExpandNodeRequest) -> pb.ExpandNodeResponse:
        """Set the level of a node in a view and return its text at that level."""
        level = level_or(request.level, DETAIL)
        async with self._store.database.transaction() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            key = view_key(place, request.view_name if request.HasField("view_name") else DEFAULT_VIEW)
            version = await lookup.node(Snapshot(conn, place.state), request.node_id)
            await views.set_levels(conn, key, {version.entry_id: level})
            children: list[types_pb2.Node] = []
            if request.include_children:
                ids = [child.entry_id for child in await tree.children(Snapshot(conn, place.state), version.entry_id)]
                await views.bring_in(conn, key, ids, TITLE)
                children = await nodes_at(Snapshot(conn, place.state), self._store, ids, TITLE)
            related: list[types_pb2.RelatedNode] = []
            if request.include_relations:
                steps = (await relations.steps_from(Snapshot(conn, place.state), [version.entry_id]))[version.entry_id]
                ends = await tree.versions(Snapshot(conn, place.state), {step.end for step in steps})
                related = [relations.related_message(step, ends) for step in steps]
            most = self._limits.node.content_bytes
            node = await node_at(Snapshot(conn, place.state), self._store, version.entry_id, level, limit=most)
            body = _body(node)
            return pb.ExpandNodeResponse(
                node=node,
                text=f"{version.title}\n\n{body}" if body else version.title,
                children=children,
                relations=related,
                usage=await self._usage(conn, place, key.name),
            )

    async def collapse_node(self, request: pb.CollapseNodeRequest) -> pb.CollapseNodeResponse:
        """Set a node of a view back to TITLE and hide its children."""
        async with self._store.database.transaction() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            key = view_key(place, request.view_name if request.HasField("view_name") else DEFAULT_VIEW)
            version = await lookup.node(Snapshot(conn, place.state), request.node_id)
            if request.recursive:
                below = [item.entry_id for item in await tree.subtree(Snapshot(conn, place.state), [version.entry_id])]
                await views.forget(conn, key, below)
            await views.set_levels(conn, key, {version.entry_id: TITLE})
            if not request.recursive:
                ids = [child.entry_id for child in await tree.children(Snapshot(conn, place.state), version.entry_id)]
                await views.hide(conn, key, ids, TITLE)
            return pb.CollapseNodeResponse(
                node=await node_at(Snapshot(conn, place.state), self._store, version.entry_id, TITLE),
                usage=await self._usage(conn, place, key.name),
            )

    # --- changing ---

    async def create_node(self, request: pb.CreateNodeRequest) -> pb.CreateNodeResponse:
        """Stage a new node."""

        async def make(editor: SessionEditor) -> pb.CreateNodeResponse:
            outcome = await edits.create(editor, request, "")
            await self._set_created_level(editor, request, outcome)
            return pb.CreateNodeResponse(node=_now(outcome, DETAIL), warnings=outcome.warnings)

        return await edit_session(self._store, self._limits, request, pb.CreateNodeResponse, "CreateNode", make)

    async def update_node(self, request: pb.UpdateNodeRequest) -> pb.UpdateNodeResponse:
        """Stage new field values of a node."""

        async def make(editor: SessionEditor) -> pb.UpdateNodeResponse:
            outcome = await self._update(editor, request, "")
            node = _now(outcome, DETAIL)
            if node.type == SUMMARY_TYPE:
                most = self._limits.node.content_bytes
                node = await node_at(editor.snapshot, self._store, node.id, DETAIL, limit=most)
            return pb.UpdateNodeResponse(node=node, warnings=outcome.warnings)

        return await edit_session(self._store, self._limits, request, pb.UpdateNodeResponse, "UpdateNode", make)

    async def delete_node(self, request: pb.DeleteNodeRequest) -> pb.DeleteNodeResponse:
        """Stage the deletion of a node."""

        async def make(editor: SessionEditor) -> pb.DeleteNodeResponse:
            deleted, warnings = await edits.delete(editor, request, "")
            return pb.DeleteNodeResponse(deleted_ids=deleted, warnings=warnings)

        return await edit_session(self._store, self._limits, request, pb.DeleteNodeResponse, "DeleteNode", make)

    async def move_node(self, request: pb.MoveNodeRequest) -> pb.MoveNodeResponse:
        """Stage a new parent or position of a node."""

        async def make(editor: SessionEditor) -> pb.MoveNodeResponse:
            outcome = await moves.move(editor, request, "")
            return pb.MoveNodeResponse(node=_now(outcome, TITLE), warnings=outcome.warnings)

        return await edit_session(self._store, self._limits, request, pb.MoveNodeResponse, "MoveNode", make)

    async def split_node(self, request: pb.SplitNodeRequest) -> pb.SplitNodeResponse:
        """Stage the split of a node into parts."""

        async def make(editor: SessionEditor) -> pb.SplitNodeResponse:
            ids = await moves.split(editor, request)
            return pb.SplitNodeResponse(nodes=await nodes_at(editor.snapshot, self._store, ids, DETAIL))

        return await edit_session(self._store, self._limits, request, pb.SplitNodeResponse, "SplitNode", make)

    async def merge_nodes(self, request: pb.MergeNodesRequest) -> pb.MergeNodesResponse:
        """Stage the merge of several nodes into the first."""

        async def make(editor: SessionEditor) -> pb.MergeNodesResponse:
            entry_id, deleted, warnings = await moves.merge(editor, request)
            node = await node_at(editor.snapshot, self._store, entry_id, DETAIL)
            return pb.MergeNodesResponse(node=node, deleted_ids=deleted, warnings=warnings)

        return await edit_session(self._store, self._limits, request, pb.MergeNodesResponse, "MergeNodes", make)

    async def add_relation(self, request: pb.AddRelationRequest) -> pb.AddRelationResponse:
        """Stage a relation."""

        async def make(editor: SessionEditor) -> pb.AddRelationResponse:
            outcome = await relations.add(editor, request, "")
            return pb.AddRelationResponse(node=_now(outcome, SUMMARY), warnings=outcome.warnings)

        return await edit_session(self._store, self._limits, request, pb.AddRelationResponse, "AddRelation", make)

    async def remove_relation(self, request: pb.RemoveRelationRequest) -> pb.RemoveRelationResponse:
        """Stage the removal of a relation."""

        async def make(editor: SessionEditor) -> pb.RemoveRelationResponse:
            outcome = await relations.remove(editor, request, "")
            return pb.RemoveRelationResponse(node=_now(outcome, SUMMARY), warnings=outcome.warnings)

        return await edit_session(self._store, self._limits, request, pb.RemoveRelationResponse, "RemoveRelation", make)

    async def batch_change_nodes(self, request: pb.BatchChangeNodesRequest) -> pb.BatchChangeNodesResponse:
        """Stage several changes, either all or none; or make and commit them at once."""
        if not 0 < len(request.changes) <= _MOST_CHANGES:
            raise InvalidInputError.at("changes", f"needs 1 to {_MOST_CHANGES} changes.")
        check_note(request.commit_message)

        async def apply_all(editor: SessionEditor, changes: Iterable[pb.NodeChange]) -> pb.BatchChangeNodesResponse:
            results: list[pb.NodeChangeResult] = []
            warnings: list[str] = []
            for number, one in enumerate(changes):
                with naming_change(number, one.WhichOneof("change") or ""):
                    _check_own(editor, request.workspace, one)
                    result, said = await self._apply(editor, one, request.commit_message)
                results.append(result)
                warnings += said
            return pb.BatchChangeNodesResponse(results=results, warnings=warnings)

        if request.HasField("commit"):
            return await self._commits.run(committed_batch(self._store, request, apply_all))
        return await edit_session(
            self._store,
            self._limits,
            request,
            pb.BatchChangeNodesResponse,
            "BatchChangeNodes",
            lambda editor: apply_all(editor, request.changes),
        )

    async def _apply(
        self, editor: SessionEditor, one: pb.NodeChange, message: str
    ) -> tuple[pb.NodeChangeResult, tuple[str, ...]]:
        """Apply one change of a batch."""
        kind = one.WhichOneof("change")
        if kind == "delete":
            deleted, warnings = await edits.delete(editor, one.delete, message)
            return pb.NodeChangeResult(node=types_pb2.Node(id=deleted[0]), deleted_ids=deleted[1:]), warnings
        if kind == "create":
            outcome = await edits.create(editor, one.create, message)
            await self._set_created_level(editor, one.create, outcome)
        elif kind == "update":
            outcome = await self._update(editor, one.update, message)
        elif kind == "move":
            outcome = await moves.move(editor, one.move, message)
        elif kind == "add_relation":
            outcome = await relations.add(editor, one.add_relation, message)
        elif kind == "remove_relation":
            outcome = await relations.remove(editor, one.remove_relation, message)
        else:
            fault = "must set one of create, update, move, delete, add_relation and remove_relation."
            raise InvalidInputError(f"The change {fault}", [FieldViolation("", fault)])
        return pb.NodeChangeResult(node=node_message(outcome.placed.version, TITLE)), outcome.warnings

    async def _update(self, editor: SessionEditor, request: pb.UpdateNodeRequest, message: str) -> EditResult:
        """Update the fields, the level in a view, or both."""
        if request.level:
            level = level_or(request.level, DETAIL)
            placed = await editor.placed(request.node_id, request.etag)
            name = request.view_name if request.HasField("view_name") else DEFAULT_VIEW
            await self._set_level(editor, name, placed.version.entry_id, level)
            if not edits.given_fields(request) and not request.regenerate_summary:
                return EditResult(placed, (await editor.load_node(placed.version)).content)
        return await edits.update(editor, request, message)

    async def _set_created_level(
        self, editor: SessionEditor, request: pb.CreateNodeRequest, outcome: EditResult
    ) -> None:
        level = level_or(
            request.initial_level, SUMMARY, "initial_level"
        )  # an invalid level is refused even without a view
        if request.HasField("view_name"):
            await self._set_level(editor, request.view_name, outcome.node_id, level)

    async def _set_level(self, editor: SessionEditor, name: str, node_id: str, level: int) -> None:
        place = await lookup.find_revision(editor.conn, editor.session.workspace_id, editor.session.session_id)
        await views.set_levels(editor.conn, view_key(place, name), {node_id: level})

    async def _home(
        self, conn: Connection, place: WorkspaceRevision, node: str, archive: str, field: str
    ) -> tuple[str, bool]:
        """The id of the node or, without one, of the archive; and whether the id is an archive's."""
        if node:
            return (await lookup.node(Snapshot(conn, place.state), node, field)).entry_id, False
        if not archive:
            raise InvalidInputError.at("archive", "is needed when no node is given.")
        return (await lookup.archive(Snapshot(conn, place.state), archive)).entry_id, True

    async def _usage(self, conn: Connection, place: WorkspaceRevision, view: str) -> pb.ContextUsage:
        what = await shown(Snapshot(conn, place.state), view_key(place, view))
        most = self._limits.node.content_bytes
        return (await render(Snapshot(conn, place.state), self._store, what, limit=most)).usage


def _body(node: types_pb2.Node) -> str:
    """The text of a node at its level, without the title."""
    if node.level >= DETAIL:
        return node.content
    return (shown_summary(node.summary, node.attributes) if node.level == SUMMARY else "") or node.brief


def _now(outcome: EditResult, level: types_pb2.LevelOfDetail.ValueType) -> types_pb2.Node:
    placed = outcome.placed
    return node_message(
        placed.version, level, content=outcome.content, path=placed.path, child_count=placed.child_count
    )


def _check_own(editor: SessionEditor, workspace: str, one: pb.NodeChange) -> None:
    """Check that a change in a batch has the batch's workspace and session, or none, and that it has no request id.

    A request id of its own would promise that this change alone takes effect once, which a batch cannot keep.
    """
    kind = one.WhichOneof("change")
    if kind is None:
        return
    change_request = getattr(one, kind)
    if change_request.workspace not in ("", workspace, editor.session.workspace_id):
        raise InvalidInputError.at("workspace", "is not the one of the batch; leave it out.")
    if change_request.session_id not in ("", editor.session.session_id):
        raise InvalidInputError.at("session_id", "is not the one of the batch; leave it out.")
    if change_request.request_id:
        raise InvalidInputError.at(
            "request_id", "is given for one change, but a batch takes effect as a whole; give one to the batch."
        )
