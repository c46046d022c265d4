"""Which role each RPC needs, and where: on a branch, in a workspace, or for the server.

The table has every RPC of the contract but those in `OUTSIDE`, which are not checked by it. Any other RPC that is not
in it is refused to everybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from memotree.request.principal import Role


class Place(Enum):
    """Where a role is needed."""

    ANYWHERE = "anywhere"
    """Nowhere in particular: every principal may call it, and its operation answers what that one may see."""
    SERVER = "server"
    """In all workspaces."""
    WORKSPACE = "workspace"
    """In the workspace of the request, on any of its branches."""
    ALL_BRANCHES = "all branches"
    """In the workspace of the request, on all of its branches."""
    BRANCH = "branch"
    """On the branch that the call changes: that of the request, the default one, or that of the session it commits."""
    TARGET = "target"
    """On the target branch of the proposal of the request."""
    PROPOSAL = "proposal"
    """On the branch of the proposal of the request, or on its target."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What a call needs.

    Attributes:
        role: The role.
        place: Where.
    """

    role: Role
    place: Place


_RPCS: Final[Mapping[tuple[Role, Place], Mapping[str, tuple[str, ...]]]] = {
    (Role.NONE, Place.ANYWHERE): {
        "AccessService": (
            "GetPrincipal",
            "ListPrincipals",
            "CreateKey",
            "ListKeys",
            "DeleteKey",
            "GrantRole",
            "RevokeRole",
        ),
        "JobService": ("GetJob", "ListJobs", "WatchJob", "CancelJob", "ResumeJob"),
        "MaintenanceService": ("GetStatus",),
        "WorkspaceService": ("ListWorkspaces",),
    },
    (Role.READER, Place.WORKSPACE): {
        "ForestService": ("Recall", "DrillDown", "Ask", "SuggestArchiveMerges", "ListStaleSummaries"),
        "HistoryService": (
            "ListCommits",
            "GetCommit",
            "ListNodeRevisions",
            "BisectNode",
            "BisectAnswer",
            "BlameNode",
            "DiffRevisions",
            "ListBranches",
            "PreviewMerge",
            "ListTags",
        ),
        "MaintenanceService": ("ListFaults",),
        "NodeService": (
            "GetNode",
            "ResolveNode",
            "ListChildren",
            "GetTree",
            "ExpandNode",
            "CollapseNode",
            "SearchNodes",
        ),
        "QueryService": (
            "Query",
            "StreamQuery",
            "PlanQuery",
            "ListConversations",
            "GetConversation",
            "DeleteConversation",
        ),
        "ReviewService": ("GetProposal", "ListProposals", "ListProtections", "GetPushPolicy", "CheckMemory"),
        "SessionService": ("GetSession", "ListSessions", "ListChanges", "ListConflicts"),
        "ViewService": ("RenderView", "ListViews", "DeleteView"),
        "WorkspaceService": ("GetWorkspace", "GetArchive", "ListArchives"),
    },
    (Role.WRITER, Place.WORKSPACE): {
        "MaintenanceService": ("VerifyWorkspace", "CheckPush"),
        "NodeService": (
            "CreateNode",
            "UpdateNode",
            "DeleteNode",
            "MoveNode",
            "SplitNode",
            "MergeNodes",
            "AddRelation",
            "RemoveRelation",
        ),
        "ReviewService": ("CreateProposal", "CommentProposal"),
        "SessionService": ("OpenSession", "DiscardChanges", "DiscardSession", "RebaseSession", "ResolveConflicts"),
        "WorkspaceService": ("CreateArchive", "UpdateArchive", "DeleteArchive"),
    },
    (Role.WRITER, Place.BRANCH): {
        "ForestService": ("IngestDocument", "IngestDocuments", "MergeArchives", "RenewSummaries"),
        "HistoryService": ("CreateBranch", "DeleteBranch", "MergeBranch", "RevertCommit", "CherryPick", "RestoreNodes"),
        "MemoryService": ("Remember", "Revise", "Forget", "Restore", "BatchChangeMemory"),
        "NodeService": ("BatchChangeNodes",),
        "ReviewService": ("PutMemoryTests",),
        "SessionService": ("CommitChanges",),
    },
    (Role.WRITER, Place.PROPOSAL): {
        "ReviewService": ("UpdateProposal",),
    },
    (Role.WRITER, Place.ALL_BRANCHES): {
        "HistoryService": ("CreateTag", "DeleteTag"),
    },
    (Role.WRITER, Place.SERVER): {
        "WorkspaceService": ("CreateWorkspace",),
    },
    (Role.REVIEWER, Place.TARGET): {
        "ReviewService": ("ReviewProposal", "MergeProposal"),
    },
    (Role.ADMIN, Place.ALL_BRANCHES): {
        "EraseService": ("PreviewErasure", "Erase", "ListErasures", "GetErasure"),
        "JobService": ("StartRebuild", "StartReindex"),
        "MaintenanceService": ("RebuildWorkspace",),
        "ReviewService": ("ProtectBranches", "UnprotectBranches", "SetPushPolicy"),
        "WorkspaceService": ("UpdateWorkspace", "DeleteWorkspace"),
    },
    (Role.ADMIN, Place.SERVER): {
        "AccessService": ("PutPrincipal", "DeletePrincipal"),
        "AuditService": ("ListAuditRecords",),
        "IndexService": ("ChangeEmbedding",),
        "SettingsService": ("ReloadSettings",),
        "MaintenanceService": ("BackUp",),
    },
}

PERMISSIONS: Final[Mapping[str, Permission]] = {
    f"{service}.{rpc}": Permission(role, place)
    for (role, place), services in _RPCS.items()
    for service, rpcs in services.items()
    for rpc in rpcs
}
"""What each RPC needs, by its service and name, such as ``NodeService.GetNode``."""

OUTSIDE: Final = frozenset(f"ToolService.{rpc}" for rpc in ("ListTools", "GetTool", "ExecuteTool", "ExecuteTools"))
"""RPCs that the check does not see, since they need no role themselves.

The catalogue of tools checks each tool that they list or call, as who calls with the roles that it has at that moment;
the RPCs that a tool makes are checked like any others.
"""
