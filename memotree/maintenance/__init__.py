"""Looking after the stores: their health, whether they agree, and making the mirrors anew.

Imported from here: `MaintenanceOperations`. The rest is for this room.
"""

from memotree.maintenance.operations import MaintenanceOperations

__all__ = ["MaintenanceOperations"]
