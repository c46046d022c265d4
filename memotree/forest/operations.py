"""The calls of ForestService; each is implemented in the module that is named after it."""

from collections.abc import AsyncIterator

from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.ingestion.batch_job import IngestDocuments
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.recall.recall import Recall
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.v1 import forest_service_pb2 as pb


class ForestOperations:
    """Ingests documents, finds nodes, answers questions, joins archives, and keeps summaries up to date."""

    def __init__(
        self,
        ingestion: IngestDocument,
        batch_ingestion: IngestDocuments,
        recalling: Recall,
        drilling: DrillDown,
        asking: Ask,
        joining: ArchiveJoin,
        renewal: SummaryRenewal,
    ) -> None:
        self._ingestion = ingestion
        self._batch_ingestion = batch_ingestion
        self._recalling = recalling
        self._drilling = drilling
        self._asking = asking
        self._joining = joining
        self._renewal = renewal

    def ingest_document(self, request: pb.IngestDocumentRequest) -> AsyncIterator[pb.IngestDocumentResponse]:
        """Builds or updates the tree of a document as a job, and streams its progress."""
        return self._ingestion.ingest_document(request)

    def ingest_documents(self, request: pb.IngestDocumentsRequest) -> AsyncIterator[pb.IngestDocumentsResponse]:
        """Builds or updates the trees of several documents as one job, and streams its progress."""
        return self._batch_ingestion.ingest_documents(request)

    @property
    def cached_bytes(self) -> int:
        """The bytes that recall caches now."""
        return self._recalling.cached_bytes

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Finds the nodes that answer a question."""
        return await self._recalling.recall(request)

    async def drill_down(self, request: pb.DrillDownRequest) -> pb.DrillDownResponse:
        """Returns the children of a node, ranked for a question."""
        return await self._drilling.drill_down(request)

    def ask(self, request: pb.AskRequest) -> AsyncIterator[pb.AskResponse]:
        """Answers a question with citations."""
        return self._asking.ask(request)

    async def suggest_archive_merges(self, request: pb.SuggestArchiveMergesRequest) -> pb.SuggestArchiveMergesResponse:
        """Suggests similar archives to join."""
        return await self._joining.suggest_archive_merges(request)

    async def merge_archives(self, request: pb.MergeArchivesRequest) -> pb.MergeArchivesResponse:
        """Joins archives under a new root."""
        return await self._joining.merge_archives(request)

    async def list_stale_summaries(self, request: pb.ListStaleSummariesRequest) -> pb.ListStaleSummariesResponse:
        """Lists nodes with stale summaries."""
        return await self._renewal.list_stale_summaries(request)

    async def renew_summaries(self, request: pb.RenewSummariesRequest) -> pb.RenewSummariesResponse:
        """Renews stale summaries as a job."""
        return await self._renewal.renew_summaries(request)
