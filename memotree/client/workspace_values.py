"""Workspaces, sessions and the status of the server, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from memotree.client.conflicts import Conflict
from memotree.client.enums import ChangeKind, FaultKind, SessionState, from_wire
from memotree.client.node_values import Node, moment
from memotree.v1 import maintenance_service_pb2, node_service_pb2, session_service_pb2, workspace_service_pb2


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """One Git repository; ``repository`` is its folder relative to the server's data folder."""

    id: str
    name: str
    description: str = ""
    create_time: datetime | None = None
    default_branch: str = ""
    repository: str = ""

    @classmethod
    def from_wire(cls, message: workspace_service_pb2.Workspace) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            message.name,
            message.description,
            moment(message, "create_time"),
            message.default_branch,
            message.repository,
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A working session as it was when it was read."""

    id: str
    workspace_id: str = ""
    branch: str = ""
    base_commit_id: str = ""
    agent: str = ""
    state: SessionState = SessionState.OPEN
    create_time: datetime | None = None
    update_time: datetime | None = None
    expire_time: datetime | None = None
    change_count: int = 0
    conflict_count: int = 0
    """How many conflicts are not resolved."""
    merge_commit_id: str = ""
    """The commit that its next commit merges; empty for none."""
    rewound: bool = False
    """Whether its branch was rewound by a push; rebase it before it commits."""

    @classmethod
    def from_wire(cls, message: session_service_pb2.Session) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            message.workspace_id,
            message.branch,
            message.base_commit_id,
            message.agent,
            from_wire(SessionState, message.state, SessionState.OPEN),
            moment(message, "create_time"),
            moment(message, "update_time"),
            moment(message, "expire_time"),
            message.change_count,
            message.conflict_count,
            message.merge_commit_id,
            message.rewound,
        )


@dataclass(frozen=True, slots=True)
class StagedChange:
    """How a session changes one node or archive, compared with its base."""

    node_id: str
    kind: ChangeKind
    title: str
    fields: tuple[str, ...] = ()
    commit_messages: tuple[str, ...] = ()
    is_archive: bool = False
    tools: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    """Those that are not resolved."""

    @classmethod
    def from_wire(cls, message: session_service_pb2.StagedChange) -> Self:
        """Reads the message."""
        return cls(
            message.node_id,
            from_wire(ChangeKind, message.kind, ChangeKind.UPDATED),
            message.title,
            tuple(message.fields),
            tuple(message.commit_messages),
            message.is_archive,
            tuple(message.tools),
            tuple(Conflict.from_wire(each) for each in message.conflicts),
        )


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The commit that a session made; ``remaining_changes`` are still staged."""

    commit_id: str
    branch: str
    tag_name: str | None = None
    change_count: int = 0
    remaining_changes: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: session_service_pb2.CommitChangesResponse) -> Self:
        """Reads the message."""
        return cls(
            message.commit_id,
            message.branch,
            message.tag_name or None,
            message.change_count,
            message.remaining_changes,
            tuple(message.warnings),
        )


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The node that the others were merged into, and the ids of the deleted ones."""

    node: Node
    deleted_ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.MergeNodesResponse) -> Self:
        """Reads the message."""
        return cls(Node.from_wire(message.node), tuple(message.deleted_ids), tuple(message.warnings))


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of one change of a batch: the node at level TITLE (only its id if it was deleted)."""

    node: Node
    deleted_ids: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.NodeChangeResult) -> Self:
        """Reads the message."""
        return cls(Node.from_wire(message.node), tuple(message.deleted_ids))


@dataclass(frozen=True, slots=True)
class CommittedChanges:
    """Changes that were committed by one call: a result for each, the commit, and the branch whose head it is."""

    results: tuple[ChangeResult, ...]
    commit_id: str
    branch: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.BatchChangeNodesResponse) -> Self:
        """Reads the message."""
        results = tuple(map(ChangeResult.from_wire, message.results))
        return cls(results, message.commit_id, message.branch, tuple(message.warnings))


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """One store behind the server; ``detail`` is its version, or why it does not answer."""

    name: str
    healthy: bool
    embedded: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Versions, stores, counts and limits (in bytes) of the server."""

    version: str
    stores: tuple[StoreStatus, ...] = ()
    workspace_count: int = 0
    embedding_model: str = ""
    token_counter: str = ""
    max_content_bytes: int = 0
    max_message_bytes: int = 0
    index_backlog: int = 0
    set_aside: Mapping[str, str] = field(default_factory=dict)
    """Why workspaces take no changes, by id."""
    max_depth: int = 0
    """The greatest depth of a node; a root of an archive has depth 0."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """How many nodes stand nowhere at the default branch of a workspace, by its id, where there are any."""
    embedding_dimensions: int = 0
    """The length of the vectors."""
    embedding_notice: str = ""
    """What to do if the settings name another embedding model than the index has."""
    git_remote_url: str = ""
    """Where each workspace is pushed to after its commits; empty if it is not."""
    copies_behind: Mapping[str, str] = field(default_factory=dict)
    """Why the Git remote of a workspace lacks commits, by its id, where it does."""
    signing_key: str = ""
    """The fingerprint of the key that signs commits; empty if they are not signed."""
    plugin_faults: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with plugins whose tools are not there, or not all of them, by the name of the plugin."""

    @classmethod
    def from_wire(cls, message: maintenance_service_pb2.GetStatusResponse) -> Self:
        """Reads the message."""
        return cls(
            message.version,
            tuple(StoreStatus(each.name, each.healthy, each.embedded, each.detail) for each in message.stores),
            message.workspace_count,
            message.embedding_model,
            message.token_counter,
            message.max_content_bytes,
            message.max_message_bytes,
            message.index_backlog,
            {each.workspace_id: each.reason for each in message.set_aside},
            message.max_depth,
            {each.workspace_id: each.count for each in message.faults},
            message.embedding_dimensions,
            message.embedding_notice,
            message.git_remote_url,
            {each.workspace_id: each.reason or "It waits for its turn." for each in message.copies_behind},
            message.signing_key,
            _plugin_faults(message),
        )


def _plugin_faults(message: maintenance_service_pb2.GetStatusResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in message.plugin_faults:
        found[each.plugin] = f"{found[each.plugin]}; {each.reason}" if each.plugin in found else each.reason
    return found


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a long job: ``done`` of ``total`` units of its current step (0: the total is unknown)."""

    step: str
    done: int = 0
    total: int = 0

    @classmethod
    def from_wire(cls, message: maintenance_service_pb2.Progress) -> Self:
        """Reads the message."""
        return cls(message.step, message.done, message.total)


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that another program committed and that has no place in the tree, or is no entry.

    ``line`` counts from 1 and is 0 if it is not known; ``title`` is empty if the file cannot be read.
    """

    kind: FaultKind
    node_id: str
    title: str
    path: str
    line: int
    description: str
    way_out: str

    @classmethod
    def from_wire(cls, message: maintenance_service_pb2.Fault) -> Self:
        """Reads the message."""
        kind = from_wire(FaultKind, message.kind, FaultKind.UNSPECIFIED)
        place = (message.node_id, message.title, message.path, message.line)
        return cls(kind, *place, message.description, message.way_out)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that ``verify`` found between two stores; ``store`` is the one that is wrong."""

    store: str
    what: str
    commit_id: str = ""
    node_id: str = ""
    description: str = ""

    @classmethod
    def from_wire(cls, message: maintenance_service_pb2.Difference) -> Self:
        """Reads the message."""
        return cls(message.store, message.what, message.commit_id, message.node_id, message.description)
