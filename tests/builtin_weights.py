"""Reads the weights of the built-in embedding once for all servers of a process and for the forks of it."""

from functools import cache

from memotree.models import builtin

builtin._load_wordllama = cache(builtin._load_wordllama)
builtin._load_wordllama(builtin.DIMENSIONS)
