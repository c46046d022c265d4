"""Grows the plan of a tree from a document: pieces, merged pairs, and what stays of an earlier version; pure."""
