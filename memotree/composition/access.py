"""Who may call: the principals, the check of calls and jobs, and what checks tokens."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import structlog
from google.protobuf.message import Message
from memotree_storage.postgres.jobs import Job
from memotree_storage.store import Store

from memotree.erasure import job as erase_job
from memotree.extras import is_installed
from memotree.forest.ingestion import batch_run
from memotree.forest.ingestion import job as ingestion_job
from memotree.forest.summaries import renewal_job
from memotree.gateways.tool_definitions import tools_by_call
from memotree.identity.access import Access
from memotree.identity.errors import CertificateLibraryMissingError, TokenLibrariesMissingError
from memotree.identity.guard import Guard
from memotree.identity.key_file import KEY_FILE
from memotree.identity.local_key import ensure_local_key
from memotree.identity.operations import ChecksCertificates, ChecksTokens
from memotree.jobs import JobRunner, rebuilds
from memotree.maintenance import embedding_job
from memotree.review import ReviewOperations
from memotree.server.certificates import CertificateUnusableError
from memotree.settings import Settings
from memotree.v1 import erase_service_pb2, forest_service_pb2, index_service_pb2, job_service_pb2
from memotree.v1.review_service_pb2 import GetProposalRequest

log = structlog.get_logger("memotree.server")


def guard_of(store: Store, access: Access, review: ReviewOperations, runner: JobRunner) -> Guard:
    """The check of who calls, which jobs have to pass, too, when they begin."""

    async def branches_of(workspace_id: str, number: int) -> tuple[str, str]:
        found = await review.get_proposal(GetProposalRequest(workspace=workspace_id, number=number))
        return found.proposal.branch, found.proposal.target_branch

    guard = Guard(store, access, branches_of, tools_by_call())

    async def permit(job: Job) -> None:
        call, kind = JOB_CALLS[job.kind]
        await guard.admit_work(call, kind.FromString(job.request), access.acting(job.principal))

    runner.permit = permit
    return guard


JOB_CALLS: Final[Mapping[str, tuple[str, type[Message]]]] = {
    ingestion_job.KIND: ("ForestService.IngestDocument", forest_service_pb2.IngestDocumentRequest),
    batch_run.KIND: ("ForestService.IngestDocuments", forest_service_pb2.IngestDocumentsRequest),
    renewal_job.KIND: ("ForestService.RenewSummaries", forest_service_pb2.RenewSummariesRequest),
    rebuilds.REBUILD: ("JobService.StartRebuild", job_service_pb2.StartRebuildRequest),
    rebuilds.REINDEX: ("JobService.StartReindex", job_service_pb2.StartReindexRequest),
    erase_job.ERASE: ("EraseService.Erase", erase_service_pb2.EraseRequest),
    embedding_job.CHANGE_EMBEDDING: ("IndexService.ChangeEmbedding", index_service_pb2.ChangeEmbeddingRequest),
}
"""The call that asks for each kind of job, and its request, which the job keeps."""


def tokens_of(settings: Settings, stack: AsyncExitStack) -> ChecksTokens | None:
    """What checks the tokens of the OpenID provider that the settings name; ``None`` if they name none.

    The stack ends what is asked of the provider.

    Raises:
        TokenLibrariesMissingError: The libraries for it are not installed.
    """
    if settings.oidc_issuer is None:
        return None
    if not is_installed("oidc"):
        raise TokenLibrariesMissingError
    from memotree.identity.provider import Provider  # noqa: PLC0415 - only servers with a provider have the libraries
    from memotree.identity.tokens import Tokens  # noqa: PLC0415 - likewise

    provider = Provider(settings.oidc_issuer)
    stack.push_async_callback(provider.close)
    return Tokens(provider, settings.oidc_audience, settings.oidc_claim)


def certificates_of(settings: Settings) -> ChecksCertificates | None:
    """What checks the certificates of clients; ``None`` if the settings name nobody who signs them.

    Raises:
        CertificateLibraryMissingError: The library for it is not installed.
        CertificateUnusableError: The file with those who sign them cannot be read.
    """
    if settings.tls_client_ca is None:
        return None
    if not is_installed("mtls"):
        raise CertificateLibraryMissingError
    from memotree.identity.certificates import ClientCertificates  # noqa: PLC0415 - few servers have the library

    try:
        return ClientCertificates(settings.tls_client_ca)
    except (OSError, ValueError) as error:
        raise CertificateUnusableError(error) from None


async def open_access(store: Store, settings: Settings, stack: AsyncExitStack) -> Access:
    """Who may call; if calls must be authenticated, the data folder has the key of an administrator then."""
    access = Access(store.database)
    await access.open()
    stack.push_async_callback(access.close)
    if settings.authentication != "none" and await ensure_local_key(access, settings.data_folder):
        log.info("the key of an administrator was made", file=str(settings.data_folder / KEY_FILE))
    return access
