"""Joins several archives of one model into one archive, in one commit.

A joined archive has one root. Each former archive becomes a child of the root: a node with the archive's name and its
attributes (including those of an ingested document, so that ingestion finds it again). The archive's former roots are
the children of that node. Ids do not change: the file of a former root changes in its parent and archive, all other
files only in their archive.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from memotree_storage.commit.direct_import import ImportBrokenError, commit_entries, retry_if_raced
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, InvalidInputError, TooLargeError
from memotree_storage.model import trailers
from memotree_storage.model.attribute_names import DESCRIPTION, JOINED_FROM, SUMMARY_BY
from memotree_storage.model.node import SUMMARY_TYPE, Archive, Entry, Node, derived_id, new_id
from memotree_storage.model.position import many_between
from memotree_storage.model.provenance import PENDING_MODEL, hash_of_children, with_provenance, without_provenance
from memotree_storage.model.tokens import truncate_to_tokens
from memotree_storage.model.validation import canonical_node, check_archive, check_archive_name, check_node, check_text
from memotree_storage.ports import Signature
from memotree_storage.postgres import archive_versions, refs, registry, tree
from memotree_storage.postgres.requests import commit_of_request
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Branching, Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.depth import too_deep
from memotree.canvas.node_messages import node_at
from memotree.forest.joining.suggestions import suggest
from memotree.forest.service_commit import branch_head
from memotree.models.chat_answers import Summary
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.idempotency import kept_request_id, request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import SUMMARY, archive_message, author_of
from memotree.v1 import forest_service_pb2 as pb

_DESCRIPTION_TOKENS: Final = 1000
_TOOL: Final = "MergeArchives"
_MOST_ARCHIVES: Final = 1000
_MOST_MOVED: Final = 200_000
"""The most nodes of one join; one commit rewrites all their files."""

_MOST_SUMMED: Final = 200
"""The most roots of an archive from which its summary is made."""

_LEVELS_ABOVE: Final = 2
"""The root of a joined archive, and the node of a former one."""

_LISTED: Final = 5
_MESSAGE_CHARS: Final = 20_000
_AT_ONCE: Final = 500
"""The number of versions that one statement reads. It is limited because their rows are decoded on the event loop."""


class ArchiveNameTakenError(AlreadyExistsError):
    """Another archive has the name of the joined one."""

    reason = "ARCHIVE_NAME_TAKEN"

    def __init__(self, name: str, archive_id: str) -> None:
        super().__init__(
            f"Archive {archive_id} is named {name!r} already and is not one of the archives to join. Choose another "
            "name, or join that archive as well.",
            "archive",
            name,
        )


class ArchivesDifferError(FailedPreconditionError):
    """Archives of different models cannot be joined."""

    reason = "ARCHIVES_OF_DIFFERENT_MODELS"


class JoinTooLargeError(TooLargeError):
    """The archives together have more nodes than one commit may rewrite."""

    reason = "JOIN_TOO_LARGE"


class _NotMadeError(Exception):
    """No call with this request id was answered yet. Raised to roll back the transaction that claims the id."""


@dataclass(frozen=True, slots=True)
class _Former:
    """An archive to join: its version, its roots in their order, and all its nodes."""

    archive: Archive
    version: Version
    roots: list[str]
    nodes: Mapping[str, Version]
    entries: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class _Order:
    """A checked request; the ids of new entries are derived from ``seed``."""

    request: pb.MergeArchivesRequest
    workspace_id: str
    branch: str
    author: Signature
    seed: str

    def new_id(self, role: str) -> str:
        """Returns the id of a new entry; it is the same in every attempt at the request."""
        return derived_id(self.workspace_id, self.seed, role)


class ArchiveJoin:
    """Suggests and joins archives.

    Args:
        store: An open store.
        models: Make the vectors that are compared, and the summaries of new nodes.
        limits: The limits of the service.
    """

    def __init__(self, store: Store, models: Models, limits: ServiceLimits) -> None:
        self._store = store
        self._models = models
        self._limits = limits

    # --- Suggestions ---

    async def suggest_archive_merges(self, request: pb.SuggestArchiveMergesRequest) -> pb.SuggestArchiveMergesResponse:
        """Suggests archives of one model whose roots are similar."""
        return await suggest(self._store, self._models, request)

    # --- Joining ---

    async def merge_archives(self, request: pb.MergeArchivesRequest) -> pb.MergeArchivesResponse:
        """Joins archives of one model under a new root, in one commit.

        Raises:
            InvalidInputError: If there are fewer than two archives, or the name, message or author is invalid.
            ArchiveNotFoundError: If one of the archives is not on the branch.
            ArchivesDifferError: If they belong to different models.
            ArchiveNameTakenError: If another archive has the name.
            JoinTooLargeError: If they have too many nodes together.
            TooDeepError: If a node would be too deep in the tree.
            ImportRacedError: If other commits changed the nodes during every attempt.
        """
        order = await self._order(request)
        # One join at a time, so that the second of two calls with the same request id finds the answer of the first.
        async with self._store.locks.joins.of(order.workspace_id):
            earlier = await self._earlier(order)
            if earlier is not None:
                return earlier
            response = await self._answer(order, await self._join(order))

            async def made() -> pb.MergeArchivesResponse:
                return response

            async with self._store.database.transaction() as conn:
                return await run_once(conn, order.workspace_id, request, pb.MergeArchivesResponse, made)

    async def _order(self, request: pb.MergeArchivesRequest) -> _Order:
        if not 0 < len(request.archives) <= _MOST_ARCHIVES:
            raise InvalidInputError.at("archives", f"needs 2 to {_MOST_ARCHIVES} archives.")
        check_archive_name("name", request.name, self._limits.node)
        check_text("message", request.message, multiline=True, max_chars=_MESSAGE_CHARS)
        now = datetime.now(UTC).replace(microsecond=0)
        service = Signature(self._limits.committer_name, self._limits.committer_email, now)
        author = author_of(request, service)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
        branch = request.branch or workspace.default_branch
        return _Order(request, workspace.workspace_id, branch, author, kept_request_id(request.request_id) or new_id())

    async def _earlier(self, order: _Order) -> pb.MergeArchivesResponse | None:
        """Returns the answer of an earlier call with this request id, or ``None``.

        If the earlier call committed but crashed before it stored its answer, the answer is made from its commit.
        """

        async def nothing() -> pb.MergeArchivesResponse:
            raise _NotMadeError

        try:
            async with self._store.database.transaction() as conn:
                return await run_once(conn, order.workspace_id, order.request, pb.MergeArchivesResponse, nothing)
        except _NotMadeError:
            pass
        async with self._store.database.connection() as conn:
            head = await refs.branch_head(conn, order.workspace_id, order.branch)
            found = await commit_of_request(
                conn, order.workspace_id, request_mark(order.request), head=head.commit_id if head else None
            )
            if found is None:
                return None
            archive_id = order.new_id("archive")
            if archive_id not in await tree.versions(
                Snapshot(conn, State(order.workspace_id, found.commit_id)), [archive_id]
            ):
                return None  # a commit without a digest of its call, by another one
        return await self._answer(order, found.commit_id)

    async def _join(self, order: _Order) -> str:
        """Makes the commit and returns its id; starts again if another commit changed the archives meanwhile."""
        return await retry_if_raced(partial(self._join_once, order), ImportBrokenError)

    async def _join_once(self, order: _Order) -> str:
        async with self._store.database.connection() as conn:
            head = await branch_head(conn, order.workspace_id, order.branch)
        former = await self._former(order, head)
        created = await self._created(order, former)
        moved, expected = await asyncio.to_thread(_moved, order, former, created)
        message = await asyncio.to_thread(_message, order, former, created, moved)
        return await commit_entries(
            self._store,
            order.workspace_id,
            order.branch,
            [*created, *moved.values()],
            message,
            order.author,
            removals=[one.archive.id for one in former],
            expected=expected,
        )

    async def _former(self, order: _Order, head: State) -> list[_Former]:
        """Reads the archives to join at the head of the branch."""
        async with self._store.database.connection() as conn:
            found = [
                await lookup.archive(Snapshot(conn, head), text, f"archives[{number}]")
                for number, text in enumerate(order.request.archives)
            ]
            wanted = list({one.entry_id: one for one in found}.values())
            for other in await archive_versions.archives_named(Snapshot(conn, head), [order.request.name]):
                if other.entry_id not in {one.entry_id for one in wanted}:
                    raise ArchiveNameTakenError(order.request.name, other.entry_id)
            _check_models(wanted)
            trees = [await tree.archive_tree(Snapshot(conn, head), one.entry_id) for one in wanted]
            ids = {one.entry_id: [item.entry_id for item in found] for one, found in zip(wanted, trees, strict=True)}
            self._check_depth(trees)
            count = sum(map(len, ids.values()))
            if count > _MOST_MOVED:
                raise JoinTooLargeError(
                    f"These archives have {count:,} nodes together; one commit can move at most {_MOST_MOVED:,}. "
                    "Join fewer archives at once."
                )
            versions: dict[str, Version] = {}
            everything = [entry_id for some in ids.values() for entry_id in some]
            for start in range(0, len(everything), _AT_ONCE):
                versions.update(await tree.versions(Snapshot(conn, head), everything[start : start + _AT_ONCE]))
        entries: dict[str, Entry] = {}
        nodes = list(versions.values())
        for start in range(0, len(nodes), _AT_ONCE):
            entries.update(await self._store.entries.load(order.workspace_id, nodes[start : start + _AT_ONCE]))
        return await asyncio.to_thread(
            lambda: [_former_of(one, ids[one.entry_id], versions, entries) for one in wanted]
        )

    def _check_depth(self, trees: Sequence[Sequence[Branching]]) -> None:
        """Check that no node gets too deep two levels further down."""
        depth = max((item.depth for found in trees for item in found), default=0) + _LEVELS_ABOVE
        if depth > self._limits.max_depth:
            raise too_deep("archives", depth, self._limits.max_depth)

    async def _created(self, order: _Order, former: Sequence[_Former]) -> tuple[Archive, *tuple[Node, ...]]:
        """Returns the new entries: the archive, its root, and a node for each former archive."""
        meter = Meter()
        archive = Archive(order.new_id("archive"), order.request.name, former[0].archive.model_id)
        root_id = order.new_id("root")
        places = many_between(None, None, len(former))
        below = [
            await self._stand_in(order, one, archive.id, root_id, position, meter)
            for one, position in zip(former, places, strict=True)
        ]
        summary = await self._models.summarise_children([node.summary for node in below], meter)
        root = Node(
            root_id,
            archive.id,
            None,
            many_between(None, None, 1)[0],
            type=SUMMARY_TYPE,
            title=order.request.name,
            summary=summary.text,
            attributes=_provenance({}, summary, [(node.id, node.summary) for node in below]),
        )
        check_archive(archive, self._limits.node)
        nodes = tuple(canonical_node(node) for node in (root, *below))
        for node in nodes:
            check_node(node, self._limits.node, self._limits.types)
        return archive, *nodes

    async def _stand_in(
        self, order: _Order, one: _Former, archive_id: str, root_id: str, position: str, meter: Meter
    ) -> Node:
        """Returns the node for a former archive."""
        roots = [one.nodes[key] for key in one.roots]
        told = [root.summary or root.brief or root.title for root in roots]
        if len(told) == 1:  # the summary of the only root is that of the whole archive
            by = roots[0].attributes.get(SUMMARY_BY, "")
            summary = Summary(told[0], by) if by else await self._models.summarise_children(told, meter)
        else:
            summary = await self._models.summarise_children(told[:_MOST_SUMMED], meter)
        attributes = {**without_provenance(one.archive.attributes), JOINED_FROM: one.archive.id}
        if one.archive.description:
            cut = truncate_to_tokens(one.archive.description, _DESCRIPTION_TOKENS)
            attributes.setdefault(DESCRIPTION, cut)
        return Node(
            order.new_id(one.archive.id),
            archive_id,
            root_id,
            position,
            type=SUMMARY_TYPE,
            title=one.archive.name,
            summary=summary.text or one.archive.name,
            attributes=_provenance(attributes, summary, [(root.entry_id, root.summary) for root in roots]),
        )

    async def _answer(self, order: _Order, commit_id: str) -> pb.MergeArchivesResponse:
        """Returns the response for a join, read from its commit."""
        state = State(order.workspace_id, commit_id)
        archive_id, root_id = order.new_id("archive"), order.new_id("root")
        async with self._store.database.connection() as conn:
            archive = ArchiveVersion.of((await tree.versions(Snapshot(conn, state), [archive_id]))[archive_id])
            root = await node_at(Snapshot(conn, state), self._store, root_id, SUMMARY)
            nodes = await tree.archive_tree(Snapshot(conn, state), archive_id)
        return pb.MergeArchivesResponse(
            archive=archive_message(archive),
            root=root,
            commit_id=commit_id,
            moved_nodes=len(nodes) - 1 - root.child_count,
        )


def _check_models(archives: Sequence[ArchiveVersion]) -> None:
    if len(archives) < 2:  # noqa: PLR2004 - a single archive cannot be joined
        raise InvalidInputError.at("archives", "needs at least two different archives.")
    models = {one.model_id for one in archives}
    if len(models) > 1:
        told = ", ".join(f"{one.name} of {one.model_id or 'no model'}" for one in archives[:_LISTED])
        raise ArchivesDifferError(
            f"These archives belong to different models ({told}). Join archives of one model, or set the same model "
            "for all of them with UpdateArchive first."
        )


def _former_of(
    found: ArchiveVersion, ids: Sequence[str], versions: Mapping[str, Version], entries: Mapping[str, Entry]
) -> _Former:
    nodes = {key: versions[key] for key in ids if key in versions}
    read = {key: entry for key, one in nodes.items() if isinstance(entry := entries[one.blob], Node)}
    roots = [key for key, one in nodes.items() if not one.parent_id]
    return _Former(found.archive, found.version, roots, nodes, read)


def _moved(
    order: _Order, former: Sequence[_Former], created: Sequence[Entry]
) -> tuple[dict[str, Node], dict[str, str | None]]:
    """Returns the moved nodes by id, and the blob that each entry must still have when the commit is made."""
    moved: dict[str, Node] = {}
    expected: dict[str, str | None] = {entry.id: None for entry in created}
    for one in former:
        expected[one.archive.id] = one.version.blob
        for key, node in one.entries.items():
            parent_id = node.parent_id or order.new_id(one.archive.id)
            moved[key] = replace(node, archive_id=created[0].id, parent_id=parent_id)
            expected[key] = one.nodes[key].blob
    return moved, expected


def _provenance(attributes: Mapping[str, str], summary: Summary, children: Sequence[tuple[str, str]]) -> dict[str, str]:
    pending = PENDING_MODEL if summary.pending else ""
    return with_provenance(attributes, summary.made_by, hash_of_children(children), pending)


def _message(order: _Order, former: Sequence[_Former], created: Sequence[Entry], moved: Mapping[str, Node]) -> str:
    names = ", ".join(one.archive.name for one in former[:_LISTED])
    more = f" and {len(former) - _LISTED} more" if len(former) > _LISTED else ""
    subject = order.request.message.strip() or f"Join {names}{more} into {order.request.name}"
    listed = [ListedChange(None, entry) for entry in created]
    listed += [ListedChange(one.archive, None) for one in former]
    listed += [ListedChange(node, moved[key]) for one in former for key, node in one.entries.items()]
    return compose(subject, listed, {trailers.TOOL: _TOOL, **request_mark(order.request).trailers()})
