"""Checks that changes leave a tree: parents alive, no cycle, no orphan, a limited depth, one archive per subtree.

The changes are checked over the exact parent of the new commit, because two moves that are each valid alone can make a
cycle together, or a chain that is too long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread_if, in_turns
from memotree_storage.conflicts import Absence, ChildValue, Conflict, ConflictKind, FieldValue, Place
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.model.field_values import entry_value, place_value
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.postgres import archive_versions, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_FEW: Final = 1000
"""More nodes are checked in a thread, so that other calls can run."""


@dataclass(frozen=True, slots=True)
class MissingChange:
    """A change that was not chosen although a chosen change needs it."""

    entry_id: str
    needed_by: str
    why: str


class IncompleteChoiceError(FailedPreconditionError):
    """The chosen changes need others, or others need them; ``nodes`` has those to choose as well."""

    reason = "INCOMPLETE_CHOICE"
    nodes: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class TreeCheckResult:
    """What is wrong with a commit: conflicts with the branch, and further changes that must be chosen."""

    conflicts: list[Conflict]
    missing: list[MissingChange]


async def check_tree(
    snapshot: Snapshot,
    entries: Mapping[str, Entry | None],
    left_out: set[str],
    *,
    at_head: Mapping[str, Version] | None = None,
    max_depth: int | None = None,
    is_merge: bool = False,
) -> TreeCheckResult:
    """Check a commit of ``entries`` (``None``: deleted) on top of a state.

    Args:
        snapshot: The parent of the commit.
        entries: What the commit writes.
        left_out: Ids of changes that stay staged.
        at_head: The versions alive at the parent of the ids that `named_by` returns, if the caller has read them.
        max_depth: The greatest depth of a node that gets another place, and of what is below it; a root has 0.
        is_merge: The entries come from another commit, which anybody may have made, and not from a session, whose
            changes were checked one by one. The side of the state is "ours" in the conflicts then, not "theirs".
    """
    check = _Check(snapshot.conn, snapshot.state, entries, left_out, max_depth, is_merge=is_merge)
    if at_head is None:
        at_head = await tree.versions(snapshot, named_by(entries))
    return await check.run(at_head)


def named_by(entries: Mapping[str, Entry | None]) -> set[str]:
    """The ids of entries and of their parents and archives."""
    nodes = [entry for entry in entries.values() if isinstance(entry, Node)]
    above = {node.parent_id for node in nodes if node.parent_id}
    return {*entries, *above, *(node.archive_id for node in nodes)}


class _Check:
    def __init__(
        self,
        conn: Connection,
        head: State,
        entries: Mapping[str, Entry | None],
        left_out: set[str],
        max_depth: int | None,
        *,
        is_merge: bool,
    ) -> None:
        self._conn = conn
        self._head = head
        self._entries = entries
        self._left_out = left_out
        self._max_depth = max_depth
        self._is_merge = is_merge
        self._nodes = {entry.id: entry for entry in entries.values() if isinstance(entry, Node)}
        self._at_head: Mapping[str, Version] = {}
        self._verdict = TreeCheckResult([], [])

    async def run(self, at_head: Mapping[str, Version]) -> TreeCheckResult:
        self._at_head = at_head
        placed = await in_store_thread_if(len(self._nodes) > _FEW, self._check_parents)
        await self._check_ways(placed)
        await self._check_children(placed)
        await self._check_archives()
        return self._verdict

    def _check_parents(self) -> list[Node]:
        """Check what the nodes stand below; return those that get another place."""
        for node in self._nodes.values():
            self._check_parent(node)
        return [node for node in self._nodes.values() if self._is_placed_anew(node)]

    def _is_placed_anew(self, node: Node) -> bool:
        before = self._at_head.get(node.id)
        return before is None or (before.parent_id, before.archive_id) != (node.parent_id or "", node.archive_id)

    def _alive(self, entry_id: str) -> bool:
        if entry_id in self._entries:
            return self._entries[entry_id] is not None
        return entry_id in self._at_head

    def _check_parent(self, node: Node) -> None:
        above = node.parent_id or node.archive_id
        if above not in self._entries and not self._is_placed_anew(node):
            return  # if it stands nowhere, it did so before, and its text can be edited nevertheless
        if not self._alive(above):
            if above in self._left_out:
                self._verdict.missing.append(MissingChange(above, node.id, "it stands above"))
            else:
                what = "parent" if node.parent_id else "archive"
                self._conflict(
                    ConflictKind.PARENT_DELETED, node.id, what, Absence.DELETED, f"its {what} {above} was deleted"
                )
        elif node.parent_id and self._archive_of(node.parent_id) != node.archive_id:
            if node.parent_id in self._left_out:
                self._verdict.missing.append(MissingChange(node.parent_id, node.id, "it changes the archive with it"))
            else:
                theirs = Place(self._archive_of(node.parent_id), node.parent_id)
                self._conflict(
                    ConflictKind.PARENT_MOVED,
                    node.id,
                    "archive",
                    theirs,
                    f"its parent {node.parent_id} is in another archive",
                )

    def _archive_of(self, node_id: str) -> str:
        node = self._nodes.get(node_id)
        return node.archive_id if node else self._at_head[node_id].archive_id

    async def _check_ways(self, placed: list[Node]) -> None:
        """Walk up from each node with another place: to its root, which is not too far away.

        A cycle of a session's changes contains a moved node of the head: nothing there can be below a node that this
        commit creates. In a commit that somebody made with git, new nodes can be below each other.
        """
        every = self._max_depth is not None or self._is_merge
        below = [node for node in placed if node.parent_id and (every or node.id in self._at_head)]
        if not below:
            return
        parents = {node.parent_id for node in self._nodes.values() if node.parent_id}
        moved = [node.id for node in below if node.id in self._at_head]
        above = await tree.ancestors(Snapshot(self._conn, self._head), parents.union(moved))
        depths = await in_store_thread_if(len(below) > _FEW, self._depths, below, above)
        async for node in in_turns(below):
            depth = depths[node.id]
            if depth is None:
                if node.id in self._at_head:
                    theirs = place_value(self._at_head[node.id].to_node())
                    self._conflict(
                        ConflictKind.CYCLE, node.id, "parent", theirs, "the moves of both sides together make a cycle"
                    )
                elif self._is_merge:
                    self._conflict(ConflictKind.CYCLE, node.id, "parent", Absence.NONE, "it is below itself")
            elif self._max_depth is not None:
                await self._check_depth(node, depth, len(above[node.id]) if node.id in self._at_head else -1)

    def _depths(self, below: Sequence[Node], above: Mapping[str, list[str]]) -> dict[str, int | None]:
        """The depth of each node in the new commit; ``None`` if it is below itself.

        What is below a cycle has the depth that it would have if the cycle were passed once. Each node that the commit
        writes is passed once, however long the chains are that somebody has pushed.
        """
        found: dict[str, int | None] = {}
        in_cycle: dict[str, int] = {}
        for node in below:
            chain: list[tuple[str, int]] = []
            places: dict[str, int] = {}
            entry_id: str | None = node.id
            while entry_id is not None and entry_id not in found and entry_id not in places:
                places[entry_id] = len(chain)
                following, steps = self._next_above(entry_id, above)
                chain.append((entry_id, steps))
                entry_id = following
            depth = 0
            if entry_id in places:
                cycle = chain[places[entry_id] :]
                del chain[places[entry_id] :]
                depth = sum(steps for _, steps in cycle) - 1
                in_cycle |= dict.fromkeys((one for one, _ in cycle), depth)
                found |= dict.fromkeys(one for one, _ in cycle)
            elif entry_id is not None:
                known = found[entry_id]
                depth = in_cycle[entry_id] if known is None else known
            for one, steps in reversed(chain):
                depth += steps
                found[one] = depth
        return found

    def _next_above(self, entry_id: str, above: Mapping[str, list[str]]) -> tuple[str | None, int]:
        """The nearest node above one that the commit writes too, and how many levels that is; else all its levels."""
        parent = self._nodes[entry_id].parent_id
        if not parent or parent in self._nodes:
            return parent or None, 1 if parent else 0
        ancestors = above.get(parent, [])
        for steps, ancestor in enumerate(reversed(ancestors), 2):
            if ancestor in self._nodes:
                return ancestor, steps
        return None, 1 + len(ancestors)

    async def _check_depth(self, node: Node, depth: int, before: int) -> None:
        """Check how deep a node and what is below it get; one that does not get deeper may stay too deep."""
        most = self._max_depth or 0
        if depth <= before:
            return
        deepest = depth
        if before >= 0 and depth <= most:
            deepest += await self._height(node.id, most - depth)
        if deepest > most:
            theirs = place_value(self._at_head[node.id].to_node()) if before >= 0 else Absence.NONE
            self._conflict(
                ConflictKind.TOO_DEEP,
                node.id,
                "parent",
                theirs,
                f"it would put a node at depth {deepest}, and the limit is {most}",
            )

    async def _height(self, top: str, room: int) -> int:
        """The number of levels below a node that the commit leaves there, counted to one more than there is room."""
        found, leaves_at = 0, None
        for item in await tree.subtree(Snapshot(self._conn, self._head), [top], max_depth=room + 1):
            if leaves_at is not None and item.depth > leaves_at:
                continue  # it goes with a node that the commit moves or deletes, whose own place is checked
            leaves_at = item.depth if item.depth and self._goes(item.entry_id) else None
            found = found if leaves_at is not None else max(found, item.depth)
        return found

    def _goes(self, entry_id: str) -> bool:
        """Whether a node of the head is deleted by the commit, or gets another place."""
        if entry_id not in self._entries:
            return False
        node = self._nodes.get(entry_id)
        return node is None or self._is_placed_anew(node)

    async def _check_children(self, placed: list[Node]) -> None:
        """No node may stay below a deleted one, or below one that moved to another archive without it."""
        gone = [entry_id for entry_id, entry in self._entries.items() if entry is None and entry_id in self._at_head]
        moved = [
            node.id
            for node in placed
            if node.id in self._at_head and self._at_head[node.id].archive_id != node.archive_id
        ]
        nodes = [entry_id for entry_id in gone if not self._at_head[entry_id].is_archive]
        below = await tree.directly_below(Snapshot(self._conn, self._head), [*nodes, *moved])
        for entry_id in [*nodes, *moved]:
            for child in below.get(entry_id, []):
                self._check_child(entry_id, child)
        for entry_id in gone:
            if self._at_head[entry_id].is_archive:
                await self._check_roots(entry_id)

    async def _check_roots(self, archive_id: str) -> None:
        """No root may stay in a deleted archive. What is only shown in it, since its own one is gone, is of others."""
        head = Snapshot(self._conn, self._head)
        roots = await tree.versions(head, [child for child, _ in await tree.children(head, archive_id)])
        for root in roots.values():
            if root.archive_id == archive_id:
                self._check_child(archive_id, root.entry_id)

    def _check_child(self, above: str, child: str) -> None:
        if child in self._entries:
            return  # its own parent is checked separately
        if child in self._left_out:
            self._verdict.missing.append(MissingChange(child, above, "it stood below"))
        else:
            self._conflict(ConflictKind.HAS_CHILDREN, above, "", ChildValue(child), f"{child} stands below it")

    async def _check_archives(self) -> None:
        """Check that archive names stay unique."""
        changed = [entry for entry in self._entries.values() if isinstance(entry, Archive)]
        if not changed:
            return
        names: dict[str, Archive] = {}
        named = {archive.name for archive in changed}
        for other_archive in await archive_versions.archives_named(Snapshot(self._conn, self._head), named):
            if other_archive.entry_id not in self._entries:
                names[other_archive.name] = other_archive.archive
        for archive in changed:
            other = names.setdefault(archive.name, archive)
            if other.id != archive.id:
                self._conflict(
                    ConflictKind.NAME_TAKEN, archive.id, "name", entry_value(other), f"archive {other.id} has that name"
                )

    def _conflict(self, kind: ConflictKind, entry_id: str, field: str, theirs: FieldValue, description: str) -> None:
        """Note a conflict. The base is the value at the head: had the branch changed it, the merge would have it."""
        head, ours = self._at_head.get(entry_id), self._entries.get(entry_id)
        base = None if head is None else (head.to_archive() if head.is_archive else head.to_node())
        deleted = ours is None and head is not None
        advice = (
            "Change it on one of the two sides, and send the call again."
            if self._is_merge
            else "Discard or change your edit of it, or rebase the session and look again."
        )
        sides = Absence.DELETED if deleted else _value_of(field, ours), theirs
        our, their = sides[::-1] if self._is_merge else sides
        self._verdict.conflicts.append(
            Conflict(kind, entry_id, field, _value_of(field, base), our, their, f"{entry_id}: {description}. {advice}")
        )


def _value_of(field: str, entry: Entry | None) -> FieldValue:
    """The value of the field that a conflict of the tree is about: a name, a place, or the whole entry."""
    if field == "name" and isinstance(entry, Archive):
        return entry.name
    if field and isinstance(entry, Node):
        return place_value(entry)
    return entry_value(entry)
