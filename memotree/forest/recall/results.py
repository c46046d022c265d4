"""Builds the results of an answer: the message of each node, its citation, and its trace."""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Final, Self, TypeAlias

from memotree_storage.cache import BoundedCache, Misremembered
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.attribute_names import DOCUMENT_ID, SECTION
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.provenance import shown_summary
from memotree_storage.model.titles import own_title, titled
from memotree_storage.model.tokens import count_tokens
from memotree_storage.model.validity import period
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.citations import cite
from memotree.forest.recall.former import FormerText, KnownFormer, change_of, former_texts
from memotree.forest.recall.question import Question
from memotree.forest.recall.state_view import StateView
from memotree.forest.recall.superseded import Superseded
from memotree.request.messages import DETAIL, SUMMARY, TITLE, node_message
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

_NAMED: Final = 5
_DAY_SECONDS: Final = 86_400
_AT_ONCE: Final = 500
_HEADS: Final = frozenset({SECTION, DOCUMENT_ID})
"""The attributes of summary nodes whose titles are real headings: sections, and documents in a joined archive."""

_SIGNALS: Final = {
    "words": "its words ({share:.2f})",
    "meaning": "its meaning ({share:.2f})",
    "route": "the text around and above it ({share:.2f})",
    "rerank": "the reranking ({share:.2f})",
}


Seen: TypeAlias = BoundedCache[tuple[str, int, str, str], Version]
"""Versions by workspace, generation of its rows, commit and node."""

_MOST_COMPARED: Final = 1000
"""The latest versions that are compared with their rows."""


async def misremembered(seen: Seen, store: Store, conn: Connection, workspace_id: str) -> list[Misremembered]:
    """Compares the latest of the cached versions of a workspace with the rows."""
    now = (workspace_id, store.generations[workspace_id])
    latest = [(key, version) for key, version in seen.items() if key[:2] == now][-_MOST_COMPARED:]
    by_commit: dict[str, dict[str, Version]] = {}
    for (*_, commit_id, node_id), version in latest:
        by_commit.setdefault(commit_id, {})[node_id] = version
    found = []
    for commit_id, versions in by_commit.items():
        rows = await tree.versions(Snapshot(conn, State(workspace_id, commit_id)), versions)
        wrong = [node_id for node_id, version in versions.items() if rows.get(node_id) != version]
        found += [Misremembered("node", commit_id, node_id) for node_id in wrong]
    return found


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A node that the answer shall include.

    Attributes:
        node_id: The node.
        score: From 0 to 1.
        shares: The share of each signal in the score.
        path: The ids of the node's ancestors, root first.
        stands_for: The ids of the hits that it is the lowest common ancestor of; empty if it is a hit itself.
        child_count: The number of its children, or ``None`` if it must be read.
    """

    node_id: str
    score: float
    shares: tuple[tuple[str, float], ...]
    path: tuple[str, ...]
    stands_for: tuple[str, ...] = ()
    child_count: int | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """When a node holds: from ``begin`` (inclusive) to ``end`` (exclusive), in seconds since 1970, maybe infinite.

    ``by`` are the ids of the nodes that supersede it.
    """

    begin: float
    end: float
    by: tuple[str, ...] = ()

    @classmethod
    def of(cls, attributes: Mapping[str, str], ended: Superseded | None) -> Self:
        """Returns the period of a node with these attributes that was superseded, or was not."""
        begin, end = period(attributes)
        return cls(begin, end) if ended is None else cls(begin, min(end, ended.at), ended.by)

    @property
    def remark(self) -> str:
        """The period in words; empty if the node always holds."""
        parts = [f"from {_day(self.begin)}"] if isfinite(self.begin) else []
        parts += [f"until {_day(self.end)}"] if isfinite(self.end) else []
        said = [" ".join(["valid", *parts])] if parts else []
        return ", ".join([*said, *([f"superseded by {', '.join(self.by)}"] if self.by else [])])

    def write(self, message: pb.RecalledNode) -> None:
        """Writes the period into a message."""
        if isfinite(self.begin):
            message.valid_from.FromMilliseconds(round(self.begin * 1000))
        if isfinite(self.end):
            message.valid_to.FromMilliseconds(round(self.end * 1000))
        message.superseded_by.extend(self.by)


@dataclass(frozen=True, slots=True)
class NodeResult:
    """A node with everything that an answer says about it.

    Attributes:
        version: The node's version.
        text: Its content, or its summary if it has no content of its own.
        title: Its title, if that says more than the text does.
        tokens: The number of tokens of title and text.
        headings: The headings above it, outermost first.
        node: Its message.
        score: From 0 to 1.
        citation: Its citation.
        trace: Why it was found; ``None`` unless requested.
        period: When it holds.
        former: What was said before instead of it, the latest first.
        copies: The ids of other notes that say exactly the same, and are not part of the answer.
    """

    version: Version
    text: str
    title: str
    tokens: int
    headings: tuple[str, ...]
    node: types_pb2.Node
    score: float
    citation: pb.Citation
    trace: pb.RecallTrace | None
    period: Period
    former: tuple[FormerText, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """When it holds, when it was changed and where else it stands, in words; empty if there is nothing to say."""
        changes = [f"changed {change_of(text.message())}" for text in self.former if not text.node_id][:1]
        more = len(self.copies) - _NAMED
        listed = ", ".join(self.copies[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return ", ".join(part for part in (self.period.remark, *changes, f"also in {listed}" if listed else "") if part)

    def message(self, tokens: int, text: str | None = None) -> pb.RecalledNode:
        """Returns the message of the recalled node; ``text``, if given, is an excerpt that replaces its content."""
        node = self.node
        if text is not None and text != node.content:
            node = types_pb2.Node()
            node.CopyFrom(self.node)
            node.content, node.content_cut = text, True
        message = pb.RecalledNode(node=node, score=self.score, tokens=tokens, citation=self.citation, trace=self.trace)
        self.period.write(message)
        message.former.extend(text.message() for text in self.former)
        return message


class ResultBuilder:
    """Reads and builds the results for the nodes of one answer, all from one state.

    Args:
        conn: A connection; for a session, one inside a snapshot.
        store: An open store.
        view: The state.
        asked: The question, and whether to include why each node was found.
        seen: A cache of versions by commit; these never change.
        former: A cache of what versions replaced.
    """

    def __init__(
        self, conn: Connection, store: Store, view: StateView, asked: Question, seen: Seen, former: KnownFormer
    ) -> None:
        self._seen = seen
        self._former = former
        self._conn = conn
        self._store = store
        self._view = view
        self._asked = asked

    async def parts(self, parts: Sequence[ResultPart]) -> dict[str, NodeResult]:
        """Returns the results by node id; nodes that are not alive at the state are left out."""
        state, ids = self._view.state, [part.node_id for part in parts]
        known = await self._known({*ids, *(step for part in parts for step in (*part.path, *part.stands_for))})
        counts = await tree.child_counts(
            Snapshot(self._conn, state), [part.node_id for part in parts if part.child_count is None]
        )
        counts |= {part.node_id: part.child_count for part in parts if part.child_count is not None}
        alive = [known[key] for key in ids if key in known]
        nodes = await read_nodes(
            Snapshot(self._conn, state), self._store.entries, [one for one in alive if has_own_content(one)]
        )
        texts = {key: node.content for key, node in nodes.items()}
        scores = {part.node_id: part.score for part in parts}
        best = sorted(nodes.values(), key=lambda node: (-scores[node.id], node.id))
        former = await former_texts(
            *(self._conn, self._store, self._view),
            [(known[node.id], node) for node in best],
            self._asked.text,
            self._former,
        )
        names = {key: archive.name for key, archive in self._view.archives.items()}
        citations = await cite(Snapshot(self._conn, state), self._store, alive, texts=texts, names=names)

        def build() -> dict[str, NodeResult]:
            return {
                part.node_id: replace(
                    self._result(part, known, counts.get(part.node_id, 0), texts, citations[part.node_id]),
                    former=former.get(part.node_id, ()),
                )
                for part in parts
                if part.node_id in citations
            }

        return await asyncio.to_thread(build)

    async def _known(self, ids: AbstractSet[str]) -> dict[str, Version]:
        """Returns the versions of nodes, read in batches so that other calls can run in between."""
        state, found = self._view.state, dict[str, Version]()
        if state.session_id is None:
            keys = {key: (state.workspace_id, self._view.generation, state.commit_id, key) for key in ids}
            found = {key: known for key, place in keys.items() if (known := self._seen.get(place)) is not None}
        wanted = sorted(ids - found.keys())
        for start in range(0, len(wanted), _AT_ONCE):
            read = await tree.versions(Snapshot(self._conn, state), wanted[start : start + _AT_ONCE])
            found |= read
            if state.session_id is None:
                for key, version in read.items():
                    self._seen.put((state.workspace_id, self._view.generation, state.commit_id, key), version)
        return found

    def _result(
        self,
        part: ResultPart,
        known: Mapping[str, Version],
        children: int,
        texts: Mapping[str, str],
        citation: pb.Citation,
    ) -> NodeResult:
        version = known[part.node_id]
        is_leaf = has_own_content(version)
        summary = shown_summary(version.summary, version.attributes)
        text = texts[part.node_id] if is_leaf else summary or version.brief or version.title
        title = own_title(version.title, version.type, text) if is_leaf else ""
        above = [known[step] for step in part.path if step in known]
        node = node_message(
            version,
            DETAIL if is_leaf else SUMMARY,
            content=text if is_leaf else "",
            path=part.path,
            child_count=children,
        )
        return NodeResult(
            version=version,
            text=text,
            title=title,
            tokens=count_tokens(titled(title, text)) if title or not is_leaf else version.tokens,
            headings=headings_of(version, above),
            node=node,
            score=part.score,
            citation=citation,
            trace=_trace(part, above, known) if self._asked.has_trace else None,
            period=Period.of(version.attributes, self._view.superseded.get(version.entry_id)),
        )


def _day(moment: float) -> str:
    when = datetime.fromtimestamp(moment, UTC)
    return when.date().isoformat() if moment % _DAY_SECONDS == 0 else f"{when.replace(tzinfo=None).isoformat()}Z"


def has_own_content(version: Version) -> bool:
    """Whether a node has content of its own, and is not a summary of its children."""
    return version.tokens > 0 and version.type != SUMMARY_TYPE


def headings_of(version: Version, above: Sequence[Version]) -> tuple[str, ...]:
    """Returns the titles above a node that come from its document or from a person.

    Of the summary nodes of a document only sections count, and the document's node in a joined archive. The others were
    made by merging similar neighbours, and their titles are no headings.
    """
    of_document = version.source is not None
    return tuple(
        ancestor.title
        for ancestor in above
        if ancestor.type != SUMMARY_TYPE or _HEADS & ancestor.attributes.keys() or not of_document
    )


def _trace(part: ResultPart, above: Sequence[Version], known: Mapping[str, Version]) -> pb.RecallTrace:
    return pb.RecallTrace(
        signals=[pb.RecallSignal(name=name, score=share) for name, share in part.shares],
        route=[
            node_message(ancestor, TITLE, path=[higher.entry_id for higher in above[:depth]])
            for depth, ancestor in enumerate(above)
        ],
        reason=_reason(part, known),
    )


def _reason(part: ResultPart, known: Mapping[str, Version]) -> str:
    signals = [_SIGNALS.get(name, name + " ({share:.2f})").format(share=share) for name, share in part.shares]
    why = (
        " and ".join([", ".join(signals[:-1]), signals[-1]] if len(signals) > 1 else signals)
        or "being the nearest node"
    )
    if part.stands_for:
        titles = [repr(known[key].title) for key in part.stands_for if key in known]
        more = len(titles) - _NAMED
        listed = ", ".join(titles[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"The lowest common ancestor of {listed}; the best of them was found by {why}."
    return f"Found by {why}."
