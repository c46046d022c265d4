"""Scores the leaves of documents for a question. Pure numpy; import `leaf_index`, `scores` and `packing`."""
