"""Working sessions: staged changes over a base commit, their merge with a branch that moved, and their commit.

Imported from here: `SessionOperations`. The rest is for this room.
"""

from memotree.sessions.operations import SessionOperations

__all__ = ["SessionOperations"]
