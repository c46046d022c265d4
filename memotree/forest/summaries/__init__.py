"""Summaries of nodes kept up to date: which are stale, what they shall be, and who writes them when."""
