"""Erasures: what one would take away, and what stays of those that were made."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from memotree.client.default_agent import default_agent
from memotree.client.jobs import Job
from memotree.client.node_values import moment
from memotree.client.paging import pages
from memotree.client.transport import Transport
from memotree.v1 import erase_service_pb2 as pb
from memotree.v1 import job_service_pb2

_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class ErasurePreview:
    """What an erasure would take away; ``phrase`` confirms exactly this, until a branch or tag moves."""

    commits: int
    messages: int
    nodes: int
    versions: int
    files: int
    branches: int
    tags: int
    signatures: int
    sessions: int
    staged_changes: int
    requests: int
    jobs: int
    unfinished_job_ids: tuple[str, ...]
    discarded_files: tuple[str, ...]
    phrase: str

    @classmethod
    def from_wire(cls, message: pb.ErasurePreview) -> Self:
        """Reads the message."""
        return cls(
            message.commits,
            message.messages,
            message.nodes,
            message.versions,
            message.files,
            message.branches,
            message.tags,
            message.signatures,
            message.sessions,
            message.staged_changes,
            message.requests,
            message.jobs,
            tuple(message.unfinished_job_ids),
            tuple(message.discarded_files),
            message.phrase,
        )


@dataclass(frozen=True, slots=True)
class Erasure:
    """What stays of an erasure: who, when, why, how much, and a hash of the salt and the text."""

    id: str
    kind: str
    by: str
    reason: str
    erase_time: datetime | None
    node_ids: tuple[str, ...]
    fields: tuple[str, ...]
    salt: str
    sha256: str
    commits: int
    files: int
    tags: int
    signatures: int

    @classmethod
    def from_wire(cls, message: job_service_pb2.Erasure) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            message.kind,
            message.by,
            message.reason,
            moment(message, "erase_time"),
            tuple(message.node_ids),
            tuple(message.fields),
            message.salt,
            message.sha256,
            message.commits,
            message.files,
            message.tags,
            message.signatures,
        )


class AsyncErasures:
    """Erases from the whole history of one workspace."""

    _transport: Transport
    _workspace: str

    async def preview_erasure(
        self, *, node: str = "", fields: Sequence[str] = (), archive: str = "", text: str = ""
    ) -> ErasurePreview:
        """What an erasure would take away; changes nothing.

        Args:
            node: The whole id of a node.
            fields: Only these of its fields, such as ``content`` or ``attributes.email``.
            archive: In its place: the whole id of an archive, which goes with all its nodes.
            text: In their place: a text, wherever it stands.
        """
        target = pb.ErasureTarget(node_id=node, fields=fields, archive_id=archive, text=text)
        request = pb.PreviewErasureRequest(workspace=self._workspace, target=target)
        answer = await self._transport.call(request, pb.PreviewErasureResponse)
        return ErasurePreview.from_wire(answer.preview)

    async def erase(
        self,
        phrase: str,
        reason: str,
        *,
        node: str = "",
        fields: Sequence[str] = (),
        archive: str = "",
        text: str = "",
        by: str = "",
        request_id: str = "",
    ) -> Job:
        """Starts a job that erases from all history; this cannot be undone.

        Args:
            phrase: The phrase of the preview.
            reason: Why; it is kept.
            node: The whole id of a node.
            fields: Only these of its fields.
            archive: In its place: the whole id of an archive.
            text: In their place: a text.
            by: Who asks for it; your agent if empty.
            request_id: An id of your choice for this call; a new one if empty.
        """
        target = pb.ErasureTarget(node_id=node, fields=fields, archive_id=archive, text=text)
        request = pb.EraseRequest(
            workspace=self._workspace,
            target=target,
            phrase=phrase,
            by=by or default_agent(),
            reason=reason,
            request_id=request_id,
        )
        return Job.from_wire((await self._transport.call(request, pb.EraseResponse)).job)

    def erasures(self) -> AsyncIterator[Erasure]:
        """What stays of all erasures, the newest first."""
        request = pb.ListErasuresRequest(workspace=self._workspace, page_size=_PER_PAGE)
        return pages(
            self._transport, request, pb.ListErasuresResponse, lambda page: map(Erasure.from_wire, page.erasures)
        )

    async def erasure(self, erasure_id: str) -> Erasure:
        """What stays of one erasure."""
        request = pb.GetErasureRequest(workspace=self._workspace, erasure_id=erasure_id)
        return Erasure.from_wire((await self._transport.call(request, pb.GetErasureResponse)).erasure)
