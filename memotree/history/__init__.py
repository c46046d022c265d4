"""History: commits, revisions of a node, differences between states, branches and tags.

Imported from here: `HistoryOperations`. The rest is for this room.
"""

from memotree.history.operations import HistoryOperations

__all__ = ["HistoryOperations"]
