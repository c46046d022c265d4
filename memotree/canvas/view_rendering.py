"""Decides what a view shows and renders it: roots at TITLE, its own nodes at their levels, nothing below hidden nodes.

A node of the view is shown below its nearest shown ancestor; the nodes between them stay hidden. A node that was
brought in after an ancestor was hidden is shown.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.model.provenance import shown_summary
from memotree_storage.model.tokens import count_tokens
from memotree_storage.model.validation import DEFAULT_LIMITS
from memotree_storage.postgres import archive_versions, tree, views
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.postgres.views import ViewKey, ViewLevel
from memotree_storage.store import Store

from memotree.canvas.derived_content import Text, texts
from memotree.request import lookup
from memotree.request.messages import BRIEF, DETAIL, SUMMARY, TITLE, Level
from memotree.v1 import node_service_pb2 as pb

_MOST_HASHES: Final = 6
_MOST_NODES: Final = 5000
"""The most roots of an archive that a view shows."""

_MOST_ARCHIVES: Final = 30
"""The archives, in the order of their names, whose roots a view shows if it has no nodes of theirs."""

_MORE_ARCHIVES: Final = (
    f"There are more than {_MOST_ARCHIVES} archives; the roots of the first {_MOST_ARCHIVES} by name are shown, "
    "and those of archives with nodes in this view. Name an archive to see another one."
)

_FEW_NODES: Final = 100
_FEW_TOKENS: Final = 1 << 14
"""A view with more nodes or tokens than these is rendered in a thread, so that other calls are not blocked."""


@dataclass(frozen=True, slots=True)
class ShownNode:
    """One node that a view shows.

    Attributes:
        version: The node.
        level: Its level of detail.
        depth: The number of shown nodes above it.
        used: When it was last used; 0 for a root that was never used.
        hidden_below: The number of children that the view does not show.
    """

    version: Version
    level: Level.ValueType
    depth: int
    used: int
    hidden_below: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that a view shows.

    Attributes:
        nodes: The nodes, in the order of the tree.
        gone: Ids of nodes of the view that are no longer alive.
        cut: Names of archives with more roots than are shown.
        more_archives: Whether the roots of some archives are not shown, since there are many.
    """

    nodes: list[ShownNode]
    gone: list[str]
    cut: list[str]
    more_archives: bool = False

    @property
    def warnings(self) -> list[str]:
        """Warnings about nodes that are not shown."""
        return [
            *(f"{entry_id} is in the view but no longer alive." for entry_id in self.gone),
            *(
                f"Archive {name} has more than {_MOST_NODES} roots; only the first {_MOST_NODES} roots are shown. "
                "Expand others by their ids."
                for name in self.cut
            ),
            *([_MORE_ARCHIVES] if self.more_archives else []),
        ]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A view as text, within its budget if possible; ``cut`` has the ids of the nodes whose content is cut short."""

    markdown: str
    usage: pb.ContextUsage
    collapsed: list[str]
    fits: bool
    cut: tuple[str, ...] = ()


async def shown(snapshot: Snapshot, key: ViewKey, archive: str = "") -> Shown:
    """What a view shows of an archive, given by id, name or prefix, or of all.

    Of many archives only the first and those with nodes of the view are shown, so that a view costs and shows what it
    has, not what the workspace has.
    """
    levels = await views.levels(snapshot.conn, key)
    alive = await tree.versions(snapshot, list(levels))
    ways = await tree.ancestors(snapshot, list(alive))
    tops = {entry_id: (*way, entry_id)[0] for entry_id, way in ways.items()}
    top_homes = await tree.root_archives(snapshot, set(tops.values()))
    if archive:
        found, more = [await lookup.archive(snapshot, archive)], False
    else:
        found, more = await _first_archives(snapshot, set(top_homes.values()))
    archive_ids = [one.entry_id for one in found]
    below = await tree.first_below(snapshot, archive_ids, _MOST_NODES + 1)
    cut = [one.name for one in found if len(below.get(one.entry_id, ())) > _MOST_NODES]
    roots = {root: archive_id for archive_id in archive_ids for root in below.get(archive_id, [])[:_MOST_NODES]}
    alive |= await tree.versions(snapshot, roots.keys() - alive.keys())
    ways |= {root: [] for root in roots}
    homes = {entry_id: top_homes.get(top, alive[entry_id].archive_id) for entry_id, top in tops.items()} | roots
    is_much = len(alive) > _FEW_NODES
    visible = await in_store_thread_if(is_much, _visible, homes, ways, levels, archive_ids)
    counts = await tree.child_counts(snapshot, visible)
    between = {above for entry_id in visible for above in ways[entry_id]} - set(alive)
    places = {**alive, **await tree.versions(snapshot, between)}

    def nodes() -> list[ShownNode]:
        below_shown = Counter(alive[entry_id].parent_id for entry_id in visible)
        are_visible = frozenset(visible)
        return [
            ShownNode(
                version=alive[entry_id],
                level=Level.ValueType(levels[entry_id].level) if entry_id in levels else TITLE,
                depth=sum(1 for above in ways[entry_id] if above in are_visible),
                used=levels[entry_id].used if entry_id in levels else 0,
                hidden_below=counts[entry_id] - below_shown[entry_id],
            )
            for entry_id in _ordered(visible, places, ways, homes, archive_ids)
        ]

    return Shown(
        await in_store_thread_if(is_much, nodes),
        gone=sorted(entry_id for entry_id in levels if entry_id not in alive),
        cut=cut,
        more_archives=more,
    )


async def _first_archives(snapshot: Snapshot, used: Collection[str]) -> tuple[list[ArchiveVersion], bool]:
    """The first archives by name together with the used ones, by name; and whether there are others."""
    first = await archive_versions.archives(snapshot, limit=_MOST_ARCHIVES + 1)
    if len(first) <= _MOST_ARCHIVES:
        return first, False
    found = {one.entry_id: one for one in first[:_MOST_ARCHIVES]}
    others = await tree.versions(snapshot, [archive_id for archive_id in used if archive_id not in found])
    found |= {entry_id: ArchiveVersion.of(version) for entry_id, version in others.items()}
    return sorted(found.values(), key=lambda one: (one.name, one.entry_id)), True


def _is_visible(entry_id: str, way: Sequence[str], levels: Mapping[str, ViewLevel]) -> bool:
    """Whether a node is shown: it is not hidden, and no ancestor was hidden after the node was last used."""
    own = levels.get(entry_id)
    if own is not None and not own.shown:
        return False
    used = 0 if own is None else own.used
    hidden = (levels[above].used for above in way if above in levels and not levels[above].shown)
    return all(when < used for when in hidden)


def _visible(
    homes: Mapping[str, str],
    ways: Mapping[str, list[str]],
    levels: Mapping[str, ViewLevel],
    archive_ids: Sequence[str],
) -> list[str]:
    """The ids of the nodes of these archives that are shown, in ascending order; ``homes`` has the archive of each."""
    shown_archives = frozenset(archive_ids)
    return sorted(
        entry_id
        for entry_id, home in homes.items()
        if home in shown_archives and _is_visible(entry_id, ways[entry_id], levels)
    )


def _ordered(
    visible: Sequence[str],
    places: Mapping[str, Version],
    ways: Mapping[str, list[str]],
    homes: Mapping[str, str],
    archive_ids: Sequence[str],
) -> list[str]:
    """The visible nodes in the order of the tree, sorted by the positions along the path to each."""
    rank = {archive_id: number for number, archive_id in enumerate(archive_ids)}

    def route(entry_id: str) -> tuple[int, list[tuple[str, str]]]:
        steps = [*ways[entry_id], entry_id]
        return rank[homes[entry_id]], [(places[step].position, step) for step in steps if step in places]

    return sorted(visible, key=route)


async def render(
    snapshot: Snapshot,
    store: Store,
    what: Shown,
    budget: int = 0,
    *,
    limit: int = DEFAULT_LIMITS.content_bytes,
) -> Rendered:
    """Render a view as Markdown; if it exceeds the budget, the least recently used nodes are collapsed first.

    A budget of 0 means no budget. A collapsed node shows only its title and nothing below it. All derived contents
    together have at most ``limit`` bytes.
    """
    detailed = [node.version for node in what.nodes if node.level >= DETAIL]
    found = await texts(snapshot, store, detailed, limit)
    is_much = len(what.nodes) > _FEW_NODES or sum(text.tokens for text in found.values()) > _FEW_TOKENS
    return await asyncio.to_thread(rendered, what, found, budget) if is_much else rendered(what, found, budget)


def rendered(what: Shown, texts: Mapping[str, Text], budget: int) -> Rendered:
    """Render a view from contents that were read already; see `render`.

    Each collapse removes tokens, so bisection finds the fewest collapses that keep the budget; each candidate is
    rendered and its tokens are counted.
    """
    nodes, collapsed = what.nodes, list[str]()
    markdown = _markdown(nodes, texts)
    if budget and count_tokens(markdown) > budget:
        collapses = _collapses(nodes)

        def fits(number: int) -> bool:
            return count_tokens(_markdown(_after(what.nodes, collapses[:number]), texts)) <= budget

        made = collapses[: bisect_left(range(len(collapses)), True, key=fits)]  # noqa: FBT003 - the value sought
        nodes = _after(what.nodes, made)
        collapsed = list(dict.fromkeys(what.nodes[collapse.place].version.entry_id for collapse in made))
        markdown = _markdown(nodes, texts)
    used = count_tokens(markdown)
    usage = pb.ContextUsage(
        tokens_used=used,
        token_budget=budget,
        nodes_expanded=sum(1 for node in nodes if node.level > TITLE),
        nodes_shown=len(nodes),
    )
    cut = tuple(
        node.version.entry_id
        for node in nodes
        if node.level >= DETAIL and node.version.entry_id in texts and texts[node.version.entry_id].cut
    )
    return Rendered(markdown, usage, collapsed, fits=not budget or used <= budget, cut=cut)


def _markdown(nodes: Sequence[ShownNode], texts: Mapping[str, Text]) -> str:
    return "\n".join(block(node, node.level, texts) for node in nodes)


@dataclass(frozen=True, slots=True)
class _Collapse:
    """Sets the node at index ``place`` of the view to TITLE and hides the nodes below it, up to index ``end``."""

    place: int
    end: int


def _collapses(nodes: Sequence[ShownNode]) -> list[_Collapse]:
    """All possible collapses, least recently used first.

    A subtree counts as last used when the latest of its open nodes was: nodes shown as titles keep nothing open. The
    text of a node is collapsed before open nodes below it that were used later.
    """
    steps: list[tuple[int, int, int, _Collapse]] = []
    ends: list[int] = [len(nodes)] * len(nodes)
    latest = [node.used if node.level > TITLE else 0 for node in nodes]
    above: list[int] = []
    for place, node in enumerate([*nodes, None]):
        while above and (node is None or nodes[above[-1]].depth >= node.depth):
            done = above.pop()
            ends[done] = place
            if above:
                latest[above[-1]] = max(latest[above[-1]], latest[done])
        above.append(place)
    for place, node in enumerate(nodes):
        when = max(latest[place], node.used)
        if node.level > TITLE and node.used < when:
            steps.append((node.used, 0, -place, _Collapse(place, place + 1)))
        if node.level > TITLE or ends[place] > place + 1:
            steps.append((when, 1, -place, _Collapse(place, ends[place])))
    return [step for *_, step in sorted(steps, key=lambda step: step[:3])]


def _after(nodes: Sequence[ShownNode], collapses: Sequence[_Collapse]) -> list[ShownNode]:
    """The nodes of a view that remain after the collapses."""
    ends = dict[int, int]()
    for collapse in collapses:
        ends[collapse.place] = max(collapse.end, ends.get(collapse.place, 0))
    left: list[ShownNode] = []
    below = Counter(node.version.parent_id for node in nodes)
    hidden_to = 0
    for place, node in enumerate(nodes):
        if place < hidden_to:
            continue
        if place not in ends:
            left.append(node)
            continue
        hidden_to = ends[place]
        hides = below[node.version.entry_id] if hidden_to > place + 1 else 0
        left.append(replace(node, level=TITLE, hidden_below=node.hidden_below + hides))
    return left


def block(node: ShownNode, level: Level.ValueType, texts: Mapping[str, Text]) -> str:
    """One node as Markdown: a heading with its id, and the text of its level."""
    version = node.version
    hashes = "#" * min(node.depth + 1, _MOST_HASHES)
    more = f" (+{node.hidden_below})" if node.hidden_below > 0 else ""
    heading = f"{hashes} {version.title} [{version.entry_id}]{more}\n"
    text = text_at(version, level, texts)
    return f"{heading}\n{text}\n" if text else heading


def text_at(version: Version, level: Level.ValueType, texts: Mapping[str, Text]) -> str:
    """The text of a node at a level, without the title."""
    if level == BRIEF:
        return version.brief
    if level == SUMMARY:
        return shown_summary(version.summary, version.attributes) or version.brief
    if level == DETAIL and version.entry_id in texts:
        return texts[version.entry_id].content
    return ""
