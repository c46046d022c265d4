"""SearchNodes: search types, scopes, previews and the reason for each hit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.concurrency.threads import LONG_TEXT, in_thread_if_long
from memotree_storage.errors import InvalidInputError
from memotree_storage.index.preview import Preview, PreviewMaker
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.index.terms import QueryTerm, query_terms
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.node import Node
from memotree_storage.model.provenance import shown_summary
from memotree_storage.model.tokens import in_pieces
from memotree_storage.postgres import search_reads, tree, views
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.relations import RelationStep, related_message, walk
from memotree.canvas.view_operations import view_key
from memotree.canvas.view_rendering import shown
from memotree.models.builtin import has_known_vectors
from memotree.models.confidence import NODES, Confidence
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.lookup import WorkspaceRevision
from memotree.request.messages import SUMMARY, confidence_message, node_message, relation_name
from memotree.v1 import node_service_pb2 as pb

MAX_QUERY_CHARS: Final = 8192
_DEFAULT_RESULTS: Final = 10
_MOST_RESULTS: Final = 1000
_DEFAULT_PREVIEW: Final = 200
_MOST_PREVIEW: Final = 2000
_DEFAULT_DEPTH: Final = 2
_MOST_DEPTH: Final = 5
_STARTS: Final = 5
_CLOSE: Final = 0.3
"""The cosine from which a summary counts as close to the query.

Measured with the built-in model on the topics that come with Python: a query and the text that answers it have a
median of 0.62, and nine of ten have more than 0.31. The best text for an unrelated query, or for one without any word,
has a median of 0.13 and never more than 0.28. A query and any text have a median of 0.11. The model compares Chinese
texts by their characters, so they are closer to each other whatever they say (0.28 to 0.54 for unrelated ones, 0.59 to
0.69 for answers); the claim is weaker there.
"""

_HITS_AT_ONCE: Final = 100
"""Previews of more hits than these are made in a thread, so that other calls are not blocked; so many in one piece."""

_TOKENS_AT_ONCE: Final = 1 << 16
"""The content of a longer node is a piece of its own."""

_SHORT_TOKENS: Final = 2_000
"""Of a node with no more tokens, the content is always looked into for a preview."""

_MOST_LONG_TOKENS: Final = 3 << 20
"""How many tokens the contents of longer nodes may have together, in one search.

So the previews of a search go through 20 million characters at most, whatever it finds: 12 million of long nodes, and
8 million of a thousand short ones, which take two to four seconds of the processor. That is enough for ten nodes, the
default, of the greatest size. Of long nodes beyond that, the summary is looked into.
"""


@dataclass(frozen=True, slots=True)
class _Hit:
    """A found node, and the path of relations that led to it, if any."""

    found: FoundNode
    way: tuple[RelationStep, ...] = ()

    @property
    def version(self) -> Version:
        """The version of the node that was found."""
        return self.found.version

    @property
    def tokens(self) -> int:
        """The number of tokens of its content."""
        return self.version.tokens


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the hits of a search are: the ancestors and the number of children of each, and the ends of relations."""

    ways: Mapping[str, Sequence[str]]
    counts: Mapping[str, int]
    ends: Mapping[str, Version]


def check_query(query: str) -> None:
    """Check that a query can be searched for.

    Raises:
        InvalidInputError: It is too long or has a NUL character.
    """
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidInputError.at(
            "query", f"has {len(query)} characters; give at most {MAX_QUERY_CHARS}, the words that matter most."
        )
    if "\x00" in query:
        raise InvalidInputError.at("query", "has a NUL character; leave it out.")


class NodeSearch:
    """One search. It holds no connection while it queries the index, which may need a connection itself."""

    def __init__(self, store: Store, request: pb.SearchNodesRequest, limits: ServiceLimits) -> None:
        self._store = store
        self._index = store.current  # of one model to the end, although another index may answer by then
        self._limits = limits
        self._warnings: list[str] = []
        self._request = request
        self._kind = request.search_type or pb.SEARCH_TYPE_FULL_TEXT
        self._scope = request.scope or pb.SEARCH_SCOPE_ALL
        self._limit = min(request.max_results or _DEFAULT_RESULTS, _MOST_RESULTS)
        self._depth = request.max_depth or _DEFAULT_DEPTH
        self._types = [relation_name(kind, "relation_types") for kind in request.relation_types]

    async def run(self) -> pb.SearchNodesResponse:
        """Find the nodes, with the reason why each was found."""
        self._check()
        with self._index.in_use():
            return await self._run()

    async def _run(self) -> pb.SearchNodesResponse:
        request = self._request
        place = lookup.known_revision(self._store, request.workspace, request.revision)
        node_ids: set[str] | None = None
        archives: list[str] = []
        starts: dict[str, float] = {}
        if place is None or request.archives or self._scope != pb.SEARCH_SCOPE_ALL or request.scope_node_id:
            async with self._store.database.connection() as conn:
                place = await lookup.read_revision(self._store, conn, request.workspace, request.revision)
                node_ids = await self._scope_ids(conn, place)
                archives = await lookup.archives(Snapshot(conn, place.state), request.archives)
                starts = await self._start(Snapshot(conn, place.state))
        state = place.state
        if self._kind == pb.SEARCH_TYPE_RELATION and not starts:
            # Scope and filters apply to the results only; the relations may start anywhere.
            found = await self._index.search.find(state, SearchQuery(request.query, _STARTS))
            starts = {hit.version.entry_id: hit.score for hit in found}
        hits: list[_Hit] = []
        if self._kind != pb.SEARCH_TYPE_RELATION:
            hits = [_Hit(found) for found in await self._found(state, node_ids, archives)]
        async with self._store.database.connection() as conn:
            if self._kind == pb.SEARCH_TYPE_RELATION:
                hits = await self._along_relations(Snapshot(conn, state), starts, node_ids, archives)
            places = await _places(Snapshot(conn, state), hits)
        messages = await self._messages(state, hits, places)
        self._warn(hits)
        response = pb.SearchNodesResponse(hits=messages, commit_id=state.commit_id)
        if self._kind != pb.SEARCH_TYPE_RELATION:
            response.likelihood = self._likelihood(hits)
            confidence = Confidence.of(response.likelihood)
            response.confidence = confidence_message(confidence.name)
            if confidence is Confidence.NONE and hits:
                self._warnings.append(
                    "Probably no hit is about the query; these are only the nearest. Ask in other words."
                )
        response.warnings.extend(self._warnings)
        return response

    def _likelihood(self, hits: Sequence[_Hit]) -> float:
        """Returns how likely any hit is about the query."""
        if not hits:
            return 0.0
        return NODES.likelihood(
            self._request.query,
            None if self._kind == pb.SEARCH_TYPE_SEMANTIC else max(hit.found.words for hit in hits),
            None if self._kind == pb.SEARCH_TYPE_FULL_TEXT else max(hit.found.meaning for hit in hits),
            has_known_vectors=has_known_vectors(self._index.embedder),
        )

    def _check(self) -> None:
        request = self._request
        check_query(request.query)
        needs_query = self._kind != pb.SEARCH_TYPE_RELATION or not request.scope_node_id
        if needs_query and not request.query.strip():
            raise InvalidInputError.at("query", "is needed.")
        for name, value, most in (
            ("max_results", request.max_results, None),
            ("preview_length", request.preview_length, _MOST_PREVIEW),
            ("max_depth", request.max_depth, _MOST_DEPTH),
        ):
            if value < 0 or (most is not None and value > most):
                raise InvalidInputError.at(name, f"must be 0 (the default) to {most or _MOST_RESULTS}.")
        most_tags = self._limits.node.tags
        if len(request.tags) > most_tags:
            raise InvalidInputError.at(
                "tags", f"has {len(request.tags)}, and no node has over {most_tags}; give fewer."
            )
        if self._kind not in pb.SearchType.values():
            raise InvalidInputError.at("search_type", f"{self._kind} is not a search type.")
        if self._scope not in pb.SearchScope.values():
            raise InvalidInputError.at("scope", f"{self._scope} is not a scope.")
        if self._scope in (pb.SEARCH_SCOPE_SUBTREE, pb.SEARCH_SCOPE_RELATED) and not request.scope_node_id:
            raise InvalidInputError.at("scope_node_id", "is needed for this scope.")
        if self._scope == pb.SEARCH_SCOPE_CURRENT_VIEW and not request.view_name:
            raise InvalidInputError.at("view_name", "is needed for the scope CURRENT_VIEW.")

    async def _scope_ids(self, conn: Connection, place: WorkspaceRevision) -> set[str] | None:
        """The ids of the nodes to search; ``None`` for all nodes."""
        if self._scope == pb.SEARCH_SCOPE_CURRENT_VIEW:
            key = view_key(place, self._request.view_name)
            if not await views.levels(conn, key):
                self._warnings.append(
                    f"{place.resolved.kind} {place.scope} has no view {key.name!r} yet, so the roots were searched, "
                    "which a new view shows. List the views with ListViews."
                )
            what = await shown(Snapshot(conn, place.state), key)
            return {node.version.entry_id for node in what.nodes}
        if self._scope == pb.SEARCH_SCOPE_SUBTREE:
            top = await self._scope_node(Snapshot(conn, place.state))
            return {item.entry_id for item in await tree.subtree(Snapshot(conn, place.state), [top])}
        if self._scope == pb.SEARCH_SCOPE_RELATED:
            start = await self._scope_node(Snapshot(conn, place.state))
            return set(await walk(Snapshot(conn, place.state), [start], self._types, self._depth)) - {start}
        return None

    async def _scope_node(self, snapshot: Snapshot) -> str:
        return (await lookup.node(snapshot, self._request.scope_node_id, "scope_node_id")).entry_id

    async def _start(self, snapshot: Snapshot) -> dict[str, float]:
        """The node that relations are followed from; empty if none is given, which means from the best matches."""
        if self._kind != pb.SEARCH_TYPE_RELATION or not self._request.scope_node_id:
            return {}
        return {await self._scope_node(snapshot): 1.0}

    async def _found(self, state: State, node_ids: set[str] | None, archives: Sequence[str]) -> list[FoundNode]:
        query = SearchQuery(
            text=self._request.query,
            limit=self._limit,
            words=self._kind != pb.SEARCH_TYPE_SEMANTIC,
            meaning=self._kind in (pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID),
            types=list(self._request.node_types),
            tags=list(self._request.tags),
            archive_ids=archives,
            node_ids=node_ids,
        )
        return await self._index.search.find(state, query)

    async def _along_relations(
        self,
        snapshot: Snapshot,
        starts: Mapping[str, float],
        node_ids: set[str] | None,
        archives: Sequence[str],
    ) -> list[_Hit]:
        """The nodes that relations reach from the starts; nodes that are nearer or have a better start come first."""
        ways = await walk(snapshot, list(starts), self._types, self._depth)
        alive = await tree.versions(snapshot, list(ways))
        hits = [
            _Hit(FoundNode(alive[entry_id], starts[_origin(entry_id, way)] / (1 + len(way))), tuple(way))
            for entry_id, way in ways.items()
            if way and entry_id in alive and self._wanted(alive[entry_id], node_ids, archives)
        ]
        return sorted(hits, key=lambda hit: (-hit.found.score, hit.version.entry_id))[: self._limit]

    def _wanted(self, version: Version, node_ids: set[str] | None, archives: Sequence[str]) -> bool:
        request = self._request
        return (
            not version.is_archive
            and (node_ids is None or version.entry_id in node_ids)
            and (not archives or version.archive_id in archives)
            and (not request.node_types or version.type in request.node_types)
            and set(request.tags) <= set(version.tags)
        )

    def _warn(self, hits: Sequence[_Hit]) -> None:
        """Warn about node types that no node has."""
        present = {*self._limits.types, *(hit.version.type for hit in hits)}
        unknown = [name for name in dict.fromkeys(self._request.node_types) if name not in present]
        if unknown:
            self._warnings.append(
                f"No node was found of type {', '.join(repr(name[:70]) for name in unknown[:10])}, which is not "
                f"registered; the registered types are {', '.join(sorted(self._limits.types))}."
            )

    async def _messages(self, state: State, hits: Sequence[_Hit], places: _Places) -> list[pb.SearchHit]:
        query = self._request.query
        terms = await in_thread_if_long(len(query), query_terms, query)
        length = self._request.preview_length or _DEFAULT_PREVIEW
        previews = self._request.include_preview if self._request.HasField("include_preview") else True
        read = self._read_for_previews(hits) if previews else set[str]()
        maker = PreviewMaker(terms)

        def build(some: Sequence[_Hit], nodes: Mapping[str, Node]) -> list[pb.SearchHit]:
            return [
                _message(
                    hit,
                    places,
                    _preview(nodes.get(hit.version.entry_id) or hit.version.to_node(), maker, terms, length)
                    if previews
                    else Preview("", ()),
                )
                for hit in some
            ]

        messages: list[pb.SearchHit] = []
        for some in in_pieces(hits, _HITS_AT_ONCE, _TOKENS_AT_ONCE):
            chosen = [hit.version for hit in some if hit.version.entry_id in read]
            nodes = await read_nodes_at(state, self._store.database, self._store.entries, chosen)
            characters = len(query) + sum(len(hit.version.summary) for hit in some)
            characters += sum(len(node.content) for node in nodes.values())
            is_much = len(hits) > _HITS_AT_ONCE
            messages += await in_thread_if_long(LONG_TEXT + 1 if is_much else characters, build, some, nodes)
        return messages

    def _read_for_previews(self, hits: Sequence[_Hit]) -> set[str]:
        """The nodes whose content is read: all short ones, and long ones, the best first, as far as they fit."""
        room = _MOST_LONG_TOKENS
        read: set[str] = set()
        for hit in hits:
            if hit.tokens > _SHORT_TOKENS:
                if hit.tokens > room:
                    continue
                room -= hit.tokens
            read.add(hit.version.entry_id)
        if len(read) < len(hits):
            self._warnings.append(
                f"The hits are too long to look into all of them: {len(hits) - len(read)} are shown by summaries. "
                "Ask for fewer results."
            )
        return read


async def _places(snapshot: Snapshot, hits: Sequence[_Hit]) -> _Places:
    ways, counts = await search_reads.places(snapshot, [hit.version.entry_id for hit in hits])
    ends = {step.end for hit in hits for step in hit.way}
    return _Places(ways, counts, await tree.versions(snapshot, ends))


def _message(hit: _Hit, places: _Places, preview: Preview) -> pb.SearchHit:
    entry_id = hit.version.entry_id
    return pb.SearchHit(
        node=node_message(hit.version, SUMMARY, path=places.ways[entry_id], child_count=places.counts[entry_id]),
        score=hit.found.score,
        lexical_score=hit.found.words,
        semantic_score=hit.found.meaning,
        relation_path=[related_message(step, places.ends) for step in hit.way],
        preview=preview.text,
        matched_terms=preview.matched,
        reason=_reason(hit, preview.matched),
    )


def _preview(node: Node, maker: PreviewMaker, terms: Sequence[QueryTerm], length: int) -> Preview:
    """The part of a node that shows why it was found: from its content, or else from its brief and summary."""
    main = maker.make(_joined(node.title, node.content or node.summary, " ".join(node.tags)), length)
    if len(main.matched) == len(terms) or not (node.brief or node.summary):
        return main
    # These are terms that the content lacks, and terms that come after the matches that already fill the preview.
    summary = shown_summary(node.summary, node.attributes)
    about = maker.make(_joined(node.brief, summary, " ".join(node.tags)), length, without=main.matched)
    both = {*main.matched, *about.matched}
    return Preview(
        main.text if main.matched or not about.matched else about.text,
        tuple(dict.fromkeys(term.term for term in terms if term.term in both)),
    )


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _origin(entry_id: str, way: Sequence[RelationStep]) -> str:
    if not way:
        return entry_id
    first = way[0]
    return first.holder if first.outgoing else first.target


def _reason(hit: _Hit, matched: Sequence[str]) -> str:
    if hit.way:
        steps = " then ".join(f"{step.type} {'to' if step.outgoing else 'from'} {step.end}" for step in hit.way)
        return f"Reached from {_origin('', hit.way)}: {steps}."
    parts = []
    if hit.found.words > 0 and matched:
        parts.append(f"it has {', '.join(matched[:8])}")
    elif hit.found.words > 0:
        parts.append("it has words of the query")
    if hit.found.meaning >= _CLOSE:
        parts.append(f"its summary is close in meaning ({hit.found.meaning:.2f})")
    if parts:
        return f"Found because {' and '.join(parts)}."
    return f"Among the nearest in meaning, but not close ({hit.found.meaning:.2f})."
