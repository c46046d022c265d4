"""Search: terms and vectors of each version, the worker that indexes them, and queries at one state of the tree."""
