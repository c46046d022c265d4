"""Commits, differences, branches and tags, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from memotree.client.conflicts import Conflict
from memotree.client.enums import ChangeKind, TextPartKind, from_wire
from memotree.client.node_values import Node, NodeRef, Source, moment, node_id, stamp
from memotree.v1 import history_service_pb2, types_pb2


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a commit; ``time`` is the current time if ``None``."""

    name: str
    email: str = ""
    time: datetime | None = None

    @classmethod
    def from_wire(cls, message: types_pb2.CommitAuthor) -> Self:
        """Reads the message."""
        return cls(message.name, message.email, moment(message, "timestamp"))

    def to_wire(self) -> types_pb2.CommitAuthor:
        """Writes the message."""
        return types_pb2.CommitAuthor(name=self.name, email=self.email, timestamp=stamp(self.time))


@dataclass(frozen=True, slots=True)
class Commit:
    """A Git commit; ``session_id`` is empty if MemoTree did not make it."""

    id: str
    parent_ids: tuple[str, ...]
    author: Author
    commit_time: datetime | None
    subject: str
    message: str = ""
    session_id: str = ""
    tags: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: history_service_pb2.Commit) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            tuple(message.parent_ids),
            Author.from_wire(message.author),
            moment(message, "commit_time"),
            message.subject,
            message.message,
            message.session_id,
            tuple(message.tags),
        )


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text that was compared by words."""

    kind: TextPartKind
    text: str

    @classmethod
    def from_wire(cls, message: history_service_pb2.TextPart) -> Self:
        """Reads the message."""
        return cls(from_wire(TextPartKind, message.kind, TextPartKind.OMITTED), message.text)


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs; a text of several lines has a unified ``diff``, or ``parts`` if compared by words."""

    field: str
    old_value: str = ""
    new_value: str = ""
    diff: str = ""
    parts: tuple[TextPart, ...] = ()

    @classmethod
    def from_wire(cls, message: history_service_pb2.FieldChange) -> Self:
        """Reads the message."""
        parts = tuple(map(TextPart.from_wire, message.parts))
        return cls(message.field, message.old_value, message.new_value, message.diff, parts)


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One node or archive that a commit or a diff changes; ``fields`` only if asked for."""

    node_id: str
    kind: ChangeKind
    title: str
    is_archive: bool = False
    fields: tuple[FieldChange, ...] = ()
    summary: str = ""

    @classmethod
    def from_wire(cls, message: history_service_pb2.EntryChange) -> Self:
        """Reads the message."""
        return cls(
            message.node_id,
            from_wire(ChangeKind, message.kind, ChangeKind.UPDATED),
            message.title,
            message.is_archive,
            tuple(FieldChange.from_wire(each) for each in message.fields),
            message.summary,
        )


@dataclass(frozen=True, slots=True)
class CommitDetails:
    """A commit with its changes against its first parent: at most 1000 of its ``change_count`` entries."""

    commit: Commit
    changes: tuple[EntryChange, ...] = ()
    change_count: int = 0

    @classmethod
    def from_wire(cls, message: history_service_pb2.GetCommitResponse) -> Self:
        """Reads the message."""
        changes = tuple(EntryChange.from_wire(change) for change in message.changes)
        return cls(Commit.from_wire(message.commit), changes, message.change_count)


@dataclass(frozen=True, slots=True)
class Diff:
    """What differs between two revisions, ordered by node id, and one sentence that sums it up."""

    changes: tuple[EntryChange, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and the commit it points to; a protected one cannot be deleted."""

    name: str
    commit_id: str
    protected: bool = False

    @classmethod
    def from_wire(cls, message: history_service_pb2.Branch) -> Self:
        """Reads the message."""
        return cls(message.name, message.commit_id, message.protected)


@dataclass(frozen=True, slots=True)
class BranchMerge:
    """What a merge gave: the head of the branch, and how many nodes and archives changed on it.

    ``already_merged`` says that the branch had all of the other side already, so that nothing was written.
    """

    commit_id: str
    branch: str
    change_count: int = 0
    already_merged: bool = False

    @classmethod
    def from_wire(cls, message: history_service_pb2.MergeBranchResponse) -> Self:
        """Reads the message."""
        return cls(message.commit_id, message.branch, message.change_count, message.already_merged)


@dataclass(frozen=True, slots=True)
class ChangeSelection:
    """Chooses changes of the other side; one is chosen if it meets every criterion that is given.

    Attributes:
        nodes: Changes of these nodes or archives.
        subtrees: Changes of these and of all that stands below them; with ``nodes``, either is enough.
        tags: Changes of nodes that have one of these tags.
        agents: Changes that one of these agents committed last.
    """

    nodes: Sequence[NodeRef] = ()
    subtrees: Sequence[NodeRef] = ()
    tags: Sequence[str] = ()
    agents: Sequence[str] = ()

    def to_wire(self) -> history_service_pb2.ChangeSelection:
        """The message."""
        return history_service_pb2.ChangeSelection(
            node_ids=[node_id(node) for node in self.nodes],
            subtree_ids=[node_id(node) for node in self.subtrees],
            tags=self.tags,
            agents=self.agents,
        )


@dataclass(frozen=True, slots=True)
class PickedCommit:
    """The commit that reverted, picked or restored; ``changes`` has at most 1000 of its ``change_count`` entries.

    If only a preview was asked for, ``commit_id`` is the head of the branch, and nothing was written.
    """

    commit_id: str
    branch: str
    changes: tuple[EntryChange, ...] = ()
    change_count: int = 0

    @classmethod
    def from_wire(
        cls,
        message: history_service_pb2.RevertCommitResponse
        | history_service_pb2.CherryPickResponse
        | history_service_pb2.RestoreNodesResponse,
    ) -> Self:
        """Reads the message."""
        changes = tuple(EntryChange.from_wire(change) for change in message.changes)
        return cls(message.commit_id, message.branch, changes, message.change_count)


@dataclass(frozen=True, slots=True)
class StagedMerge:
    """What a merge, revert, cherry-pick or restore has staged in a session; its conflicts wait to be resolved there."""

    branch: str
    change_count: int = 0
    conflict_count: int = 0
    already_merged: bool = False

    @classmethod
    def from_wire(
        cls,
        message: history_service_pb2.MergeBranchResponse
        | history_service_pb2.RevertCommitResponse
        | history_service_pb2.CherryPickResponse
        | history_service_pb2.RestoreNodesResponse,
    ) -> Self:
        """Reads the message."""
        merged = isinstance(message, history_service_pb2.MergeBranchResponse) and message.already_merged
        return cls(message.branch, message.change_count, message.conflict_count, merged)


@dataclass(frozen=True, slots=True)
class BranchMergePreview:
    """What a merge would do.

    Attributes:
        source_commit_id: The commit that would be merged.
        branch_commit_id: The head of the branch.
        base_commit_ids: Their merge bases, newest first.
        already_merged: Whether the branch has all of the other side already.
        fast_forward_possible: Whether the branch could be moved to the other side.
        changes: What would change on the branch, ordered by node id.
        conflicts: What both sides changed differently, and what would leave no tree; "ours" is the branch.
    """

    source_commit_id: str
    branch_commit_id: str
    base_commit_ids: tuple[str, ...] = ()
    already_merged: bool = False
    fast_forward_possible: bool = False
    changes: tuple[EntryChange, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @classmethod
    def from_wire(cls, messages: Sequence[history_service_pb2.PreviewMergeResponse]) -> Self:
        """Reads the messages of all pages, at least one."""
        first = messages[0]
        return cls(
            first.source_commit_id,
            first.branch_commit_id,
            tuple(first.base_commit_ids),
            first.already_merged,
            first.fast_forward_possible,
            tuple(EntryChange.from_wire(change) for page in messages for change in page.changes),
            tuple(Conflict.from_wire(conflict) for page in messages for conflict in page.conflicts),
        )


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and the commit it names; a lightweight tag made with git has neither message nor time."""

    name: str
    commit_id: str
    message: str = ""
    create_time: datetime | None = None

    @classmethod
    def from_wire(cls, message: history_service_pb2.Tag) -> Self:
        """Reads the message."""
        return cls(message.name, message.commit_id, message.message, moment(message, "create_time"))


@dataclass(frozen=True, slots=True)
class BlamedLine:
    """One line of a node's content, or one sentence, the commit that wrote it, and the agent of that commit.

    ``line`` is the number of the line, counted from 1.
    """

    text: str
    commit: Commit
    agent: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class NodeRevision:
    """One version of a node: the commit that made it and the node at that commit (``None`` if it was deleted)."""

    commit: Commit
    kind: ChangeKind
    node: Node | None = None

    @classmethod
    def from_wire(cls, message: history_service_pb2.NodeRevision) -> Self:
        """Reads the message."""
        return cls(
            Commit.from_wire(message.commit),
            from_wire(ChangeKind, message.kind, ChangeKind.UPDATED),
            Node.from_wire(message.node) if message.HasField("node") else None,
        )


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A commit that changed a node: what, who, from where and why.

    Attributes:
        commit: The commit.
        agent: The agent of its session, or its author.
        kind: How it changed the node, against the commit's first parent.
        fields: What changed.
        source: Where the new content comes from, if the node says so.
        reason: Why, as the call that changed it has said.
        merged: Whether it is a merge that took the value of another parent, which has a commit of its own for it.
    """

    commit: Commit
    agent: str
    kind: ChangeKind
    fields: tuple[FieldChange, ...] = ()
    source: Source | None = None
    reason: str = ""
    merged: bool = False

    @classmethod
    def from_wire(cls, message: history_service_pb2.ValueChange) -> Self:
        """Reads the message."""
        return cls(
            Commit.from_wire(message.commit),
            message.agent,
            from_wire(ChangeKind, message.kind, ChangeKind.UPDATED),
            tuple(FieldChange.from_wire(field) for field in message.fields),
            Source.from_wire(message.source) if message.HasField("source") else None,
            message.reason,
            message.merged,
        )


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """A commit that changed the answer to a question.

    Attributes:
        commit: The commit.
        agent: The agent of its session, or its author.
        before: What answered best before it; ``None`` if nothing did.
        after: What answers best at it; ``None`` if nothing does.
        source: Where the new answer comes from, if its node says so.
        reason: Why, as the call that changed the node has said.
        merged: Whether it is a merge that took the answer of another parent, which has a commit of its own for it.
    """

    commit: Commit
    agent: str
    before: Node | None = None
    after: Node | None = None
    source: Source | None = None
    reason: str = ""
    merged: bool = False

    @classmethod
    def from_wire(cls, message: history_service_pb2.AnswerChange) -> Self:
        """Reads the message."""
        return cls(
            Commit.from_wire(message.commit),
            message.agent,
            Node.from_wire(message.before) if message.HasField("before") else None,
            Node.from_wire(message.after) if message.HasField("after") else None,
            Source.from_wire(message.source) if message.HasField("source") else None,
            message.reason,
            message.merged,
        )


@dataclass(frozen=True, slots=True)
class AnswerHistory:
    """What answers a question best, and the commits that changed that, newest first: all of them if ``complete``."""

    answer: Node | None
    changes: tuple[AnswerChange, ...] = ()
    complete: bool = True

    @classmethod
    def from_wire(cls, message: history_service_pb2.BisectAnswerResponse) -> Self:
        """Reads the message."""
        return cls(
            Node.from_wire(message.answer) if message.HasField("answer") else None,
            tuple(map(AnswerChange.from_wire, message.changes)),
            message.complete,
        )
