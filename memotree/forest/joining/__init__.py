"""Suggests similar archives, and joins archives under a new root."""
