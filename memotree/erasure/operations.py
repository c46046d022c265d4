"""The operations of EraseService."""

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.erasure import finding
from memotree_storage.errors import FailedPreconditionError, InvalidInputError
from memotree_storage.git.erasures import read_erasure, read_erasures
from memotree_storage.git.generations import all_refs
from memotree_storage.model.erasure import needles_of
from memotree_storage.model.validation import check_author, check_text
from memotree_storage.postgres import registry
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.requests import is_known_request
from memotree_storage.store import Store

from memotree.erasure import job
from memotree.erasure.messages import erasure_message, preview_message, target_of
from memotree.jobs.operations import job_message
from memotree.jobs.runner import JobRunner
from memotree.request import lookup
from memotree.request.idempotency import kept_request_id
from memotree.request.pages import PageTokens, page_size
from memotree.v1 import erase_service_pb2 as pb

_MOST_REASON = 2_000


class PhraseOutdatedError(FailedPreconditionError):
    """The phrase is not that of a preview of this erasure with the present branches and tags."""

    reason = "PHRASE_OUTDATED"

    def __init__(self) -> None:
        super().__init__(
            "The phrase does not confirm this erasure: it is another one, or a branch or tag has moved since. Look at "
            "PreviewErasure again, and send its phrase."
        )


class EraseOperations:
    """Previews and starts erasures, and lists what stays of them.

    Args:
        store: An open store.
        pages: Makes page tokens.
        runner: Runs the job.
    """

    def __init__(self, store: Store, pages: PageTokens, runner: JobRunner) -> None:
        self._store = store
        self._pages = pages
        self._runner = runner

    async def preview_erasure(self, request: pb.PreviewErasureRequest) -> pb.PreviewErasureResponse:
        """Shows what an erasure would take away."""
        workspace = await self._workspace(request.workspace)
        found = await finding.preview(self._store, workspace.workspace_id, target_of(request.target))
        return pb.PreviewErasureResponse(preview=preview_message(found))

    async def erase(self, request: pb.EraseRequest) -> pb.EraseResponse:
        """Starts a job that erases."""
        workspace = await self._workspace(request.workspace)
        target = target_of(request.target)
        check_author(lookup.needed("by", request.by), "", name_field="by")
        check_text("reason", lookup.needed("reason", request.reason), multiline=True, max_chars=_MOST_REASON)
        if any(needle in (request.by + request.reason).encode() for needle in needles_of(target.text)):
            raise InvalidInputError.at("reason", "has the text that is to be erased; it is kept, so leave that out.")
        known = await self._known(workspace.workspace_id, request)
        if not known:
            async with self._store.database.connection() as conn:
                redaction = await finding.redaction_of(conn, workspace.workspace_id, target)
            refs = await in_store_thread(all_refs, self._store.repositories.path(workspace.workspace_id))
            finding.refuse_names(redaction, refs)
            if request.phrase != finding.phrase_of(workspace.workspace_id, target, refs):
                raise PhraseOutdatedError
        kept = pb.EraseRequest()
        kept.CopyFrom(request)
        kept.ClearField("target")
        started = await self._runner.submit(
            workspace.workspace_id,
            job.ERASE,
            kept,
            subject=target.node_id or target.archive_id or "a text",
            lane=job.lane(workspace.workspace_id),
            request_id=request.request_id,
            inputs={job.TARGET: target.encode()},
        )
        return pb.EraseResponse(job=job_message(started))

    async def list_erasures(self, request: pb.ListErasuresRequest) -> pb.ListErasuresResponse:
        """Lists what stays of erasures, the newest first."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"before": str})
        workspace = await self._workspace(request.workspace)
        repository = await in_store_thread(self._store.repositories.get, workspace.workspace_id)
        found = list(reversed(await in_store_thread(read_erasures, repository)))
        if cursor:
            ids = [each.erasure_id for each in found]
            found = found[ids.index(str(cursor["before"])) + 1 :] if cursor["before"] in ids else []
        last = {"before": found[size - 1].erasure_id} if len(found) > size else None
        return pb.ListErasuresResponse(
            erasures=[erasure_message(each) for each in found[:size]],
            next_page_token=self._pages.write(request, last),
        )

    async def get_erasure(self, request: pb.GetErasureRequest) -> pb.GetErasureResponse:
        """Reads what stays of one erasure."""
        workspace = await self._workspace(request.workspace)
        repository = await in_store_thread(self._store.repositories.get, workspace.workspace_id)
        erasure_id = lookup.needed("erasure_id", request.erasure_id)
        return pb.GetErasureResponse(
            erasure=erasure_message(await in_store_thread(read_erasure, repository, erasure_id))
        )

    async def _workspace(self, name: str) -> Workspace:
        async with self._store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", name))

    async def _known(self, workspace_id: str, request: pb.EraseRequest) -> bool:
        """Whether a call with this request id was answered: its phrase is outdated by the erasure itself."""
        if not request.request_id:
            return False
        async with self._store.database.connection() as conn:
            return await is_known_request(conn, workspace_id, kept_request_id(request.request_id))
