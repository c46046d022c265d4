"""The embedded engine: qdrant-edge shards behind the part of Qdrant's gRPC API that we use; run, not imported."""
