"""Search: terms and vectors of each version, the indexer that writes them, and queries at one state of the tree."""
