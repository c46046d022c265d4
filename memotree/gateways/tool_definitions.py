"""The table of tools: each entry names an RPC of the contract and how it is offered as a tool.

The arguments and descriptions come from the contract; the table has only what the contract does not contain.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from memotree.client.contract import is_read, is_repeatable
from memotree.gateways.contract import method

REQUEST_ID: Final = "request_id"


@dataclass(frozen=True)
class Tool:
    """One operation, offered to agents as a tool.

    Attributes:
        name: The unique name, in snake_case.
        title: A title for people.
        category: The category under which it is listed.
        service: The short name of the service.
        rpc: The RPC that it calls.
        required: Arguments that must be given.
        hidden: Fields of the request that must not be given.
        hidden_within: Fields that must not be given in nested messages of the request.
        masked: Fields that are named in ``update_mask`` if they are given.
        destructive: Whether it may delete or overwrite something.
        last: For a streaming RPC, the field of its last message that is the answer.
        makes_workspace: Whether it creates the default workspace if that does not exist.
        note: Text that its description adds to the comment of the RPC.
    """

    name: str
    title: str
    category: str
    service: str
    rpc: str
    required: tuple[str, ...] = ()
    hidden: tuple[str, ...] = (REQUEST_ID,)
    hidden_within: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    destructive: bool = False
    last: str = ""
    makes_workspace: bool = False
    note: str = field(default="", compare=False)

    @cached_property
    def method(self) -> MethodDescriptor:
        """The RPC in the contract."""
        return method(self.service, self.rpc)

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        return is_read(self.method)

    @property
    def idempotent(self) -> bool:
        """Whether the same call again has no further effect."""
        return is_repeatable(self.method)

    @property
    def request(self) -> Descriptor:
        """The type of its request."""
        return self.method.input_type


def _read(name: str, title: str, category: str, call: str, *required: str, note: str = "", last: str = "") -> Tool:
    service, rpc = call.split(".")
    return Tool(name, title, category, service, rpc, required=required, note=note, last=last)


def _write(name: str, title: str, call: str, *required: str, destructive: bool = False) -> Tool:
    """A tool that stages a change in a session."""
    service, rpc = call.split(".")
    return Tool(
        name,
        title,
        "change",
        service,
        rpc,
        required=("session_id", *required),
        destructive=destructive,
    )


_FIELDS: Final = ("content", "title", "brief", "summary", "tags", "attributes", "type")
_RECALL, _READ, _VIEW, _SESSION, _HISTORY, _PLACE, _JOB = (
    "recall",
    "read",
    "view",
    "session",
    "history",
    "place",
    "job",
)

TOOLS: Final[tuple[Tool, ...]] = (
    _read(
        "explore_memory_node",
        "Explore a memory node",
        _RECALL,
        "ForestService.DrillDown",
        "node_id",
        "query",
        note="Use it on a summary_node that recall or this tool returned, when its summary is not enough.",
    ),
    _read("recall", "Recall", _RECALL, "ForestService.Recall", "query"),
    _read("ask", "Ask", _RECALL, "ForestService.Ask", "query", last="answer"),
    Tool(
        "ingest_document",
        "Ingest a document",
        _RECALL,
        "ForestService",
        "IngestDocument",
        required=("name", "text"),
        hidden=(REQUEST_ID, "file", "conversation", "author"),
        last="job",
        makes_workspace=True,
        note="Waits until the job has ended. Commits by itself; no session is needed.",
    ),
    _read("get_job", "Look at a job", _JOB, "JobService.GetJob", "job_id"),
    _read("list_jobs", "List jobs", _JOB, "JobService.ListJobs"),
    Tool("cancel_job", "Cancel a job", _JOB, "JobService", "CancelJob", ("job_id",), destructive=True),
    Tool("resume_job", "Resume a job", _JOB, "JobService", "ResumeJob", ("job_id",)),
    _read("search_nodes", "Search nodes", _READ, "NodeService.SearchNodes", "query"),
    _read("get_node", "Read a node", _READ, "NodeService.GetNode", "node_id"),
    _read("list_children", "List children", _READ, "NodeService.ListChildren"),
    _read("get_tree", "Read the structure of a tree", _READ, "NodeService.GetTree"),
    Tool("expand_node", "Expand a node in a view", _VIEW, "NodeService", "ExpandNode", ("node_id",)),
    Tool(
        "collapse_node",
        "Collapse a node in a view",
        _VIEW,
        "NodeService",
        "CollapseNode",
        ("node_id",),
    ),
    _read("render_view", "Render a view", _VIEW, "ViewService.RenderView"),
    Tool(
        "open_session",
        "Open a session",
        _SESSION,
        "SessionService",
        "OpenSession",
        makes_workspace=True,
        note="Pass the id in the answer as session_id to the tools that change something, or as a revision to read "
        "the staged changes.",
    ),
    _read("list_sessions", "List sessions", _SESSION, "SessionService.ListSessions"),
    _read("list_changes", "List staged changes", _SESSION, "SessionService.ListChanges", "session_id"),
    _write("create_node", "Create a node", "NodeService.CreateNode", "title"),
    Tool(
        "update_node",
        "Update a node",
        "change",
        "NodeService",
        "UpdateNode",
        required=("session_id", "node_id"),
        hidden=(REQUEST_ID, "update_mask"),
        masked=_FIELDS,
        destructive=True,
        note="Only the given arguments are changed; an empty argument clears its field.",
    ),
    _write("delete_node", "Delete a node", "NodeService.DeleteNode", "node_id", destructive=True),
    _write("move_node", "Move a node", "NodeService.MoveNode", "node_id"),
    _write("split_node", "Split a node", "NodeService.SplitNode", "node_id", "parts"),
    _write("merge_nodes", "Merge nodes", "NodeService.MergeNodes", "node_ids", destructive=True),
    _write("add_relation", "Add a relation", "NodeService.AddRelation", "node_id", "relation"),
    _write(
        "remove_relation",
        "Remove a relation",
        "NodeService.RemoveRelation",
        "node_id",
        "type",
        "target_id",
        destructive=True,
    ),
    Tool(
        "batch_change_nodes",
        "Change several nodes at once",
        "change",
        "NodeService",
        "BatchChangeNodes",
        required=("session_id", "changes"),
        hidden_within=("workspace", "session_id", "request_id", "update_mask", "view_name", "initial_level", "level"),
        destructive=True,
    ),
    _write("create_archive", "Create an archive", "WorkspaceService.CreateArchive", "name"),
    Tool(
        "commit_changes",
        "Commit the changes of a session",
        _SESSION,
        "SessionService",
        "CommitChanges",
        required=("session_id", "message"),
    ),
    Tool(
        "rebase_session",
        "Rebase a session",
        _SESSION,
        "SessionService",
        "RebaseSession",
        required=("session_id",),
    ),
    Tool(
        "discard_changes",
        "Discard some changes",
        _SESSION,
        "SessionService",
        "DiscardChanges",
        required=("session_id", "node_ids"),
        destructive=True,
    ),
    Tool(
        "discard_session",
        "Discard a session",
        _SESSION,
        "SessionService",
        "DiscardSession",
        required=("session_id",),
        destructive=True,
    ),
    _read("list_commits", "List commits", _HISTORY, "HistoryService.ListCommits"),
    _read("get_commit", "Read a commit", _HISTORY, "HistoryService.GetCommit", "revision"),
    _read(
        "list_node_revisions", "List the versions of a node", _HISTORY, "HistoryService.ListNodeRevisions", "node_id"
    ),
    _read("diff_revisions", "Compare two revisions", _HISTORY, "HistoryService.DiffRevisions"),
    _read("blame_node", "Show who wrote each line of a node", _HISTORY, "HistoryService.BlameNode", "node_id"),
    _read("list_archives", "List archives", _PLACE, "WorkspaceService.ListArchives"),
    _read("list_workspaces", "List workspaces", _PLACE, "WorkspaceService.ListWorkspaces"),
    Tool("create_workspace", "Create a workspace", _PLACE, "WorkspaceService", "CreateWorkspace", required=("name",)),
)
"""All tools, in the order in which they are listed."""

BY_NAME: Final = {tool.name: tool for tool in TOOLS}
