"""Keeps summaries up to date: finds the stale ones, makes new ones, and commits or stages them."""
