"""Nodes, search and views of the fake server."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

from typing import Any

from google.rpc import error_details_pb2
from grpc import StatusCode
from unit.client.fake_state import FakeStates, RefusedError, State, fresh_id, listed, unmet

from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import types_pb2 as types
from memotree.v1 import view_service_pb2 as views
from memotree.v1.node_service_pb2_grpc import NodeServiceServicer
from memotree.v1.view_service_pb2_grpc import ViewServiceServicer


def _copy(node: types.Node) -> types.Node:
    again = types.Node()
    again.CopyFrom(node)
    return again


class FakeNodes(FakeStates, NodeServiceServicer, ViewServiceServicer):
    """The node tools and the views."""

    def _shown(self, state: State, node: types.Node, level: int = types.LEVEL_OF_DETAIL_DETAIL) -> types.Node:
        shown = _copy(node)
        shown.level = level
        shown.child_count = len(state.children(node.id))
        if level < types.LEVEL_OF_DETAIL_DETAIL:
            shown.content = ""
        return shown

    def _stage(self, request: Any, node: types.Node) -> types.Node:
        node.etag = fresh_id()
        session = self.session_of(request)
        session.state.nodes[node.id] = node
        if request.commit_message:
            session.reasons.setdefault(node.id, []).append(request.commit_message)
        return self._shown(session.state, node)

    def _found(self, request: Any) -> tuple[State, types.Node]:
        """The state of the session of a change, and a copy of the node that it changes."""
        state = self.session_of(request).state
        return state, _copy(state.find(request.node_id))

    def GetNode(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        level = request.level or types.LEVEL_OF_DETAIL_DETAIL
        return nodes.GetNodeResponse(node=self._shown(state, state.find(request.node_id), level))

    def ListChildren(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        parent = state.find(request.parent_id).id if request.parent_id else ""
        archive = state.archive(request.archive).id if request.archive else ""
        level = request.level or types.LEVEL_OF_DETAIL_TITLE
        shown = [self._shown(state, each, level) for each in state.children(parent, archive)]
        return listed(nodes.ListChildrenResponse, "nodes", shown, request)

    def GetTree(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        if request.node_id:
            tops = [state.find(request.node_id)]
        else:
            tops = state.children("", state.archive(request.archive).id)
        found: list[nodes.TreeNode] = []

        def visit(node: types.Node, depth: int) -> None:
            found.append(
                nodes.TreeNode(node=self._shown(state, node, request.level or types.LEVEL_OF_DETAIL_TITLE), depth=depth)
            )
            if not request.max_depth or depth < request.max_depth:
                for child in state.children(node.id):
                    visit(child, depth + 1)

        for top in tops:
            visit(top, 0)
        for number, item in enumerate(found):
            after = next((each.depth for each in found[number + 1 :] if each.depth <= item.depth), -1)
            item.last = after != item.depth
        if request.page_size:
            return listed(nodes.GetTreeResponse, "nodes", found, request)
        most = request.max_nodes or 1000
        return nodes.GetTreeResponse(nodes=found[:most], truncated=max(0, len(found) - most))

    def ResolveNode(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        named = [nodes.NamedNode(node=each, path=self._path(state, each)) for each in state.nodes.values()]
        if request.prefix:
            found = [each for each in named if each.node.title.startswith(request.name)]
        else:
            found = [each for each in named if each.node.id.startswith(request.name)]
            found = found or [each for each in named if each.node.title == request.name]
            found = found or [each for each in named if f"/{each.path}".endswith(f"/{request.name}")]
        return nodes.ResolveNodeResponse(candidates=sorted(found, key=lambda each: each.path))

    def _path(self, state: State, node: types.Node) -> str:
        above = self._path(state, state.nodes[node.parent_id]) if node.parent_id else ""
        return f"{above or state.archives[node.archive_id].name}/{node.title}"

    def CreateNode(self, request: Any, context: Any) -> Any:
        state = self.session_of(request).state
        if not request.title or "\n" in request.title:
            violation = error_details_pb2.BadRequest.FieldViolation(field="title", description="Give one line.")
            details = error_details_pb2.BadRequest(field_violations=[violation])
            raise RefusedError(StatusCode.INVALID_ARGUMENT, "title: give one line.", "INVALID_TITLE", details)
        parent = state.find(request.parent_id) if request.parent_id else None
        node = types.Node(
            id=request.node_id or fresh_id(),
            archive_id=parent.archive_id if parent else state.archive(request.archive_id).id,
            parent_id=parent.id if parent else "",
            position=f"{len(state.nodes):06}",
            type=request.type or "note",
            title=request.title,
            content=request.content,
            brief=request.brief,
            summary=request.summary,
            tags=sorted(request.tags),
            relations=request.relations,
            attributes=request.attributes,
            content_tokens=len(request.content) // 4,
        )
        warnings = ["The content is empty."] if not request.content else []
        return nodes.CreateNodeResponse(node=self._stage(request, node), warnings=warnings)

    def UpdateNode(self, request: Any, context: Any) -> Any:
        _, node = self._found(request)
        if request.etag and request.etag != node.etag:
            base, ours, theirs = (types.FieldValue(text=text) for text in "abc")
            conflict = types.Conflict(node_id=node.id, base_value=base, our_value=ours, their_value=theirs)
            conflict.field, conflict.description = "content", "Both sides changed the content."
            message = "The node is not that version any more; read it again."
            raise RefusedError(StatusCode.ABORTED, message, "STALE_ETAG", types.ConflictList(conflicts=[conflict]))
        given = set(request.update_mask.paths)
        for name in given & {"title", "content", "brief", "summary", "type"}:
            value = getattr(request, name)
            if name == "content" and request.mode == nodes.UPDATE_MODE_APPEND:
                value = f"{node.content}\n\n{value}"
            setattr(node, name, value)
        replace = request.mode == nodes.UPDATE_MODE_REPLACE
        if "tags" in given:
            node.tags[:] = sorted({*request.tags, *(() if replace else node.tags)})
        if "attributes" in given:
            if replace:
                node.attributes.clear()
            node.attributes.update(request.attributes)
        return nodes.UpdateNodeResponse(node=self._stage(request, node))

    def DeleteNode(self, request: Any, context: Any) -> Any:
        state, node = self._found(request)
        gone = [each.id for each in state.below(node.id)]
        if len(gone) > 1 and not request.recursive:
            below = types.NodeList(nodes=state.children(node.id))
            raise unmet("The node has children; delete it with recursive.", "HAS_CHILDREN", below)
        for node_id in gone:
            del state.nodes[node_id]
        return nodes.DeleteNodeResponse(deleted_ids=gone)

    def MoveNode(self, request: Any, context: Any) -> Any:
        state, node = self._found(request)
        if request.HasField("parent_id"):
            node.parent_id = state.find(request.parent_id).id if request.parent_id else ""
        if request.HasField("position"):
            node.position = f"{request.position:06}"
        return nodes.MoveNodeResponse(node=self._stage(request, node))

    def SplitNode(self, request: Any, context: Any) -> Any:
        _, node = self._found(request)
        made = []
        for number, part in enumerate(request.parts):
            piece = _copy(node)
            piece.title, piece.content = part.title, part.content
            if number:
                piece.id = part.node_id or fresh_id()
                piece.parent_id = node.id if request.as_children else node.parent_id
            made.append(self._stage(request, piece))
        return nodes.SplitNodeResponse(nodes=made)

    def MergeNodes(self, request: Any, context: Any) -> Any:
        state = self.session_of(request).state
        merged = [state.find(each) for each in request.node_ids]
        first = _copy(merged[0])
        first.content = "\n\n".join(each.content for each in merged)
        if request.HasField("title"):
            first.title = request.title
        gone = [each.id for each in merged[1:]]
        for node_id in gone:
            del state.nodes[node_id]
        return nodes.MergeNodesResponse(node=self._stage(request, first), deleted_ids=gone)

    def AddRelation(self, request: Any, context: Any) -> Any:
        state, node = self._found(request)
        relation = types.Relation()
        relation.CopyFrom(request.relation)
        relation.target_id = state.find(relation.target_id).id
        node.relations.append(relation)
        return nodes.AddRelationResponse(node=self._stage(request, node))

    def RemoveRelation(self, request: Any, context: Any) -> Any:
        state, node = self._found(request)
        target = state.find(request.target_id).id
        kept = [each for each in node.relations if (each.type, each.target_id) != (request.type, target)]
        del node.relations[:]
        node.relations.extend(kept)
        return nodes.RemoveRelationResponse(node=self._stage(request, node))

    def BatchChangeNodes(self, request: Any, context: Any) -> Any:
        results = []
        for change in request.changes:
            kind = change.WhichOneof("change")
            single = getattr(change, kind)
            single.workspace, single.session_id = request.workspace, request.session_id
            if not single.commit_message:
                single.commit_message = request.commit_message
            method = {"create": self.CreateNode, "update": self.UpdateNode}[kind]
            results.append(nodes.NodeChangeResult(node=method(single, context).node))
        return nodes.BatchChangeNodesResponse(results=results)

    def SearchNodes(self, request: Any, context: Any) -> Any:
        state, word = self.state(request), request.query
        hits = [
            nodes.SearchHit(
                node=self._shown(state, node, types.LEVEL_OF_DETAIL_SUMMARY),
                score=0.75,
                preview=node.content.replace(word, f"**{word}**"),
                reason=f"It holds {word}.",
                matched_terms=[word],
                lexical_score=0.75,
            )
            for node in state.nodes.values()
            if word.lower() in f"{node.title} {node.content}".lower()
        ]
        return nodes.SearchNodesResponse(hits=hits[: request.max_results or 10], commit_id="c" * 40)

    def _levels(self, request: Any) -> dict[str, int]:
        views = self.space(request.workspace).views
        return views.setdefault((request.revision or "main", request.view_name or "default"), {})

    def ExpandNode(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        node = state.find(request.node_id)
        levels = self._levels(request)
        levels[node.id] = request.level or types.LEVEL_OF_DETAIL_DETAIL
        children = state.children(node.id) if request.include_children else []
        relations = [
            types.RelatedNode(source_id=node.id, relation=each, node=state.find(each.target_id), outgoing=True)
            for each in node.relations
        ]
        return nodes.ExpandNodeResponse(
            node=self._shown(state, node, levels[node.id]),
            text=f"# {node.title}\n\n{node.content}",
            children=children,
            relations=relations if request.include_relations else [],
            usage=nodes.ContextUsage(tokens_used=7, nodes_expanded=len(levels), nodes_shown=len(levels)),
        )

    def CollapseNode(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        node = state.find(request.node_id)
        self._levels(request).pop(node.id, None)
        shown = self._shown(state, node, types.LEVEL_OF_DETAIL_TITLE)
        return nodes.CollapseNodeResponse(node=shown, usage=nodes.ContextUsage(tokens_used=2, nodes_shown=1))

    def RenderView(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        levels = self._levels(request)
        lines = [f"# {state.find(each).title} `{each}`\n\n{state.find(each).content}" for each in levels]
        usage = nodes.ContextUsage(
            tokens_used=9, token_budget=request.token_budget, nodes_expanded=len(levels), nodes_shown=len(levels)
        )
        return views.RenderViewResponse(markdown="\n\n".join(lines), usage=usage)

    def ListViews(self, request: Any, context: Any) -> Any:
        found = [
            views.View(name=name, scope=where, nodes_expanded=len(levels))
            for (where, name), levels in sorted(self.space(request.workspace).views.items())
            if where == (request.revision or "main")
        ]
        return listed(views.ListViewsResponse, "views", found, request)

    def DeleteView(self, request: Any, context: Any) -> Any:
        del self.space(request.workspace).views[request.revision or "main", request.view_name]
        return views.DeleteViewResponse()
