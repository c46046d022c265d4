"""Reading a workspace as it is at one revision: nodes, trees, searches, history and views."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from pathlib import Path

from memotree.client.enums import (
    Level,
    LevelName,
    RelationName,
    RelationType,
    SearchScope,
    SearchScopeName,
    SearchType,
    SearchTypeName,
    to_wire,
)
from memotree.client.forest import AsyncForestQueries
from memotree.client.history_values import (
    AnswerHistory,
    BlamedLine,
    Commit,
    CommitDetails,
    Diff,
    EntryChange,
    NodeRevision,
    ValueChange,
)
from memotree.client.lists import several
from memotree.client.markdown_values import MarkdownExport
from memotree.client.node_values import (
    Archive,
    ArchiveRef,
    NamedNode,
    Node,
    NodeRef,
    SearchResult,
    Tree,
    TreeNode,
    archive_id,
    node_id,
    stamp,
)
from memotree.client.paging import pages
from memotree.client.queries import AsyncQueries
from memotree.client.transport import Transport
from memotree.client.view import AsyncView
from memotree.client.view_values import ViewInfo
from memotree.client.workspace_values import Fault
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import view_service_pb2 as views
from memotree.v1 import workspace_service_pb2 as workspaces

MOST_PER_PAGE = 1000
"""The largest page that the contract allows."""
FIRST_OF_TREE = 200
"""The first page of a tree: more than a screen shows."""
REST_OF_TREE = 5000
"""The other pages of a tree: few, since each finds its place in the structure of the tree again."""


class AsyncRevision(AsyncForestQueries, AsyncQueries):
    """A workspace at one revision: a branch, tag, commit or session; an empty revision is the default branch."""

    def __init__(self, transport: Transport, workspace: str, revision: str = "") -> None:
        self._transport = transport
        self._workspace = workspace
        self._revision = revision

    def __repr__(self) -> str:
        at = f" at {self._revision!r}" if self._revision else ""
        return f"<{type(self).__name__} {self._workspace!r}{at}>"

    @property
    def revision(self) -> str:
        """The revision that names this state; empty for the default branch."""
        return self._revision

    async def node(self, node: NodeRef, level: LevelName = Level.DETAIL) -> Node:
        """The node at this revision."""
        request = nodes.GetNodeRequest(
            workspace=self._workspace, node_id=node_id(node), revision=self._revision, level=to_wire(Level, level)
        )
        return Node.from_wire((await self._transport.call(request, nodes.GetNodeResponse)).node)

    def children(
        self,
        parent: NodeRef | None = None,
        *,
        archive: ArchiveRef | None = None,
        level: LevelName = Level.TITLE,
        page_size: int = 0,
    ) -> AsyncIterator[Node]:
        """The children of ``parent``, or the roots of ``archive``, in their order.

        Args:
            parent: The node above them.
            archive: The archive, without a parent.
            level: How much of each node to read.
            page_size: How many are fetched at once; 1000 if 0.
        """
        request = nodes.ListChildrenRequest(
            workspace=self._workspace,
            revision=self._revision,
            parent_id=node_id(parent),
            archive=archive_id(archive),
            level=to_wire(Level, level),
            page_size=page_size or MOST_PER_PAGE,
        )
        return pages(self._transport, request, nodes.ListChildrenResponse, lambda page: map(Node.from_wire, page.nodes))

    async def tree(
        self,
        node: NodeRef | None = None,
        *,
        archive: ArchiveRef | None = None,
        max_depth: int = 0,
        level: LevelName = Level.TITLE,
        max_nodes: int = 0,
    ) -> Tree:
        """The subtree of ``node``, or all of ``archive``: at most ``max_nodes`` (1000 if 0) nodes."""
        request = nodes.GetTreeRequest(
            workspace=self._workspace,
            revision=self._revision,
            node_id=node_id(node),
            archive=archive_id(archive),
            max_depth=max_depth,
            level=to_wire(Level, level),
            max_nodes=max_nodes,
        )
        return Tree.from_wire(await self._transport.call(request, nodes.GetTreeResponse))

    def walk(
        self,
        node: NodeRef | None = None,
        *,
        archive: ArchiveRef | None = None,
        max_depth: int = 0,
        level: LevelName = Level.TITLE,
    ) -> AsyncIterator[TreeNode]:
        """All of the subtree of ``node``, or of ``archive``, parents first; later pages are fetched when needed."""
        request = nodes.GetTreeRequest(
            workspace=self._workspace,
            revision=self._revision,
            node_id=node_id(node),
            archive=archive_id(archive),
            max_depth=max_depth,
            level=to_wire(Level, level),
        )
        # The first page is small, so that its nodes are there at once.
        return pages(
            self._transport,
            request,
            nodes.GetTreeResponse,
            lambda page: map(TreeNode.from_wire, page.nodes),
            sizes=(FIRST_OF_TREE, REST_OF_TREE),
        )

    async def named(self, name: str, *, prefix: bool = False, max_candidates: int = 0) -> list[NamedNode]:
        """The nodes that a name means: an id, the beginning of one, a title, or a path such as "archive/Title/Sub".

        Args:
            name: The name. An id comes before a title, and a title before a path.
            prefix: Find the nodes whose title begins with the name instead.
            max_candidates: The most nodes; 20 if 0, at most 100.

        Returns:
            One node if the name is clear, several if it is ambiguous, none if nothing has it.
        """
        request = nodes.ResolveNodeRequest(
            workspace=self._workspace,
            revision=self._revision,
            name=name,
            prefix=prefix,
            max_candidates=max_candidates,
        )
        answer = await self._transport.call(request, nodes.ResolveNodeResponse)
        return [NamedNode(Node.from_wire(each.node), each.path) for each in answer.candidates]

    async def search(
        self,
        query: str,
        *,
        search_type: SearchTypeName = SearchType.FULL_TEXT,
        max_results: int = 10,
        node_types: Iterable[str] = (),
        tags: Iterable[str] = (),
        archives: Iterable[ArchiveRef] = (),
        scope: SearchScopeName = SearchScope.ALL,
        scope_node: NodeRef | None = None,
        view: str = "",
        relation_types: Iterable[RelationName] = (),
        max_depth: int = 0,
        include_preview: bool = True,
        preview_length: int = 0,
    ) -> SearchResult:
        """Finds nodes by words, by meaning, by both, or along relations; best first.

        Args:
            query: Words or a question, at most 8192 characters. Plain text; no query operators.
            search_type: How to find nodes.
            max_results: The most results.
            node_types: Only nodes of one of these types.
            tags: Only nodes with all of these tags.
            archives: Only nodes of these archives.
            scope: Which nodes to search; SUBTREE and RELATED need ``scope_node``, CURRENT_VIEW needs ``view``.
            scope_node: The node of those scopes, and the start of RELATION searches.
            view: The view of CURRENT_VIEW.
            relation_types: Which relations to follow; all if empty.
            max_depth: How many relations to follow in a row; 2 if 0, at most 5.
            include_preview: Whether hits have a preview.
            preview_length: Characters of a preview; 200 if 0.
        """
        request = nodes.SearchNodesRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            search_type=to_wire(SearchType, search_type),
            max_results=max_results,
            node_types=several("node_types", node_types),
            tags=several("tags", tags),
            scope=to_wire(SearchScope, scope),
            include_preview=include_preview,
            preview_length=preview_length,
            scope_node_id=node_id(scope_node),
            view_name=view,
            relation_types=[to_wire(RelationType, each) for each in relation_types],
            max_depth=max_depth,
            archives=[archive_id(archive) for archive in several("archives", archives)],
        )
        return SearchResult.from_wire(await self._transport.call(request, nodes.SearchNodesResponse))

    async def archive(self, archive: ArchiveRef) -> Archive:
        """One archive by id, unique prefix or name."""
        request = workspaces.GetArchiveRequest(
            workspace=self._workspace, archive=archive_id(archive), revision=self._revision
        )
        return Archive.from_wire((await self._transport.call(request, workspaces.GetArchiveResponse)).archive)

    def archives(self) -> AsyncIterator[Archive]:
        """The archives, ordered by name."""
        request = workspaces.ListArchivesRequest(
            workspace=self._workspace, revision=self._revision, page_size=MOST_PER_PAGE
        )
        return pages(
            self._transport,
            request,
            workspaces.ListArchivesResponse,
            lambda page: map(Archive.from_wire, page.archives),
        )

    def faults(self) -> AsyncIterator[Fault]:
        """What other programs committed that stands nowhere in the tree of this revision, or cannot be read."""
        request = maintenance.ListFaultsRequest(
            workspace=self._workspace, revision=self._revision, page_size=MOST_PER_PAGE
        )
        return pages(
            self._transport, request, maintenance.ListFaultsResponse, lambda page: map(Fault.from_wire, page.faults)
        )

    async def export_markdown(
        self, folder: str | Path, archives: Iterable[ArchiveRef] = (), *, replace: bool = False
    ) -> MarkdownExport:
        """Exports what is committed at this revision to a folder of Markdown files, for Obsidian, GitHub and editors.

        Each archive is a folder, each node a file with its id, and `AsyncWorkspace.import_markdown` brings edits back.
        The folder is replaced as a whole if it is an export that was not edited; what is hidden at its top stays.

        Args:
            folder: Where to.
            archives: Only these; all if empty.
            replace: Whether to replace an export whose files were edited.
        """
        from memotree.client.markdown.exporting import commit_of, export_to  # noqa: PLC0415 - few programs export

        commit = await commit_of(self._transport, self._workspace, self._revision)
        at = AsyncRevision(self._transport, self._workspace, commit)
        chosen = several("archives", archives)
        return await export_to(at, self._transport, self._workspace, Path(folder), chosen, replace=replace)

    def log(
        self,
        *,
        node: NodeRef | None = None,
        subtree: NodeRef | None = None,
        author: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[Commit]:
        """The commits up to this revision (for a session, its base), newest first.

        Args:
            node: Only commits that change this node.
            subtree: Only commits that change this node or a node below it at the revision.
            author: Only commits whose author's name or address contains this, ignoring case.
            since: Only commits at or after this time.
            until: Only commits before this time.
            page_size: How many are fetched at once; 50 if 0.
        """
        request = history.ListCommitsRequest(
            workspace=self._workspace,
            revision=self._revision,
            node_id=node_id(node),
            subtree_id=node_id(subtree),
            author=author,
            since=stamp(since),
            until=stamp(until),
            page_size=page_size,
        )
        return pages(
            self._transport, request, history.ListCommitsResponse, lambda page: map(Commit.from_wire, page.commits)
        )

    def revisions(self, node: NodeRef, *, level: LevelName = Level.TITLE) -> AsyncIterator[NodeRevision]:
        """The versions of one node up to this revision, newest first."""
        request = history.ListNodeRevisionsRequest(
            workspace=self._workspace, node_id=node_id(node), revision=self._revision, level=to_wire(Level, level)
        )
        return pages(
            self._transport,
            request,
            history.ListNodeRevisionsResponse,
            lambda page: map(NodeRevision.from_wire, page.revisions),
        )

    def bisect(self, node: NodeRef, field: str = "") -> AsyncIterator[ValueChange]:
        """Every commit at which a node, or one field of it, changed, newest first, on merged branches too.

        Args:
            node: The node; a deleted one has such a history, too.
            field: Such as ``"content"``, ``"title"`` or ``"parent"``; any change if empty.
        """
        request = history.BisectNodeRequest(
            workspace=self._workspace, node_id=node_id(node), field=field, revision=self._revision
        )
        return pages(
            self._transport,
            request,
            history.BisectNodeResponse,
            lambda page: map(ValueChange.from_wire, page.changes),
        )

    async def bisect_answer(self, query: str, *, max_changes: int = 0) -> AnswerHistory:
        """Every commit at which the answer to a question changed, newest first, on merged branches too.

        Args:
            query: The question.
            max_changes: The most changes; 20 if 0, at most 100.
        """
        request = history.BisectAnswerRequest(
            workspace=self._workspace, query=query, revision=self._revision, max_changes=max_changes
        )
        return AnswerHistory.from_wire(await self._transport.call(request, history.BisectAnswerResponse))

    async def blame(self, node: NodeRef, *, by_sentences: bool = False) -> list[BlamedLine]:
        """The lines of a node's content, each with the commit and agent that wrote it, through merges too.

        Args:
            node: The node.
            by_sentences: Divide lines of prose into sentences.
        """
        request = history.BlameNodeRequest(
            workspace=self._workspace, node_id=node_id(node), revision=self._revision, by_sentences=by_sentences
        )
        answer = await self._transport.call(request, history.BlameNodeResponse)
        commits = [Commit.from_wire(commit) for commit in answer.commits]
        return [
            BlamedLine(line.text, commits[line.commit_index], answer.agents[line.commit_index], line.line)
            for line in answer.lines
        ]

    async def show(self, revision: str = "") -> CommitDetails:
        """The commit that ``revision`` names (this revision if empty), with the nodes it changes."""
        request = history.GetCommitRequest(workspace=self._workspace, revision=revision or self._revision)
        return CommitDetails.from_wire(await self._transport.call(request, history.GetCommitResponse))

    async def diff(
        self,
        old: str = "",
        new: str = "",
        *,
        node: NodeRef | None = None,
        subtree: NodeRef | None = None,
        include_fields: bool = True,
        by_words: bool = False,
    ) -> Diff:
        """What differs from ``old`` to ``new`` (this revision if empty), per node and field.

        Args:
            old: The older state; if empty, the first parent of a commit or the base of a session.
            new: The newer state.
            node: Only this node.
            subtree: Only this node or archive and what is below it at one of the two states.
            include_fields: Whether to include the fields that differ.
            by_words: Compare texts by words: each field has ``parts`` instead of a ``diff``.
        """
        summaries: list[str] = []

        def read(page: history.DiffRevisionsResponse) -> Iterable[EntryChange]:
            summaries.append(page.summary)
            return map(EntryChange.from_wire, page.changes)

        request = history.DiffRevisionsRequest(
            workspace=self._workspace,
            old_revision=old,
            new_revision=new or self._revision,
            node_id=node_id(node),
            include_fields=include_fields,
            by_words=by_words,
            subtree_id=node_id(subtree),
            page_size=MOST_PER_PAGE if not include_fields else 0,
        )
        changes = [change async for change in pages(self._transport, request, history.DiffRevisionsResponse, read)]
        return Diff(tuple(changes), summaries[0])

    def view(self, name: str = "default") -> AsyncView:
        """The view of that name in this session or branch; it is created when a node is first expanded in it."""
        return AsyncView(self._transport, self._workspace, self._revision, name)

    def views(self) -> AsyncIterator[ViewInfo]:
        """The views of this session or branch, ordered by name."""
        request = views.ListViewsRequest(workspace=self._workspace, revision=self._revision, page_size=MOST_PER_PAGE)
        return pages(
            self._transport, request, views.ListViewsResponse, lambda page: map(ViewInfo.from_wire, page.views)
        )
