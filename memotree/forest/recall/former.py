"""What recalled nodes said before: their earlier versions with another text, and the nodes that they supersede."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Final, TypeAlias

from memotree_storage.cache import BoundedCache
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.times import read_time
from memotree_storage.model.titles import own_title, titled
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import Revision
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.superseding import Superseding
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.recall.excerpts import best_stretch
from memotree.forest.recall.state_view import StateView
from memotree.v1 import forest_service_pb2 as pb

_MOST_NODES: Final = 20
"""For this many nodes of an answer, the best ones, earlier texts are looked for."""

_MOST_VERSIONS: Final = 8
"""The number of latest versions of a node that are looked at."""

_LONGEST: Final = 5_000
"""An earlier text of more tokens is a document, and not looked at."""

_MOST: Final = 3
_CACHE_BYTES: Final = 16 << 20
_OVERHEAD: Final = 200
_MOST_TOKENS: Final = 60
"""How much of an earlier text is shown."""


@dataclass(frozen=True, slots=True)
class FormerText:
    """A text that was said before another one replaced it.

    Attributes:
        text: Title and content; the best excerpt of a longer text.
        since: From when on it was said; ``None`` if that is not known.
        until: Until when; ``None`` if the change is not committed.
        changed_by: The author of the change; empty if that is not known.
        node_id: The superseded node that said it; empty for an earlier version of the same node.
    """

    text: str
    since: datetime | None
    until: datetime | None
    changed_by: str = ""
    node_id: str = ""

    def was_said_at(self, moment: float) -> bool:
        """Whether it was said just before a moment, in seconds since 1970."""
        since = -inf if self.since is None else self.since.timestamp()
        return since < moment <= _end(self)

    def message(self) -> pb.FormerText:
        """Return its message."""
        message = pb.FormerText(text=self.text, changed_by=self.changed_by, node_id=self.node_id)
        if self.since is not None:
            message.since.FromDatetime(self.since)
        if self.until is not None:
            message.until.FromDatetime(self.until)
        return message


KnownFormer: TypeAlias = BoundedCache[tuple[str, int, int | None, int | None, str], tuple[FormerText, ...]]
"""What versions replaced, by workspace, generation of its rows, line, place on the line and blob of the version."""


def known_former() -> KnownFormer:
    """Return an empty cache."""
    return BoundedCache(_CACHE_BYTES, lambda texts: _OVERHEAD + sum(len(text.text) for text in texts))


def change_of(text: pb.FormerText) -> str:
    """Return when and by whom a former text was changed, in words."""
    when = text.until.ToDatetime(UTC).date().isoformat() if text.HasField("until") else "now"
    return f"{when} by {text.changed_by}" if text.changed_by else when


def lines_of(texts: Iterable[pb.FormerText]) -> str:
    """Return former texts as lines below the text that is said now, one for each."""
    return "\n".join(f"(until {change_of(text)}) {' '.join(text.text.split())}" for text in texts)


async def former_texts(
    conn: Connection,
    store: Store,
    view: StateView,
    nodes: Sequence[tuple[Version, Node]],
    question: str,
    known: KnownFormer,
) -> dict[str, tuple[FormerText, ...]]:
    """Return what some nodes of a state said before, the latest first; nodes without an earlier text are left out.

    Args:
        conn: A connection; for a session, one inside a snapshot.
        store: An open store.
        view: The state.
        nodes: The nodes with their contents; only the first `_MOST_NODES` are looked at.
        question: Chooses the excerpt of a long text.
        known: What committed versions replaced; it is added to.
    """
    chosen = nodes[:_MOST_NODES]
    keys = {
        version.entry_id: (view.state.workspace_id, view.generation, version.line_id, version.from_seq, version.blob)
        for version, _ in chosen
    }
    found = {key: known.get(place) for key, place in keys.items()}
    missing = {version.entry_id: node for version, node in chosen if found[version.entry_id] is None}
    snapshot = Snapshot(conn, view.state)
    if missing:
        fresh = await _read(snapshot, store, missing, is_session=bool(view.digest))
        found |= fresh
        for version, _ in chosen:
            if version.entry_id in fresh and version.commit_id is not None:
                known.put(keys[version.entry_id], fresh[version.entry_id])
    by_node = {key: list(texts or ()) for key, texts in found.items()}
    for one, node in await _superseded(snapshot, store, view, by_node):
        until = read_time(one.valid_from or "") or one.since
        by_node[one.entry_id].append(FormerText(_shown(node), None, until, node_id=node.id))
    changed = {key: texts for key, texts in by_node.items() if texts}
    return await asyncio.to_thread(_excerpts, changed, question) if changed else {}


def _excerpts(texts: Mapping[str, Iterable[FormerText]], question: str) -> dict[str, tuple[FormerText, ...]]:
    """Return the latest of some former texts by node, each with what is shown of it."""
    return {
        key: tuple(
            replace(each, text=best_stretch(each.text, question, _MOST_TOKENS).text)
            for each in sorted(found, key=_end, reverse=True)[:_MOST]
        )
        for key, found in texts.items()
    }


async def _read(
    snapshot: Snapshot, store: Store, nodes: Mapping[str, Node], *, is_session: bool
) -> dict[str, tuple[FormerText, ...]]:
    """Return what nodes said before, by their versions; a very long text is not looked at."""
    revisions = await history.revisions_of_each(snapshot, nodes, limit=_MOST_VERSIONS)
    # A node with a single version was never changed, unless a session changes it now.
    earlier = [
        one.version
        for found in revisions.values()
        for one in (found if len(found) > 1 or is_session else ())
        if not one.version.dead and one.version.tokens <= _LONGEST
    ]
    if not earlier:
        return dict.fromkeys(nodes, ())
    entries = await store.entries.load(snapshot.state.workspace_id, earlier)
    return await asyncio.to_thread(
        lambda: {
            key: tuple(_earlier(_shown(node), revisions.get(key, ()), entries)[:_MOST]) for key, node in nodes.items()
        }
    )


def _earlier(now: str, revisions: Sequence[Revision], entries: Mapping[str, Entry]) -> list[FormerText]:
    """Return the texts of versions, newest first, that differ from the text that came after them."""
    found: list[FormerText] = []
    said, changed = plain(now), None  # the commit that began to say it; None: it is not committed
    for revision in revisions:
        node = None if revision.version.dead else entries.get(revision.version.blob)
        text = _shown(node) if isinstance(node, Node) else ""
        if text and plain(text) != said:
            if found:
                found[-1] = replace(found[-1], since=changed.committed_at if changed else None)
            until, author = (changed.committed_at, changed.author_name) if changed else (None, "")
            found.append(FormerText(text, None, until, author))
            said = plain(text)
        changed = revision.commit
    if found and changed is not None and len(revisions) < _MOST_VERSIONS:
        found[-1] = replace(found[-1], since=changed.committed_at)
    return found


async def _superseded(
    snapshot: Snapshot, store: Store, view: StateView, ids: Iterable[str]
) -> list[tuple[Superseding, Node]]:
    """Return the alive nodes that some nodes supersede, each with the relation."""
    relations = [one for key in ids for one in view.supersedes.get(key, ())]
    if not relations:
        return []
    targets = await tree.versions(snapshot, {one.target_id for one in relations})
    nodes = await read_nodes(snapshot, store.entries, targets.values())
    return [(one, nodes[one.target_id]) for one in relations if one.target_id in nodes]


def _shown(node: Node) -> str:
    return titled(own_title(node.title, node.type, node.content), node.content)


def plain(text: str) -> str:
    """Return a text without what is no other statement: case and white space."""
    return " ".join(text.split()).casefold()


def _end(text: FormerText) -> float:
    return inf if text.until is None else text.until.timestamp()
