"""One call to remember, revise, forget or restore a note: each commits at once.

Import `MemoryOperations` from here.
"""

from memotree.memory.operations import MemoryOperations

__all__ = ["MemoryOperations"]
