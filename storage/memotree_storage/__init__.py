"""The versioned store: Git as the truth, PostgreSQL and Qdrant as mirrors; usable as a library, without gRPC."""
