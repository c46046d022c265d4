"""The audit log: who called what with which arguments, kept before the call is answered.

From outside, `AuditLog` and `AuditOperations` are used.
"""

from memotree.audit.log import AuditLog
from memotree.audit.operations import AuditOperations

__all__ = ["AuditLog", "AuditOperations"]
