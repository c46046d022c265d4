"""Restoring entries of another commit: in a state they become as they were there, with their ids."""

from collections.abc import Collection
from dataclasses import dataclass

from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.staged_merge import entries_of
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge
from memotree_storage.mirror.tree_check import check_tree, named_by
from memotree_storage.model.node import Entry
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State


@dataclass(frozen=True, slots=True)
class Restored:
    """What is restored.

    Attributes:
        ids: Nodes and archives, which are alive at the source.
        below: Whether all that stands below them there is restored, too.
        removes_others: Whether what stands below them now, but not there, is removed, or goes back where it stood.
    """

    ids: Collection[str]
    below: bool = False
    removes_others: bool = False


async def restore_entries(
    conn: Connection,
    entries: EntryReader,
    ours: State,
    source: State,
    restored: Restored,
    *,
    max_depth: int | None = None,
) -> StateMerge:
    """Tell what restoring would change in a state, without writing anything.

    Deleted nodes and archives above a restored one come back as well, as they were at the source.

    Args:
        conn: Reads the mirror.
        entries: Reads entries.
        ours: The commit or session that gets them.
        source: The commit at which they are as wanted.
        restored: What is restored.
        max_depth: The greatest depth of a node that gets another place; ``None`` for no limit.

    Returns:
        The changes; its conflicts are about the tree alone.
    """
    here, there = Snapshot(conn, ours), Snapshot(conn, source)
    wanted = await _with_below(there, restored.ids) if restored.below else set(restored.ids)
    others = (
        await _with_below(here, restored.ids) - wanted if restored.below and restored.removes_others else set[str]()
    )
    moved = set(await tree.versions(there, others))  # they stood elsewhere, and go back there
    wanted, gone = wanted | moved, others - moved
    wanted |= await _missing_above(here, there, wanted)
    theirs = await tree.versions(there, wanted)
    present = await tree.versions(here, wanted | gone)
    unlike = [one for one in sorted(wanted) if _blob(theirs.get(one)) != _blob(present.get(one))]
    before = await entries_of(conn, entries, ours, {one: present[one] for one in [*unlike, *gone] if one in present})
    after = await entries_of(conn, entries, source, {one: theirs[one] for one in unlike})
    changed = sorted({*unlike, *gone})
    changes = [
        MergedEntry(one, after.get(one), before.get(one)) for one in changed if after.get(one) != before.get(one)
    ]
    written: dict[str, Entry | None] = {change.entry_id: change.entry for change in changes}
    at_head = await tree.versions(here, named_by(written))
    checked = await check_tree(here, written, set(), at_head=at_head, max_depth=max_depth, is_merge=True)
    at_ours = {one: present[one] for one in written if one in present}
    return StateMerge(ours.commit_id, source.commit_id, (), changes, at_ours, checked.conflicts)


async def _with_below(snapshot: Snapshot, ids: Collection[str]) -> set[str]:
    """Those of some entries that are alive, with all that stands below them."""
    found = await tree.versions(snapshot, ids)
    below = {one for one, version in found.items() if not version.is_archive}
    every = {item.entry_id for item in await tree.subtree(snapshot, sorted(below))} | set(found)
    for archive_id in found.keys() - below:
        every |= {item.entry_id for item in await tree.archive_tree(snapshot, archive_id)}
    return every


async def _missing_above(here: Snapshot, there: Snapshot, ids: Collection[str]) -> set[str]:
    """The entries above some nodes that are not alive any more."""
    ways = await tree.ancestors(there, ids)
    above = {one for way in ways.values() for one in way}
    versions = await tree.versions(there, {*ids, *above})
    above |= {version.archive_id for version in versions.values() if not version.is_archive}
    alive = await tree.versions(here, above)
    return above & (await tree.versions(there, above)).keys() - alive.keys()


def _blob(version: Version | None) -> str:
    return "" if version is None else version.blob
