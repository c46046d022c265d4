"""MemoTree: a Git-backed, versioned knowledge store for the memory of agents, served over gRPC."""
