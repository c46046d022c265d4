"""The configuration of a shard for the request that creates a collection: of a new shard, and of an optimised one.

A new shard keeps terms, and indexes of the payload, in memory: 4 KB a point. An optimised one has them in mapped files
that do not change, and vectors of 8-bit numbers beside the exact ones. What is written later goes to a part of its own,
kept as in a new shard. Optimising builds no graph (HNSW): with 1e5 points, to compare all 8-bit vectors takes 2.2 ms
and finds the true nearest ten; a graph took 1.4 ms, found 94 % of them, and five times as long to build.
"""

from collections.abc import Callable
from typing import Any, Final

import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError, only
from memotree_storage.qdrant.engine.wire import qdrant

_DISTANCES: Final = {
    qdrant.Cosine: edge.Distance.Cosine,
    qdrant.Dot: edge.Distance.Dot,
    qdrant.Euclid: edge.Distance.Euclid,
    qdrant.Manhattan: edge.Distance.Manhattan,
}
_NO_GRAPH: Final = edge.HnswIndexConfig(
    m=0, payload_m=0, ef_construct=100, full_scan_threshold=10_000, max_indexing_threads=1
)
_QUANTILE: Final = 0.99
_MAPPED_INDEXES: Final[dict[edge.PayloadSchemaType, Callable[[], Any]]] = {
    edge.PayloadSchemaType.Keyword: lambda: edge.KeywordIndexParams(memory=edge.Memory.Cold),
    edge.PayloadSchemaType.Integer: lambda: edge.IntegerIndexParams(lookup=True, range=True, memory=edge.Memory.Cold),
    edge.PayloadSchemaType.Float: lambda: edge.FloatIndexParams(memory=edge.Memory.Cold),
    edge.PayloadSchemaType.Bool: lambda: edge.BoolIndexParams(memory=edge.Memory.Cold),
    edge.PayloadSchemaType.Datetime: lambda: edge.DatetimeIndexParams(memory=edge.Memory.Cold),
    edge.PayloadSchemaType.Uuid: lambda: edge.UuidIndexParams(memory=edge.Memory.Cold),
}


def new_shard(settings: qdrant.CreateCollection) -> edge.EdgeConfig:
    """The configuration of a new shard; refuses what the shard cannot do."""
    # How a server distributes or caches a collection does not change its answers, so those fields are accepted.
    only(
        settings,
        *("collection_name", "vectors_config", "sparse_vectors_config", "on_disk_payload", "timeout"),
        *("shard_number", "replication_factor", "write_consistency_factor", "optimizers_config", "wal_config"),
    )
    if settings.vectors_config.WhichOneof("config") != "params_map":
        raise UnsupportedError("collections without named vectors")
    for name, params in settings.vectors_config.params_map.map.items():
        only(params, "size", "distance", "on_disk")
        if params.distance not in _DISTANCES:
            raise MalformedError(f"The vector {name} needs a distance.")
    for terms in settings.sparse_vectors_config.map.values():
        only(terms)
    return edge.EdgeConfig(vectors=_vectors(settings), sparse_vectors=_sparse(settings), wal_enabled=True)


_LEAST_SHARE: Final = 1e-9


def optimised_shard(settings: qdrant.CreateCollection, *, anew: bool = False) -> edge.EdgeConfig:
    """The configuration of an optimised shard: all mapped, one part however small, one thread.

    With ``anew``, a part with a single deleted point is written again.
    """
    cold = edge.Memory.Cold
    return edge.EdgeConfig(
        vectors=_vectors(settings, memory=cold),
        sparse_vectors=_sparse(settings, memory=cold),
        hnsw_config=_NO_GRAPH,
        quantization_config=edge.ScalarQuantizationConfig(edge.ScalarType.Int8, quantile=_QUANTILE, memory=cold),
        optimizers=edge.EdgeOptimizersConfig(
            deleted_threshold=_LEAST_SHARE if anew else None,
            vacuum_min_vector_number=1 if anew else None,
            default_segment_number=1,
            indexing_threshold=1,
        ),
        max_search_threads=1,
        payload_memory=cold,
        id_tracker_memory=cold,
        wal_enabled=True,
    )


def mapped_index(field: "edge.PayloadIndexInfo") -> Any:
    """The parameters of a payload index like this one that is mapped; ``None`` if it is already."""
    if field.params is not None and field.params.memory == edge.Memory.Cold:
        return None
    return _MAPPED_INDEXES[field.data_type]()


def _vectors(settings: qdrant.CreateCollection, **more: Any) -> dict[str, edge.EdgeVectorParams]:
    return {
        name: edge.EdgeVectorParams(params.size, _DISTANCES[params.distance], **more)
        for name, params in settings.vectors_config.params_map.map.items()
    }


def _sparse(settings: qdrant.CreateCollection, **more: Any) -> dict[str, edge.EdgeSparseVectorParams]:
    return {name: edge.EdgeSparseVectorParams(**more) for name in settings.sparse_vectors_config.map}
