"""Protected branches: they change only by the merge of an approved proposal.

The protections of a workspace are one JSON file on the ref ``refs/memotree/protections`` (``git.protections``).
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from memotree_storage.errors import CorruptError, FailedPreconditionError

PROTECTIONS_REF: Final = "refs/memotree/protections"
MOST_PROTECTIONS: Final = 100
MOST_APPROVALS: Final = 10

_ANY: Final = "*"


class ProtectionsDamagedError(CorruptError):
    """The file of the protections cannot be read, so no branch can be changed."""

    reason = "PROTECTIONS_DAMAGED"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The protections on {PROTECTIONS_REF} cannot be read ({why}), so no branch takes changes. Restore that "
            "ref from a backup or a clone."
        )


class BranchProtectedError(FailedPreconditionError):
    """The branch takes no changes directly, or must not be deleted."""

    reason = "BRANCH_PROTECTED"

    @classmethod
    def of(cls, branch: str) -> "BranchProtectedError":
        """The error for a change of a protected branch."""
        return cls(
            f"Branch {branch} is protected: it changes only by a proposal that others approve. Nothing was written. "
            "Make the changes in a session or on another branch, and propose them (CreateProposal)."
        )


@dataclass(frozen=True, slots=True)
class Protection:
    """The rule of some branches.

    Attributes:
        pattern: The name of a branch, or the beginning of names, followed by ``*``.
        approvals: How many others must approve a proposal, from 1.
        needs_checks: Whether its checks must pass, too.
        by: The name of who protected them.
        at: When, in UTC.
    """

    pattern: str
    approvals: int
    needs_checks: bool
    by: str
    at: datetime

    def covers(self, branch: str) -> bool:
        """Whether the rule is about this branch."""
        return names_branch(self.pattern, branch)


def names_branch(pattern: str, branch: str) -> bool:
    """Whether a pattern is the name of a branch, or the beginning of it followed by ``*``."""
    return branch.startswith(pattern[:-1]) if pattern.endswith(_ANY) else branch == pattern


def is_pattern(text: str) -> bool:
    """Whether a text can name branches: a name, or the beginning of names with one ``*`` at its end."""
    return bool(re.fullmatch(r"[^*\s]+\*?|\*", text))


def protection_of(protections: Sequence[Protection], branch: str) -> Protection | None:
    """The rule of a branch: that with the longest pattern, one without ``*`` above all; ``None`` if none covers it."""
    found = [one for one in protections if one.covers(branch)]
    return max(found, key=lambda one: (not one.pattern.endswith(_ANY), len(one.pattern)), default=None)


def encode_protections(protections: Iterable[Protection]) -> bytes:
    """The file of some protections, by pattern."""
    listed = [asdict(one) | {"at": one.at.isoformat()} for one in sorted(protections, key=lambda one: one.pattern)]
    return (json.dumps({"protections": listed}, ensure_ascii=False, indent=2) + "\n").encode()


@lru_cache(maxsize=256)
def decode_protections(data: bytes) -> tuple[Protection, ...]:
    """Read the file of the protections of a workspace.

    Raises:
        ProtectionsDamagedError: It is none.
    """
    try:
        return tuple(
            Protection(
                str(one["pattern"]),
                int(one["approvals"]),
                bool(one["needs_checks"]),
                str(one["by"]),
                datetime.fromisoformat(one["at"]).astimezone(UTC),
            )
            for one in json.loads(data)["protections"]
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ProtectionsDamagedError(f"{type(error).__name__}: {error}") from error
