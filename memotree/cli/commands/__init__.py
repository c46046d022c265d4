"""The commands, one module for each group of them, and what only they need."""
