"""Nodes and archives as values: their file form, the rules for them, positions, merging. Pure: no input or output."""
