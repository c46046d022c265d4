"""The embedded engine: qdrant-edge shards behind the part of Qdrant's gRPC API that MemoTree uses; run as a process."""
