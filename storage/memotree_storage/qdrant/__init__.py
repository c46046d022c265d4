"""Qdrant: vectors and terms of every committed version, and the embedded engine."""
