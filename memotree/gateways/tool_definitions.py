"""The table of tools: each entry names an RPC of the contract and how it is offered as a tool.

The arguments and descriptions come from the contract; the table has only what the contract does not contain. First come
the tools of an agent's day, which MCP lists by default; a server started for it lists the others as well.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import InvalidInputError

from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.tool import REQUEST_ID, Tool
from memotree.tools.plugins import plugin_names


class UnknownToolsError(InvalidInputError):
    """The choice of tools names one that does not exist."""

    reason = "UNKNOWN_TOOLS"


def _read(name: str, title: str, call: str, *required: str, named: str = "") -> Tool:
    """A tool that only reads; ``named`` is its argument for a node that may be given by title or path."""
    return Tool(name, title, call, required=required, named=(named,) if named else ())


def _write(name: str, title: str, call: str, *required: str, destructive: bool = False) -> Tool:
    """A tool that stages a change in a session."""
    return Tool(name, title, call, required=("session_id", *required), destructive=destructive)


_FIELDS: Final = ("content", "title", "brief", "summary", "tags", "attributes", "type")
TOOLS: Final[tuple[Tool, ...]] = (
    *EVERYDAY,
    Tool(
        "query",
        "Ask with tools",
        "QueryService.Query",
        required=("query",),
        flattened=("filter", "options"),
        example={"query": "How many days are there until the next deployment?", "max_tool_calls": 3},
    ),
    Tool(
        "plan_query",
        "Plan a question with tools",
        "QueryService.PlanQuery",
        required=("query",),
        hidden=(REQUEST_ID, "filter"),
        flattened=("options",),
    ),
    _read("get_job", "Look at a job", "JobService.GetJob", "job_id"),
    _read("list_jobs", "List jobs", "JobService.ListJobs"),
    Tool("cancel_job", "Cancel a job", "JobService.CancelJob", ("job_id",), destructive=True),
    Tool("resume_job", "Resume a job", "JobService.ResumeJob", ("job_id",)),
    _read("search_nodes", "Search nodes", "NodeService.SearchNodes", "query"),
    _read("resolve_node", "Find the node that a name means", "NodeService.ResolveNode", "name"),
    _read("get_node", "Read a node", "NodeService.GetNode", "node_id", named="node_id"),
    _read("list_children", "List children", "NodeService.ListChildren", named="parent_id"),
    _read("get_tree", "Read the structure of a tree", "NodeService.GetTree", named="node_id"),
    Tool("expand_node", "Expand a node in a view", "NodeService.ExpandNode", ("node_id",)),
    Tool(
        "collapse_node",
        "Collapse a node in a view",
        "NodeService.CollapseNode",
        ("node_id",),
    ),
    _read("render_view", "Render a view", "ViewService.RenderView"),
    Tool(
        "open_session",
        "Open a session",
        "SessionService.OpenSession",
        note="Pass the id in the answer as session_id to the tools that change something, or as a revision to read "
        "the staged changes.",
    ),
    _read("list_sessions", "List sessions", "SessionService.ListSessions"),
    _read("list_changes", "List staged changes", "SessionService.ListChanges", "session_id"),
    _write("create_node", "Create a node", "NodeService.CreateNode", "title"),
    Tool(
        "update_node",
        "Update a node",
        "NodeService.UpdateNode",
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
        "NodeService.BatchChangeNodes",
        required=("changes",),
        hidden_within=("workspace", "session_id", "request_id", "update_mask", "view_name", "initial_level", "level"),
        destructive=True,
    ),
    Tool(
        "batch_change_memory",
        "Change several notes in one commit",
        "MemoryService.BatchChangeMemory",
        required=("changes",),
        hidden_within=("workspace", "branch", "agent", "message", "request_id"),
        destructive=True,
    ),
    _write("create_archive", "Create an archive", "WorkspaceService.CreateArchive", "name"),
    Tool(
        "commit_changes",
        "Commit the changes of a session",
        "SessionService.CommitChanges",
        required=("session_id", "message"),
    ),
    Tool(
        "rebase_session",
        "Rebase a session",
        "SessionService.RebaseSession",
        required=("session_id",),
    ),
    _read("list_conflicts", "List the conflicts of a session", "SessionService.ListConflicts", "session_id"),
    Tool(
        "resolve_conflicts",
        "Resolve conflicts of a session",
        "SessionService.ResolveConflicts",
        required=("session_id",),
    ),
    Tool(
        "discard_changes",
        "Discard some changes",
        "SessionService.DiscardChanges",
        required=("session_id", "node_ids"),
        destructive=True,
    ),
    Tool(
        "discard_session",
        "Discard a session",
        "SessionService.DiscardSession",
        required=("session_id",),
        destructive=True,
    ),
    _read("get_commit", "Read a commit", "HistoryService.GetCommit", "revision"),
    _read(
        "list_node_revisions",
        "List the versions of a node",
        "HistoryService.ListNodeRevisions",
        "node_id",
        named="node_id",
    ),
    _read("diff_revisions", "Compare two revisions", "HistoryService.DiffRevisions"),
    _read("blame_node", "Show who wrote each line of a node", "HistoryService.BlameNode", "node_id", named="node_id"),
    _read("bisect_node", "When and why a node changed", "HistoryService.BisectNode", "node_id", named="node_id"),
    _read("bisect_answer", "Since when and why something is answered so", "HistoryService.BisectAnswer", "query"),
    _read("list_branches", "List branches", "HistoryService.ListBranches"),
    Tool("create_branch", "Create a branch", "HistoryService.CreateBranch", required=("name",)),
    _read("preview_merge", "See what a merge would do", "HistoryService.PreviewMerge", "source"),
    Tool("merge_branch", "Merge a branch", "HistoryService.MergeBranch", required=("source",)),
    Tool("revert_commit", "Take back what a commit changed", "HistoryService.RevertCommit", required=("revision",)),
    Tool(
        "restore_nodes",
        "Restore nodes from a revision",
        "HistoryService.RestoreNodes",
        required=("node_ids", "revision"),
    ),
    Tool("cherry_pick", "Bring a commit into a branch", "HistoryService.CherryPick", required=("revision",)),
    Tool("create_proposal", "Propose changes for review", "ReviewService.CreateProposal", required=("title",)),
    _read("get_proposal", "Read a proposal", "ReviewService.GetProposal", "number"),
    _read("list_proposals", "List proposals", "ReviewService.ListProposals"),
    Tool("update_proposal", "Edit or withdraw a proposal", "ReviewService.UpdateProposal", required=("number",)),
    Tool("comment_proposal", "Comment on a proposal", "ReviewService.CommentProposal", required=("number", "text")),
    Tool(
        "review_proposal",
        "Approve or reject a proposal",
        "ReviewService.ReviewProposal",
        required=("number", "reviewer", "verdict", "head_commit_id"),
    ),
    Tool("merge_proposal", "Merge a proposal", "ReviewService.MergeProposal", required=("number",)),
    Tool("protect_branches", "Protect branches", "ReviewService.ProtectBranches", required=("pattern",)),
    Tool(
        "unprotect_branches",
        "End the protection of branches",
        "ReviewService.UnprotectBranches",
        required=("pattern",),
        destructive=True,
    ),
    _read("list_protections", "List protected branches", "ReviewService.ListProtections"),
    Tool("set_push_policy", "Set what pushes may do", "ReviewService.SetPushPolicy"),
    _read("get_push_policy", "Read what pushes may do", "ReviewService.GetPushPolicy"),
    Tool("put_memory_tests", "Write memory tests", "ReviewService.PutMemoryTests", destructive=True),
    _read("check_memory", "Run memory tests", "ReviewService.CheckMemory"),
    _read("preview_erasure", "See what an erasure would take away", "EraseService.PreviewErasure", "target"),
    Tool(
        "erase",
        "Erase from the whole history",
        "EraseService.Erase",
        required=("target", "phrase", "by", "reason"),
        destructive=True,
        note="Only when a person has asked for exactly this and confirms the phrase.",
    ),
    _read("list_erasures", "List erasures", "EraseService.ListErasures"),
    _read("get_erasure", "Read what stays of an erasure", "EraseService.GetErasure", "erasure_id"),
    _read("list_audit_records", "See who called what", "AuditService.ListAuditRecords"),
    Tool(
        "change_embedding",
        "Index with another embedding model",
        "IndexService.ChangeEmbedding",
        required=("model",),
    ),
    _read("list_archives", "List archives", "WorkspaceService.ListArchives"),
    _read("list_workspaces", "List workspaces", "WorkspaceService.ListWorkspaces"),
    Tool("create_workspace", "Create a workspace", "WorkspaceService.CreateWorkspace", required=("name",)),
)
"""All tools, in the order in which they are listed: those of an agent's day first."""

BY_NAME: Final = {tool.name: tool for tool in TOOLS}


def tools_by_call() -> Mapping[str, frozenset[str]]:
    """The tools that each RPC stands for, by the service and the RPC; RPCs that are no tools are missing.

    Whoever may call a tool that takes nodes by name may look up what a name means, since the tool tells it as well.
    """
    found = {tool.call: frozenset({tool.name}) for tool in TOOLS}
    found["NodeService.ResolveNode"] |= {tool.name for tool in TOOLS if tool.named}
    return found | {"JobService.WatchJob": found["JobService.GetJob"]}


ALL: Final = "all"
DEFAULT_CHOICE: Final = "everyday"
"""The names of the two lists; any other choice is a list of tools, separated by commas."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The tools that MCP offers.

    Attributes:
        tools: Those that call RPCs.
        functions: The names of those that are functions.
        is_all: Whether all functions are offered.
    """

    tools: Sequence[Tool]
    functions: frozenset[str] = frozenset()
    is_all: bool = False

    @property
    def with_functions(self) -> bool:
        """Whether any function may be offered."""
        return self.is_all or bool(self.functions)

    def has_function(self, name: str) -> bool:
        """Whether a function is offered, if the server has it."""
        return self.is_all or name in self.functions


def chosen_tools(choice: str, functions: Collection[str] = ()) -> ToolChoice:
    """The tools that a choice names: ``everyday``, ``all``, or names separated by commas, with ``everyday`` among them.

    Which tools plugins have is not known yet: if there are plugins, any name may be one of theirs.

    Args:
        choice: The choice.
        functions: The names of the tools that are functions.

    Raises:
        UnknownToolsError: A name is not that of a tool.
    """
    wanted: dict[str, Tool] = {}
    names = [part.strip() for part in choice.split(",") if part.strip()] or [DEFAULT_CHOICE]
    for name in names:
        some = {ALL: TOOLS, DEFAULT_CHOICE: EVERYDAY}.get(name) or ((BY_NAME[name],) if name in BY_NAME else ())
        if not some and name not in functions and not plugin_names():
            known = ", ".join([*BY_NAME, *functions])
            raise UnknownToolsError.at("tools", f"{name!r} is no tool; give all, everyday, or some of {known}.")
        wanted |= {tool.name: tool for tool in some}
    chosen = tuple(tool for tool in TOOLS if tool.name in wanted)
    others = frozenset(names).difference(BY_NAME, (ALL, DEFAULT_CHOICE))
    return ToolChoice(chosen, others, ALL in names)
