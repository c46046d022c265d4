"""Cuts a document into the pieces that become leaves. Pure; import `splitting`."""
