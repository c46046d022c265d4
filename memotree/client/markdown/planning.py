"""Compares what a folder wants with what is stored: the changes to stage, in an order in which each is possible.

Archives come first. Then each place is filled from the top of the tree, so that a node never moves below one that is
still to be moved; then relations, whose targets exist by then; deletions come last.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memotree.client import changes
from memotree.client.changes import Change
from memotree.client.enums import RelationName, UpdateMode
from memotree.client.markdown.foreign_notes import FILE
from memotree.client.markdown.note_file import given_texts, own_attributes
from memotree.client.markdown.stored import StoredNode, StoredState
from memotree.client.markdown.wanted import WantedArchive, WantedNode, WantedTree
from memotree.client.markdown_values import MarkdownEdit
from memotree.client.node_values import Relation


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of a node, and the file that it comes from."""

    change: Change
    file: str


@dataclass(slots=True)
class ImportPlan:
    """What an import does.

    Attributes:
        edits: What changes, for people.
        new_archives: The archives to create.
        archives: The archives to change, with the new values of those fields that change.
        changes: The changes of nodes, in order.
        deleted_archives: The ids of archives to delete, at the end.
        missing: The nodes and archives that the folder does not have any more.
    """

    edits: list[MarkdownEdit] = field(default_factory=list)
    new_archives: list[WantedArchive] = field(default_factory=list)
    archives: list[tuple[WantedArchive, dict[str, str]]] = field(default_factory=list)
    changes: list[PlannedChange] = field(default_factory=list)
    deleted_archives: list[str] = field(default_factory=list)
    missing: list[MarkdownEdit] = field(default_factory=list)


def plan_import(tree: WantedTree, state: StoredState, *, delete: bool) -> ImportPlan:
    """The plan that makes a state what a folder wants.

    Args:
        tree: What the folder wants.
        state: What is stored; a folder that is to be deleted from must have all of it.
        delete: Whether what the folder does not have is deleted.
    """
    plan = ImportPlan()
    for archive in tree.archives.values():
        _plan_archive(plan, state, archive)
    places = _Places(state)
    for home in [*tree.archives, *tree.nodes]:
        _plan_children(plan, tree, state, places, home)
    for node in tree.nodes.values():
        _plan_relations(plan, state, places, node)
    _plan_deletions(plan, tree, state, places, delete=delete)
    return plan


def _plan_archive(plan: ImportPlan, state: StoredState, wanted: WantedArchive) -> None:
    stored = state.structure.archives.get(wanted.id)
    if stored is None:
        plan.new_archives.append(wanted)
        plan.edits.append(MarkdownEdit("create", wanted.id, wanted.name, wanted.file, is_archive=True))
        return
    values = {"name": wanted.name, "model_id": wanted.model_id, "description": wanted.description}
    new = {key: value for key, value in values.items() if value is not None and value != getattr(stored, key)}
    if new:
        plan.archives.append((wanted, new))
        plan.edits.append(
            MarkdownEdit("update", wanted.id, wanted.name, wanted.file, tuple(sorted(new)), is_archive=True)
        )


class _Places:
    """What the changes so far leave: the order below each archive and node, and the relations of new nodes."""

    def __init__(self, state: StoredState) -> None:
        self.related: dict[str, tuple[Relation, ...]] = {}
        self._children = {home: list(ids) for home, ids in state.children.items()}
        self._homes = {node_id: home for home, ids in state.children.items() for node_id in ids}

    def relate_new(self, node: WantedNode) -> tuple[Relation, ...]:
        """The relations that a new node can have at once: those to nodes that exist when it is created."""
        possible = tuple(each for each in node.relations or () if each.target_id in self._homes)
        self.related[node.id] = possible
        return possible

    def with_others(self, gone: set[str]) -> set[str]:
        """The nodes among ``gone`` that have others below them."""
        kept: set[str] = set()
        for node_id, home in self._homes.items():
            if node_id not in gone:
                above = home
                while above in gone and above not in kept:
                    kept.add(above)
                    above = self._homes[above]
        return kept

    def put(self, node_id: str, home: str, after: str | None, *, last: bool) -> int | None:
        """Puts a node behind a sibling (``None``: before all), or as the last one; returns its index, or ``None``."""
        before = self._homes.get(node_id)
        if before is not None:
            self._children[before].remove(node_id)
        self._homes[node_id] = home
        siblings = self._children.setdefault(home, [])
        if last or not siblings or (after is not None and siblings[-1] == after):
            siblings.append(node_id)
            return None
        index = siblings.index(after) + 1 if after is not None else 0
        siblings.insert(index, node_id)
        return index


def _plan_children(plan: ImportPlan, tree: WantedTree, state: StoredState, places: _Places, home: str) -> None:
    wanted = tree.children.get(home, ())
    if not wanted:
        return
    staying = _staying(wanted, state.children.get(home, ()))
    after: str | None = None
    parent = home if home in tree.nodes else None
    archive = None if parent else home
    for node_id in wanted:
        node, stored = tree.nodes[node_id], state.nodes.get(node_id)
        if stored is None:
            relations = places.relate_new(node)
            index = places.put(node_id, home, after, last=not tree.is_export)
            plan.changes.append(PlannedChange(_creation(node, parent, archive, index, relations), node.file))
            plan.edits.append(MarkdownEdit("create", node_id, node.title or "", node.file))
        else:
            if node_id not in staying and node_id not in tree.fixed:
                index = places.put(node_id, home, after, last=not tree.is_export)
                moved = changes.move(node_id, parent=parent, to_root=parent is None, archive=archive, position=index)
                plan.changes.append(PlannedChange(moved, node.file))
                plan.edits.append(MarkdownEdit("move", node_id, node.title or stored.node.title, node.file))
            _plan_update(plan, node, stored)
        after = node_id


def _staying(wanted: Sequence[str], stored: Sequence[str]) -> set[str]:
    """The largest set of siblings that have the same order in both; the others are moved between them."""
    index = {node_id: number for number, node_id in enumerate(stored)}
    common = [node_id for node_id in wanted if node_id in index]
    ends: list[int] = []
    last: list[int] = []  # the places in ``common`` of the ends
    before: list[int] = []
    for place, node_id in enumerate(common):
        length = bisect_left(ends, index[node_id])
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [index[node_id]]
        last[length : length + 1] = [place]
    staying = set()
    place = last[-1] if last else -1
    while place >= 0:
        staying.add(common[place])
        place = before[place]
    return staying


def _creation(
    node: WantedNode, parent: str | None, archive: str | None, index: int | None, relations: Iterable[Relation]
) -> Change:
    return changes.create(
        node.title or "",
        node.content or "",
        parent=parent,
        archive=archive,
        node_type=node.type or "",
        brief=node.brief or None,
        summary=node.summary or None,
        tags=node.tags or (),
        attributes=node.attributes,
        relations=relations,
        source=node.source,
        position=index,
        node_id=node.id,
    )


def _plan_update(plan: ImportPlan, node: WantedNode, stored: StoredNode) -> None:
    new = _new_values(node, stored)
    if new:
        change = changes.update(node.id, mode=UpdateMode.REPLACE, **new)  # type: ignore[arg-type] # its own arguments
        plan.changes.append(PlannedChange(change, node.file))
        fields = tuple(sorted("type" if key == "node_type" else key for key in new))
        plan.edits.append(MarkdownEdit("update", node.id, node.title or stored.node.title, node.file, fields))


def _new_values(node: WantedNode, stored: StoredNode) -> dict[str, object]:
    """The arguments of the update of a node; empty if its file says what it is."""
    now = stored.node
    brief, summary = given_texts(now)
    new: dict[str, object] = {}
    if node.title is not None and node.title != now.title:
        new["title"] = node.title
    if node.type is not None and node.type != now.type:
        new["node_type"] = node.type
    if node.content is not None and not stored.has_content(node.content, unix=node.unix):
        new["content"] = node.content
    if node.tags is not None and node.tags != now.tags:
        new["tags"] = node.tags
    if node.attributes is not None and dict(node.attributes) != own_attributes(now.attributes):
        new["attributes"] = dict(node.attributes)
    if node.brief is not None and node.brief != (brief or ""):
        new["brief"] = node.brief
    if node.shown_summary:
        if node.shown_summary != now.summary:
            new["summary"] = node.shown_summary
    elif node.summary is not None and node.summary != (summary or ""):
        new["summary"] = node.summary
    return new


def _descriptions(relations: Iterable[Relation]) -> dict[tuple[RelationName, str], str]:
    return {(each.type, each.target_id): each.description for each in relations}


def _plan_relations(plan: ImportPlan, state: StoredState, places: _Places, node: WantedNode) -> None:
    if node.relations is None:
        return
    stored = state.nodes.get(node.id)
    before = stored.node.relations if stored is not None else places.related[node.id]
    now = {(each.type, each.target_id): each.description for each in before}
    wanted = {(each.type, each.target_id): each.description for each in node.relations}
    old = (
        now
        if node.old_relations is None
        else {(each.type, each.target_id): each.description for each in node.old_relations}
    )
    steps: list[Change] = [
        changes.unrelate(node.id, kind, target) for kind, target in now if (kind, target) in old.keys() - wanted.keys()
    ]
    for key, why in wanted.items():
        is_changed = key in old and why not in {old[key], now.get(key)}  # else the description is somebody else's
        if key not in now or is_changed:
            steps.append(changes.relate(node.id, *key, description=why))
    plan.changes += [PlannedChange(step, node.file) for step in steps]
    if steps and stored is not None:
        plan.edits.append(MarkdownEdit("update", node.id, node.title or stored.node.title, node.file, ("relations",)))


def _plan_deletions(plan: ImportPlan, tree: WantedTree, state: StoredState, places: _Places, *, delete: bool) -> None:
    gone_archives = [each for each in state.structure.archives.values() if each.id not in tree.archives]
    gone = {
        node_id
        for node_id, stored in state.nodes.items()
        if node_id not in tree.nodes and (tree.is_export or FILE in stored.node.attributes)
    }
    gone -= places.with_others(gone)
    plan.missing += [MarkdownEdit("delete", each.id, each.name, is_archive=True) for each in gone_archives]
    plan.missing += [
        MarkdownEdit("delete", node_id, state.nodes[node_id].node.title) for node_id in state.nodes if node_id in gone
    ]
    if not delete:
        return
    plan.edits += plan.missing
    plan.deleted_archives += [each.id for each in gone_archives]
    with_archive = set(plan.deleted_archives)
    for node_id in _tops(state, gone):
        if state.structure.nodes[node_id].archive_id not in with_archive:
            plan.changes.append(PlannedChange(changes.delete(node_id, recursive=True), ""))
    plan.missing = []


def _tops(state: StoredState, gone: set[str]) -> Iterator[str]:
    """The nodes among ``gone`` whose parent stays."""
    ordered: Iterable[str] = state.nodes
    return (node_id for node_id in ordered if node_id in gone and state.home(node_id) not in gone)
