"""The canvas: node tools, levels of detail, views and search.

Import `NodeOperations` and `ViewOperations` from here.
"""

from memotree.canvas.operations import NodeOperations
from memotree.canvas.view_operations import ViewOperations

__all__ = ["NodeOperations", "ViewOperations"]
