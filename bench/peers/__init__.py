"""The same everyday workload on MemoTree and on its peers, in one run: ``python -m bench.peers``.

Each peer is a program of its own (``*_program.py``) in an environment of its own; ``program`` has what they share.
"""
