"""Nodes by name on the command line: an id, the beginning of one, a unique title, or a path ``archive/Title/Sub``.

``NODE_NAME`` marks the parameters of a command that name nodes; ``full_id`` finds what each means before it runs.
"""

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memotree.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from memotree.client import NamedNode, Revision


class _NodeName:
    """Marks a parameter whose value names a node, or several."""


NODE_NAME: Final = _NodeName()

ID_LENGTH: Final = 16
"""The length of a whole id, in characters."""

_ID: Final = re.compile(r"[0-9a-hjkmnp-tv-z]{16}")
_BEGINNING: Final = re.compile(r"[0-9a-hjkmnp-tv-z]{4,16}")


class NoSuchNodeError(CliError):
    """No node has this name at this state."""

    exit_code = ExitCode.FAILED
    reason = "NODE_NOT_NAMED"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No node here has the title or path {name!r}. Look for it with `memotree search` or `memotree node tree`; "
            "a forgotten one is brought back with `memotree node restore`."
        )


class RevisionAsNodeError(CliError):
    """A branch or tag stands where a node is asked for, as it could in ``git log main``."""

    exit_code = ExitCode.FAILED
    reason = "REVISION_AS_NODE"

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(f"No node has the name {name!r}, but a {kind} has: give it as `--at {shlex.quote(name)}`.")


class AmbiguousNameError(CliError):
    """Several nodes have this name."""

    exit_code = ExitCode.FAILED
    reason = "AMBIGUOUS_NAME"

    def __init__(self, name: str, candidates: "list[NamedNode]") -> None:
        listed = "".join(f"\n  {each.node.id}  {shlex.quote(each.path)}" for each in candidates)
        super().__init__(f"{name!r} could be each of these; give the path or the id:{listed}")


def named_parameters(hints: Mapping[str, Any]) -> frozenset[str]:
    """The parameters, given by name and type, that are marked with ``NODE_NAME``."""
    return frozenset(name for name, hint in hints.items() if NODE_NAME in getattr(hint, "__metadata__", ()))


def full_id(here: "Revision", name: str) -> str:
    """The id of the node that ``name`` means.

    The beginning of an id that no node or several have is given back, since the server knows deleted nodes too.

    Raises:
        NoSuchNodeError: No node has this title or path.
        AmbiguousNameError: Several have it.
    """
    if _ID.fullmatch(name) or not name:
        return name
    found = here.named(name)
    if len(found) == 1:
        return found[0].node.id
    if _BEGINNING.fullmatch(name) and all(each.node.id.startswith(name) for each in found):
        return name
    if found:
        raise AmbiguousNameError(name, found)
    raise NoSuchNodeError(name)
