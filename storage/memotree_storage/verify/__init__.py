"""Compares Git, the mirror and the index, row by row and point by point, and reports every difference.

Import `verify`, `Difference` and `Step` from here. `Store.rebuild` repairs what it finds, except for faults in Git
itself.
"""

from memotree_storage.verify.report import Difference, Step
from memotree_storage.verify.run import verify

__all__ = ["Difference", "Step", "verify"]
