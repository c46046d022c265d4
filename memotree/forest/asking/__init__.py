"""Answers questions from the trees with citations: a drill-down by one level, or a loop with a chat model."""
