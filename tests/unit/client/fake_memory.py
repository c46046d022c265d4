"""The memory calls of the fake server."""

# ruff: noqa: ARG002, N802 - the generated servicer names the methods and their arguments

from typing import Any

import grpc
from unit.client.fake_state import RefusedError, State, fresh_id

from memotree.v1 import memory_service_pb2 as memory
from memotree.v1 import types_pb2 as types
from memotree.v1.memory_service_pb2_grpc import MemoryServiceServicer


class FakeMemory(MemoryServiceServicer):
    """Remember, Revise, Forget and Restore, and several of them in one commit."""

    def Remember(self, request: Any, context: Any) -> Any:
        result, commit_id = self._one(request, memory.MemoryChange(remember=request))
        return memory.RememberResponse(node=result.node, commit_id=commit_id, branch="main", similar=result.similar)

    def Revise(self, request: Any, context: Any) -> Any:
        result, commit_id = self._one(request, memory.MemoryChange(revise=request))
        return memory.ReviseResponse(
            node=result.node,
            commit_id=commit_id,
            branch="main",
            warnings=["It was short."],
            previous=result.previous,
        )

    def Forget(self, request: Any, context: Any) -> Any:
        result, commit_id = self._one(request, memory.MemoryChange(forget=request))
        return memory.ForgetResponse(
            node=result.node, commit_id=commit_id, branch="main", forgotten_ids=result.node_ids
        )

    def Restore(self, request: Any, context: Any) -> Any:
        result, commit_id = self._one(request, memory.MemoryChange(restore=request))
        return memory.RestoreResponse(
            node=result.node, commit_id=commit_id, branch="main", restored_ids=result.node_ids
        )

    def BatchChangeMemory(self, request: Any, context: Any) -> Any:
        results, commit_id = self._all(request, list(request.changes))
        return memory.BatchChangeMemoryResponse(results=results, commit_id=commit_id, branch="main")

    def _one(self, request: Any, change: memory.MemoryChange) -> tuple[memory.MemoryResult, str]:
        (result,), commit_id = self._all(request, [change])
        return result, commit_id

    def _all(self, request: Any, changes: list[memory.MemoryChange]) -> tuple[list[memory.MemoryResult], str]:
        space = self.space(request.workspace)  # type: ignore[attr-defined] # of the fake server as a whole
        head = space.branches["main"]
        state = space.commits[head].state.copy()
        results = [self._apply(space, state, change) for change in changes]
        author = types.CommitAuthor(name=request.agent or "agent", email="agent@localhost")
        verb = (changes[0].WhichOneof("change") or "").capitalize()
        subject = request.message or f"{verb}: {results[0].node.title}"
        gone = space.commits[head].state.nodes.keys() - state.nodes.keys()
        deleted = [f"- {space.commits[head].state.nodes[each].title} ({each})" for each in sorted(gone)]
        text = "\n".join([subject, "", "Deleted:", *deleted]) if deleted else subject
        space.branches["main"] = space.commit([head], text, author, state, "")
        return results, space.branches["main"]

    def _apply(self, space: Any, state: State, change: memory.MemoryChange) -> memory.MemoryResult:
        kind = change.WhichOneof("change")
        if kind == "remember":
            return self._remember(state, change.remember)
        if kind == "revise":
            old = self._meant(state, change.revise)
            node = types.Node()
            node.CopyFrom(old)
            node.content = change.revise.text
            node.title = change.revise.title or node.title
            state.nodes[node.id] = node
            before = types.Node(id=old.id, title=old.title, summary=old.content)
            return memory.MemoryResult(node=node, node_ids=[node.id], previous=before)
        if kind == "forget":
            node = state.find(change.forget.node_id)
            gone = [each.id for each in state.below(node.id)]
            for node_id in gone:
                del state.nodes[node_id]
            return memory.MemoryResult(node=node, node_ids=gone)
        return self._restore(space, state, change.restore)

    def _remember(self, state: State, request: Any) -> memory.MemoryResult:
        name = request.archive or "notes"
        archive = next((each for each in state.archives.values() if name in (each.id, each.name)), None)
        if archive is None:
            archive = types.Archive(id=fresh_id(), name=name)
            state.archives[archive.id] = archive
        same = [node for node in state.nodes.values() if node.content == request.text]
        node = types.Node(
            id=fresh_id(),
            archive_id=archive.id,
            position=f"{len(state.nodes):06}",
            type="note",
            title=request.title or request.text[:80],
            content=request.text,
            tags=sorted(request.tags),
            attributes=request.attributes,
        )
        state.nodes[node.id] = node
        similar = [memory.SimilarNode(node=each, similarity=memory.SIMILARITY_DUPLICATE, score=1) for each in same]
        return memory.MemoryResult(node=node, similar=similar, node_ids=[node.id])

    def _meant(self, state: State, request: Any) -> types.Node:
        if request.node_id:
            return state.find(request.node_id)
        found = [node for node in state.nodes.values() if request.query.casefold() in node.title.casefold()]
        if len(found) != 1:
            message = f"{request.query!r} does not clearly mean one note."
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, message, "UNCLEAR_QUERY", types.NodeList(nodes=found)
            )
        return found[0]

    def _restore(self, space: Any, state: State, request: Any) -> memory.MemoryResult:
        for commit in reversed(list(space.commits.values())):
            found = next((node for key, node in commit.state.nodes.items() if key.startswith(request.node_id)), None)
            if found is not None:
                state.nodes[found.id] = found
                return memory.MemoryResult(node=found, node_ids=[found.id])
        message = "There is nothing to restore."
        raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, message, "NOTHING_TO_RESTORE")
