"""Maintenance of the stores: their health, whether they agree, and rebuilding the mirrors.

Import `MaintenanceOperations` from here; the rest is internal to this folder.
"""

from memotree.maintenance.operations import MaintenanceOperations

__all__ = ["MaintenanceOperations"]
