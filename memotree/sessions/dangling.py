"""Warnings about relations whose target is deleted."""

from collections.abc import Collection
from typing import Final

from memotree_storage.postgres import tree

from memotree.sessions.editing import SessionEditor

_LISTED: Final = 100
"""Warnings listed one by one; an answer stays small however many relations there are."""

_AT_ONCE: Final = 500
"""Ids per statement: it compares the targets of each relation with all of them."""


async def warnings(editor: SessionEditor, ids: Collection[str]) -> tuple[str, ...]:
    """Warnings about relations from remaining nodes to deleted ones: at most 100, and one that counts the rest.

    Args:
        editor: The session, before the nodes are deleted.
        ids: The nodes to delete.
    """
    gone, order = set(ids), sorted(ids)
    told: list[str] = []
    for start in range(0, len(order), _AT_ONCE):
        part = set(order[start : start + _AT_ONCE])
        told += [
            f"{holder.entry_id} ({holder.title}) has {_with_article(relation[0])} relation to {relation[1]}, "
            "which is deleted."
            for holder in await tree.pointing_at(editor.snapshot, part)
            if holder.entry_id not in gone
            for relation in holder.relations
            if relation[1] in part
        ]
    told.sort()
    rest = len(told) - _LISTED
    if rest <= 0:
        return tuple(told)
    return (*told[:_LISTED], f"{rest} more relations of other nodes have a target that is deleted.")


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
