"""Measures the budgets, each beside a peer in the same run. Start it with ``make bench`` or ``python -m bench``."""
