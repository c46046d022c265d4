"""One call to remember: each of these calls makes one commit on a branch; no session has to be opened.

``workspace.remember(...)`` has the same arguments as ``remember(...)`` here. ``workspace.apply([remember(...),
forget(...)])`` makes several changes in one commit, all or none, in the given order.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from memotree.client.enums import Similarity, from_wire
from memotree.client.lists import several
from memotree.client.node_values import Node, NodeRef
from memotree.client.node_values import node_id as id_of
from memotree.client.signatures import described
from memotree.client.transport import Transport
from memotree.client.typed import made, refused
from memotree.v1 import memory_service_pb2 as wire
from memotree.v1.memory_service_pb2 import ForgetRequest, MemoryChange, RememberRequest, RestoreRequest, ReviseRequest

P = ParamSpec("P")
RequestT = TypeVar("RequestT", RememberRequest, ReviseRequest, ForgetRequest, RestoreRequest)

MemoryRequest = RememberRequest | ReviseRequest | ForgetRequest | RestoreRequest
"""One described change; create it with the functions of this module."""


@dataclass(frozen=True, slots=True)
class SimilarNode:
    """A note that resembles the remembered text.

    Attributes:
        node: The note, at level SUMMARY.
        similarity: Whether it probably says the same, or something else of the same subject.
        score: The share of the words of both that they have in common, rare words weighing more; from 0 to 1.
    """

    node: Node
    similarity: Similarity
    score: float

    @classmethod
    def from_wire(cls, message: wire.SimilarNode) -> Self:
        """Reads the message."""
        kind = from_wire(Similarity, message.similarity, Similarity.SUPERSEDED)
        return cls(Node.from_wire(message.node), kind, message.score)


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """What a change of the memory did.

    Attributes:
        node: The note as it is now; as it was, when it was forgotten.
        commit_id: The commit that the call made.
        branch: The branch whose head it is.
        similar: Notes like the remembered or revised text, the most similar first. Nothing was merged: decide.
        node_ids: All nodes that were forgotten or restored, the note first; for other changes the note alone.
        previous: The note as it was before a revision; ``None`` for other changes.
    """

    node: Node
    commit_id: str
    branch: str
    similar: tuple[SimilarNode, ...] = ()
    node_ids: tuple[str, ...] = ()
    previous: Node | None = None

    @property
    def id(self) -> str:
        """The id of the note."""
        return self.node.id


def remember(
    text: str,
    *,
    title: str = "",
    tags: Iterable[str] = (),
    archive: str = "",
    about: Iterable[NodeRef] = (),
    supersedes: Iterable[NodeRef] = (),
    attributes: Mapping[str, str] | None = None,
    valid_from: str = "",
    valid_to: str = "",
    agent: str = "",
    message: str = "",
    branch: str = "",
    find_similar: bool = True,
    request_id: str = "",
) -> RememberRequest:
    """Keeps a text as a new note, and tells which notes it resembles.

    Args:
        text: What to remember, in words that can be understood alone.
        title: One line; made from the text if empty.
        tags: Words to find it by.
        archive: A name or an id; a name that does not exist is created; "notes" if empty.
        about: The nodes that the text is about.
        supersedes: The nodes that the text replaces; they stop to hold when it begins to.
        attributes: Free attributes by name.
        valid_from: From when the text holds, such as ``2023-05-08``; always if empty.
        valid_to: From when it no longer holds; never if empty.
        agent: Who remembers it, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
        message: The commit message; made from the title if empty.
        branch: The branch; the default branch if empty.
        find_similar: Whether similar notes are looked for.
        request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
    """
    return made(
        RememberRequest,
        text=text,
        title=title,
        tags=several("tags", tags),
        archive=archive,
        about=[id_of(node) for node in several("about", about)],
        supersedes=[id_of(node) for node in several("supersedes", supersedes)],
        attributes=attributes or {},
        valid_from=valid_from,
        valid_to=valid_to,
        agent=agent,
        message=message,
        branch=branch,
        find_similar=None if find_similar else False,
        request_id=request_id,
    )


def revise(
    node: NodeRef | None = None,
    text: str | None = None,
    *,
    query: str = "",
    title: str | None = None,
    tags: Iterable[str] = (),
    attributes: Mapping[str, str] | None = None,
    valid_from: str | None = None,
    valid_to: str | None = None,
    etag: str = "",
    agent: str = "",
    message: str = "",
    branch: str = "",
    find_similar: bool = True,
    request_id: str = "",
) -> ReviseRequest:
    """Corrects a note: the given text replaces its text, and the old one stays in its history.

    Args:
        node: The note; ``None`` with a query.
        text: The new text; the present one stays if ``None``.
        query: Words that find the note, such as its title; refused unless they clearly mean one note. Notes that say
            the same are corrected with it.
        title: The new title; if ``None``, a title that was made from the text follows it.
        tags: Tags to add.
        attributes: Attributes to set.
        valid_from: From when the note holds.
        valid_to: From when it no longer holds.
        etag: Refuses the call if the note has changed since this version.
        agent: Who revises it, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
        message: The commit message; made from the title if empty.
        branch: The branch; the default branch if empty.
        find_similar: Whether similar notes are looked for.
        request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
    """
    return made(
        ReviseRequest,
        node_id=id_of(node),
        text=text,
        query=query,
        title=title,
        tags=several("tags", tags),
        attributes=attributes or {},
        valid_from=valid_from,
        valid_to=valid_to,
        etag=etag,
        agent=agent,
        message=message,
        branch=branch,
        find_similar=None if find_similar else False,
        request_id=request_id,
    )


def forget(
    node: NodeRef | None = None,
    *,
    query: str = "",
    recursive: bool = False,
    etag: str = "",
    agent: str = "",
    message: str = "",
    branch: str = "",
    request_id: str = "",
) -> ForgetRequest:
    """Forgets a note; it stays in the history, and ``restore`` brings it back.

    Args:
        node: The note; ``None`` with a query.
        query: Words that find the note, such as its title; refused unless they clearly mean one note. Notes that say
            the same are forgotten with it.
        recursive: Whether the nodes below it are forgotten too.
        etag: Refuses the call if the note has changed since this version.
        agent: Who forgets it, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
        message: The commit message; made from the title if empty.
        branch: The branch; the default branch if empty.
        request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
    """
    return made(
        ForgetRequest,
        node_id=id_of(node),
        query=query,
        recursive=recursive,
        etag=etag,
        agent=agent,
        message=message,
        branch=branch,
        request_id=request_id,
    )


def restore(
    node: NodeRef, *, revision: str = "", agent: str = "", message: str = "", branch: str = "", request_id: str = ""
) -> RestoreRequest:
    """Brings back a forgotten note with what was forgotten below it, or sets a note back to a revision.

    Args:
        node: The note.
        revision: A branch, tag or commit at which it is as wanted; a forgotten note comes back as it was last if empty.
        agent: Who restores it, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
        message: The commit message; made from the title if empty.
        branch: The branch; the default branch if empty.
        request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
    """
    return made(
        RestoreRequest,
        node_id=id_of(node),
        revision=revision,
        agent=agent,
        message=message,
        branch=branch,
        request_id=request_id,
    )


def _committed(
    describe: Callable[P, RequestT], answer: type[Any]
) -> Callable[Concatenate["AsyncMemory", P], Coroutine[None, None, MemoryResult]]:
    """A method that makes the change from ``describe`` and commits it."""

    @wraps(describe)
    async def call(self: "AsyncMemory", /, *args: P.args, **kwargs: P.kwargs) -> MemoryResult:
        try:
            request = describe(*args, **kwargs)
        except TypeError as error:
            raise refused(error, describe) from None
        request.workspace = self._workspace
        found = await self._transport.call(request, answer)
        ids = getattr(found, "forgotten_ids", ()) or getattr(found, "restored_ids", ()) or [found.node.id]
        similar = tuple(map(SimilarNode.from_wire, getattr(found, "similar", ())))
        node = Node.from_wire(found.node)
        return MemoryResult(node, found.commit_id, found.branch, similar, tuple(ids), _previous(found))

    return described(call, describe, "MemoryResult", adds_self=True)


class AsyncMemory:
    """The calls of a workspace that remember, revise, forget and restore."""

    _transport: Transport
    _workspace: str

    remember = _committed(remember, wire.RememberResponse)
    revise = _committed(revise, wire.ReviseResponse)
    forget = _committed(forget, wire.ForgetResponse)
    restore = _committed(restore, wire.RestoreResponse)

    async def apply(
        self,
        changes: Iterable[MemoryRequest],
        *,
        agent: str = "",
        message: str = "",
        branch: str = "",
        request_id: str = "",
    ) -> tuple[MemoryResult, ...]:
        """Makes up to 100 changes in one commit, all or none, in the given order.

        Args:
            changes: Described by the functions of ``memotree.client.memory``.
            agent: Who makes them, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
            message: The commit message; made from the titles if empty.
            branch: The branch; the default branch if empty.
            request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
        """
        request = wire.BatchChangeMemoryRequest(
            workspace=self._workspace,
            branch=branch,
            changes=[_in_batch(change) for change in changes],
            agent=agent,
            message=message,
            request_id=request_id,
        )
        answer = await self._transport.call(request, wire.BatchChangeMemoryResponse)
        return tuple(
            MemoryResult(
                Node.from_wire(result.node),
                answer.commit_id,
                answer.branch,
                tuple(map(SimilarNode.from_wire, result.similar)),
                tuple(result.node_ids),
                _previous(result),
            )
            for result in answer.results
        )


def _previous(answer: Any) -> Node | None:
    """The note as it was before, if the answer to a change has it."""
    fields = answer.DESCRIPTOR.fields_by_name
    return Node.from_wire(answer.previous) if "previous" in fields and answer.HasField("previous") else None


def _in_batch(change: MemoryRequest) -> MemoryChange:
    if isinstance(change, RememberRequest):
        return MemoryChange(remember=change)
    if isinstance(change, ReviseRequest):
        return MemoryChange(revise=change)
    if isinstance(change, ForgetRequest):
        return MemoryChange(forget=change)
    if isinstance(change, RestoreRequest):
        return MemoryChange(restore=change)
    raise TypeError(f"{change!r} is no change of a memory; make one with a function of memotree.client.memory.")
