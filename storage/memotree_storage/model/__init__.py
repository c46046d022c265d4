"""Nodes and archives as values: file format, validation, positions, three-way merge. Pure functions; no I/O."""
