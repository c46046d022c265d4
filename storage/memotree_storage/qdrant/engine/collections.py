"""Qdrant's ``Collections`` and ``Qdrant`` gRPC services, implemented with the shards."""

from typing import Final

import grpc
import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import only
from memotree_storage.qdrant.engine.shards import Shards
from memotree_storage.qdrant.engine.wire import qdrant

_SCHEMA_TYPES: Final = {
    edge.PayloadSchemaType.Keyword: qdrant.Keyword,
    edge.PayloadSchemaType.Integer: qdrant.Integer,
    edge.PayloadSchemaType.Float: qdrant.Float,
    edge.PayloadSchemaType.Bool: qdrant.Bool,
    edge.PayloadSchemaType.Datetime: qdrant.Datetime,
    edge.PayloadSchemaType.Uuid: qdrant.Uuid,
}


class CollectionsService(qdrant.CollectionsServicer):
    """Implements the calls of the ``Collections`` service that MemoTree uses."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def Create(  # noqa: N802
        self, request: qdrant.CreateCollection, _context: grpc.ServicerContext
    ) -> qdrant.CollectionOperationResponse:
        """Create a collection of named vectors."""
        self._shards.create(request)
        return qdrant.CollectionOperationResponse(result=True)

    def Delete(  # noqa: N802
        self, request: qdrant.DeleteCollection, _context: grpc.ServicerContext
    ) -> qdrant.CollectionOperationResponse:
        """Remove a collection."""
        only(request, "collection_name", "timeout")
        return qdrant.CollectionOperationResponse(result=self._shards.delete(request.collection_name))

    def CollectionExists(  # noqa: N802
        self, request: qdrant.CollectionExistsRequest, _context: grpc.ServicerContext
    ) -> qdrant.CollectionExistsResponse:
        """Whether a collection or alias has this name."""
        only(request, "collection_name")
        found = qdrant.CollectionExists(exists=self._shards.exists(request.collection_name))
        return qdrant.CollectionExistsResponse(result=found)

    def List(  # noqa: N802
        self, request: qdrant.ListCollectionsRequest, _context: grpc.ServicerContext
    ) -> qdrant.ListCollectionsResponse:
        """List all collections."""
        only(request)
        names = [qdrant.CollectionDescription(name=name) for name in self._shards.names()]
        return qdrant.ListCollectionsResponse(collections=names)

    def Get(  # noqa: N802
        self, request: qdrant.GetCollectionInfoRequest, _context: grpc.ServicerContext
    ) -> qdrant.GetCollectionInfoResponse:
        """Return a collection's settings, size and payload indexes."""
        only(request, "collection_name")
        collection = self._shards.get(request.collection_name)
        info, settings = collection.shard.info(), collection.settings
        params = qdrant.CollectionParams(
            shard_number=1,
            on_disk_payload=settings.on_disk_payload,
            vectors_config=settings.vectors_config,
            sparse_vectors_config=settings.sparse_vectors_config,
        )
        result = qdrant.CollectionInfo(
            status=qdrant.Green,
            optimizer_status=qdrant.OptimizerStatus(ok=True),
            segments_count=info.segments_count,
            config=qdrant.CollectionConfig(
                params=params,
                hnsw_config=qdrant.HnswConfigDiff(m=0, ef_construct=0, full_scan_threshold=0),
                # The client's models require these numbers; nothing is optimised in the background here.
                optimizer_config=qdrant.OptimizersConfigDiff(
                    deleted_threshold=0, vacuum_min_vector_number=0, default_segment_number=1, flush_interval_sec=0
                ),
                wal_config=qdrant.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
            ),
            points_count=info.points_count,
            indexed_vectors_count=0,
            payload_schema={
                name: qdrant.PayloadSchemaInfo(data_type=_SCHEMA_TYPES[field.data_type], points=field.points)
                for name, field in info.payload_schema.items()
            },
        )
        return qdrant.GetCollectionInfoResponse(result=result)

    def UpdateAliases(  # noqa: N802
        self, request: qdrant.ChangeAliases, _context: grpc.ServicerContext
    ) -> qdrant.CollectionOperationResponse:
        """Change aliases, all or nothing."""
        only(request, "actions", "timeout")
        self._shards.change_aliases(iter(request.actions))
        return qdrant.CollectionOperationResponse(result=True)

    def ListAliases(  # noqa: N802
        self, request: qdrant.ListAliasesRequest, _context: grpc.ServicerContext
    ) -> qdrant.ListAliasesResponse:
        """List all aliases."""
        only(request)
        aliases = [
            qdrant.AliasDescription(alias_name=alias, collection_name=name)
            for alias, name in sorted(self._shards.aliases().items())
        ]
        return qdrant.ListAliasesResponse(aliases=aliases)


class HealthService(qdrant.QdrantServicer):
    """Answers health checks."""

    def HealthCheck(  # noqa: N802
        self, _request: qdrant.HealthCheckRequest, _context: grpc.ServicerContext
    ) -> qdrant.HealthCheckReply:
        """Return title and version, as a Qdrant server does."""
        return qdrant.HealthCheckReply(title="qdrant edge behind memotree", version="1.20.0")
