"""Figures for Prometheus: counters of calls, and what the stores say when they are asked.

From outside, only `server_metrics` is used. Nothing here is imported while the setting ``metrics_port`` is not given.
"""
