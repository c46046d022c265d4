"""Review: proposals, protected branches, and memory tests.

The records are made by `memotree_storage.commit.proposals`; here are the rules of who may approve and when a
proposal may be merged. Only the composition root imports from here.
"""

from memotree.review.operations import ReviewOperations

__all__ = ["ReviewOperations"]
