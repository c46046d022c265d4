"""History: commits, revisions of a node, differences between states, branches and tags.

Import `HistoryOperations` from here; the rest is internal to this folder.
"""

from memotree.history.operations import HistoryOperations

__all__ = ["HistoryOperations"]
