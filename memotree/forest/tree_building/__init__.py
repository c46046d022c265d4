"""Builds the tree of a new document: sections, greedy merging of neighbours, titles and summaries."""
