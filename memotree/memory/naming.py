"""Finds the node that an argument of a change names: by its id, the beginning of one, its title or its path."""

from typing import Final

from memotree_storage.model.node import is_id, is_id_prefix
from memotree_storage.postgres.tree import Snapshot

from memotree.canvas import names
from memotree.request import lookup
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError

MOST_TOLD: Final = 20
"""The most nodes that an error lists."""


async def id_named(snapshot: Snapshot, given: str, field: str = "node_id") -> str:
    """The id that a name means at a state; an id, or a beginning of ids that no title equals, stays as it is.

    Raises:
        InvalidInputError: The name is empty.
        NoNodeNamedError: No node has this title or path.
        AmbiguousNodeNameError: Several have it.
    """
    lookup.needed(field, given)
    if is_id(given):
        return given
    found = await names.resolve(snapshot, given, MOST_TOLD)
    ids = [one.version.entry_id for one in found.candidates]
    if len(ids) == 1:
        return ids[0]
    if is_id_prefix(given) and all(each.startswith(given) for each in ids):
        return given
    if not ids:
        raise NoNodeNamedError(field, given, "Look for it, and give its id or its exact title.")
    told = [f"{one.version.entry_id} ({one.path})" for one in found.candidates]
    versions = [one.version for one in found.candidates]
    raise AmbiguousNodeNameError.among(field, given, versions, [*told, *(["and others"] if found.more else [])])
