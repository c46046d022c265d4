"""Locks held while a call waits, and work that a cancellation must not interrupt half way."""
