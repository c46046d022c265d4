"""Bringing the mirror up to date with Git, and reading whole entries from Git."""
