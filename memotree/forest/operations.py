"""The calls of ForestService, each done by the module that is named after it."""

from collections.abc import AsyncIterator

from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.recall.recall import Recall
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.v1 import forest_service_pb2 as pb


class ForestOperations:
    """Takes documents in, finds, asks, joins, and keeps summaries up to date."""

    def __init__(
        self,
        ingestion: IngestDocument,
        recalling: Recall,
        drilling: DrillDown,
        asking: Ask,
        joining: ArchiveJoin,
        maintenance: SummaryRenewal,
    ) -> None:
        self._ingestion = ingestion
        self._recalling = recalling
        self._drilling = drilling
        self._asking = asking
        self._joining = joining
        self._upkeep = maintenance

    def ingest_document(self, request: pb.IngestDocumentRequest) -> AsyncIterator[pb.IngestDocumentResponse]:
        """Make or update the tree of a document, as a job whose progress is told."""
        return self._ingestion.ingest_document(request)

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Find what the trees say about a question."""
        return await self._recalling.recall(request)

    async def drill_down(self, request: pb.DrillDownRequest) -> pb.DrillDownResponse:
        """Go one level down from a node."""
        return await self._drilling.drill_down(request)

    def ask(self, request: pb.AskRequest) -> AsyncIterator[pb.AskResponse]:
        """Answer a question with citations."""
        return self._asking.ask(request)

    async def suggest_archive_merges(self, request: pb.SuggestArchiveMergesRequest) -> pb.SuggestArchiveMergesResponse:
        """Suggest archives that are about the same."""
        return await self._joining.suggest_archive_merges(request)

    async def merge_archives(self, request: pb.MergeArchivesRequest) -> pb.MergeArchivesResponse:
        """Join archives under a new root."""
        return await self._joining.merge_archives(request)

    async def list_stale_summaries(self, request: pb.ListStaleSummariesRequest) -> pb.ListStaleSummariesResponse:
        """List nodes whose summaries are to be made anew."""
        return await self._upkeep.list_stale_summaries(request)

    async def renew_summaries(self, request: pb.RenewSummariesRequest) -> pb.RenewSummariesResponse:
        """Make those summaries anew, as a job."""
        return await self._upkeep.renew_summaries(request)
