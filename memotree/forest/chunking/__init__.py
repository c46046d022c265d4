"""Splits a document into the pieces that become leaves. Pure (no I/O); import `splitting`."""
