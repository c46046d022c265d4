"""The Python client of MemoTree: ``Client`` waits for each answer, ``AsyncClient`` is for event loops.

Import everything from here::

    with Client("127.0.0.1:7319") as memory:
        workspace = memory.workspace("demo")
        with workspace.session(agent="planner") as session:
            node = session.create("Retries", "Only calls that may be repeated.", archive="notes")
            session.commit("Note how retries work", tag="v1")
"""

from memotree.client import changes
from memotree.client.aio import AsyncClient
from memotree.client.blocking import Client, Revision, Session, View, Workspace
from memotree.client.changes import Change
from memotree.client.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    Conflict,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    MemoTreeClientError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    Violation,
)
from memotree.client.history import (
    Author,
    BlamedLine,
    Branch,
    Commit,
    CommitDetails,
    Diff,
    EntryChange,
    FieldChange,
    NodeRevision,
    Tag,
)
from memotree.client.link import DEFAULT_ADDRESS
from memotree.client.nodes import Archive, Node, RelatedNode, Relation, SearchHit, SearchResult, Source, Tree, TreeNode
from memotree.client.places import (
    ChangeResult,
    CommitResult,
    Difference,
    MergeResult,
    Progress,
    ServerStatus,
    SessionInfo,
    StagedChange,
    StoreStatus,
    WorkspaceInfo,
)
from memotree.client.reading import AsyncRevision
from memotree.client.session import AsyncSession
from memotree.client.viewing import AsyncView
from memotree.client.views import Collapse, ContextUsage, Expansion, Rendering, ViewInfo
from memotree.client.words import ChangeKind, Level, RelationType, SearchScope, SearchType, SessionState, UpdateMode
from memotree.client.workspace import AsyncWorkspace

__all__ = [
    "DEFAULT_ADDRESS",
    "AbortedError",
    "AlreadyExistsError",
    "Archive",
    "AsyncClient",
    "AsyncRevision",
    "AsyncSession",
    "AsyncView",
    "AsyncWorkspace",
    "Author",
    "BlamedLine",
    "Branch",
    "CancelledError",
    "Change",
    "ChangeKind",
    "ChangeResult",
    "Client",
    "Collapse",
    "Commit",
    "CommitDetails",
    "CommitResult",
    "Conflict",
    "ContextUsage",
    "DataLossError",
    "DeadlineExceededError",
    "Diff",
    "Difference",
    "EntryChange",
    "Expansion",
    "FailedPreconditionError",
    "FieldChange",
    "InternalError",
    "InvalidArgumentError",
    "Level",
    "MemoTreeClientError",
    "MergeResult",
    "Node",
    "NodeRevision",
    "NotFoundError",
    "PermissionDeniedError",
    "Progress",
    "RelatedNode",
    "Relation",
    "RelationType",
    "Rendering",
    "ResourceExhaustedError",
    "Revision",
    "SearchHit",
    "SearchResult",
    "SearchScope",
    "SearchType",
    "ServerStatus",
    "Session",
    "SessionInfo",
    "SessionState",
    "Source",
    "StagedChange",
    "StoreStatus",
    "Tag",
    "Tree",
    "TreeNode",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UpdateMode",
    "View",
    "ViewInfo",
    "Violation",
    "Workspace",
    "WorkspaceInfo",
    "changes",
]
