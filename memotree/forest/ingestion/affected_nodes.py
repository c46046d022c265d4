"""Finds all nodes that the update of a tree affects: nodes that move, and ancestors that need a new summary.

In a joined archive the document's roots are children of a node of their own, which has ancestors of its own. Those are
summarised again, too.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version, staged_version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.ingestion.existing_tree import ExistingTree
from memotree.forest.ingestion.tree_update import TreeUpdate
from memotree.forest.service_commit import Change
from memotree.forest.summaries.renewal import nodes_at, renew
from memotree.forest.summaries.staleness import Scope, scope_of
from memotree.models.gateway import Models
from memotree.models.meter import Meter


@dataclass(frozen=True, slots=True)
class AffectedNodes:
    """Everything that the update of a tree changes.

    Attributes:
        changes: Every node that is new, changed or deleted, by id.
        versions: The nodes below the document's top after the update, by id.
    """

    changes: Mapping[str, Change]
    versions: Mapping[str, Version]


async def find_affected_nodes(
    store: Store,
    models: Models,
    state: State,
    existing: ExistingTree,
    tree_update: TreeUpdate,
    top: Node | None,
    meter: Meter,
) -> AffectedNodes:
    """Returns the changes of a tree update, with new summaries for all ancestors of changed nodes.

    Args:
        store: The store.
        models: The models that make the summaries.
        state: The state that the existing tree was read from.
        existing: The existing tree.
        tree_update: What the new version changes.
        top: In a joined archive the parent of the document's roots, as it will be; else ``None``.
        meter: Counts the calls to models.
    """
    above = await _above(store, state, existing)
    after = dict(tree_update.after) | ({top.id: top} if top is not None else {})
    below, scope = await asyncio.to_thread(_to_check, above, existing, tree_update, top)
    made = {
        item.before.entry_id: item for item in await renew(nodes_at(store, state), models, scope, meter) if item.is_new
    }
    before = {**above.versions, **existing.versions}
    was = await _whole(store, state, existing, [before[node_id] for node_id in {*after, *made} & before.keys()])

    def affected() -> AffectedNodes:
        for node_id in {*after, *made} & was.keys():
            known = after.get(node_id, was[node_id])
            after[node_id] = replace(known, content=was[node_id].content)
        for node_id, item in made.items():
            after[node_id] = item.apply(after[node_id])
        changes = {node_id: Change(before.get(node_id), node, was.get(node_id)) for node_id, node in after.items()}
        changes.update(
            (node_id, Change(existing.versions[node_id], None, existing.leaves.get(node_id)))
            for node_id in tree_update.gone
        )
        below.update((node_id, staged_version(after[node_id], "")) for node_id in made if node_id in below)
        return AffectedNodes(changes, below)

    return await asyncio.to_thread(affected)


def _to_check(
    above: Scope, existing: ExistingTree, tree_update: TreeUpdate, top: Node | None
) -> tuple[dict[str, Version], Scope]:
    """Returns the nodes below the document's top after the update, by id, and the scope whose summaries to check."""
    below = {node_id: version for node_id, version in existing.versions.items() if node_id not in tree_update.gone}
    below |= {node_id: staged_version(node, "") for node_id, node in tree_update.after.items()}
    around = {node_id: version for node_id, version in above.versions.items() if node_id not in existing.versions}
    if top is not None:
        around[top.id] = staged_version(top, "")
    return below, _scope({**around, **below}, {*below, *(node_id for level in above.levels for node_id in level)})


async def _above(store: Store, state: State, existing: ExistingTree) -> Scope:
    """Returns the top of a joined document and its ancestors, with the children of each."""
    if not existing.top:
        return Scope([], {}, {})
    async with store.database.connection() as conn:
        ways = await tree.ancestors(Snapshot(conn, state), [existing.top])
        return await scope_of(Snapshot(conn, state), [existing.top, *ways.get(existing.top, ())])


async def _whole(store: Store, state: State, existing: ExistingTree, versions: list[Version]) -> dict[str, Node]:
    """Returns nodes as they were, with their contents.

    The contents of the document's own leaves are in memory already, and summary nodes have none; others are read.
    """
    found: dict[str, Node] = {}
    unread: list[Version] = []
    for version in versions:
        if version.entry_id in existing.leaves:
            found[version.entry_id] = existing.leaves[version.entry_id]
        elif version.type == SUMMARY_TYPE:
            found[version.entry_id] = version.to_node()
        else:
            unread.append(version)
    return found | await read_nodes_at(state, store.database, store.entries, unread)


def _scope(versions: Mapping[str, Version], looked_at: set[str]) -> Scope:
    """Returns the nodes to check by depth, and the children of the summary nodes among them.

    Args:
        versions: The nodes to check and all of their children.
        looked_at: The ids to check. The parent of each is one of them, or not among the versions.
    """
    below: dict[str, list[str]] = defaultdict(list)
    for node_id, version in versions.items():
        below[version.parent_id].append(node_id)
    levels: list[list[str]] = []
    level = [node_id for node_id in looked_at if versions[node_id].parent_id not in versions]
    while level:
        levels.append(sorted(level))
        level = [child for node_id in level for child in below.get(node_id, ()) if child in looked_at]
    children = {
        node_id: sorted(below.get(node_id, ()), key=lambda child: (versions[child].position, child))
        for node_id in looked_at
        if versions[node_id].type == SUMMARY_TYPE
    }
    return Scope(levels[::-1], versions, children)
