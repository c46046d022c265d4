"""Answers questions from the trees: one level down, or the loop of a chat model, with citations."""
