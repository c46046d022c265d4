"""Workspaces and the archives in them.

Imported from here: `WorkspaceOperations`.
"""

from memotree.workspaces.operations import WorkspaceOperations

__all__ = ["WorkspaceOperations"]
