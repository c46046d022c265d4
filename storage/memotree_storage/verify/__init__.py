"""Comparing Git, the mirror and the index, row by row and point by point; every difference is named.

Imported from here: `verify`, `Difference` and `Step`. What it finds is repaired by `Store.rebuild`, but for what is
wrong in Git itself.
"""

from memotree_storage.verify.report import Difference, Step
from memotree_storage.verify.run import verify

__all__ = ["Difference", "Step", "verify"]
