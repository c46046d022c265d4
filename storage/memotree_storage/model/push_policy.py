"""What pushes to a workspace may do: bring faults into a tree, and rewind branches.

The policy of a workspace is a JSON file on the ref ``refs/memotree/pushes`` (``git.push_policies``).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import CorruptError
from memotree_storage.model.protection import names_branch

PUSHES_REF: Final = "refs/memotree/pushes"
MOST_PATTERNS: Final = 100


class PushPolicyDamagedError(CorruptError):
    """The file of the policy cannot be read, so no push is taken that needs it."""

    reason = "PUSH_POLICY_DAMAGED"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The policy on {PUSHES_REF} cannot be read ({why}), so pushes are refused. Set it again "
            "(SetPushPolicy), or restore that ref from a backup or a clone."
        )


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """What pushes may do.

    Attributes:
        strict: Whether a push is refused that brings a fault into a branch; else it is taken in and told.
        rewindable: The branches that a push may rewind: names, or beginnings of names followed by ``*``.
        by: Who set it; "" if nobody did.
        at: When, in UTC; ``None`` if nobody did.
    """

    strict: bool = False
    rewindable: Sequence[str] = ()
    by: str = ""
    at: datetime | None = None

    def may_rewind(self, branch: str) -> bool:
        """Whether a push may move this branch to a commit that does not have all commits of it."""
        return any(names_branch(pattern, branch) for pattern in self.rewindable)


def encode_push_policy(policy: PushPolicy) -> bytes:
    """The file of a policy."""
    at = None if policy.at is None else policy.at.isoformat()
    fields = {"strict": policy.strict, "rewindable": sorted(policy.rewindable), "by": policy.by, "at": at}
    return (json.dumps(fields, ensure_ascii=False, indent=2) + "\n").encode()


def decode_push_policy(data: bytes) -> PushPolicy:
    """Read the file of a policy.

    Raises:
        PushPolicyDamagedError: It is none.
    """
    try:
        found = json.loads(data)
        return PushPolicy(
            bool(found["strict"]),
            tuple(map(str, found["rewindable"])),
            str(found["by"]),
            datetime.fromisoformat(found["at"]).astimezone(UTC),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise PushPolicyDamagedError(f"{type(error).__name__}: {error}") from error
