"""Traces of calls over OpenTelemetry: spans for calls, for what they do in PostgreSQL and for what they ask the index.

From outside, only `tracing` is used. Nothing here is imported while the setting ``trace_url`` is not given.
"""
