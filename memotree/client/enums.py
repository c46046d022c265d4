"""The enums of the contract as string enums: their values equal and print as their plain names."""

from enum import StrEnum
from typing import Any, Literal, TypeVar

from memotree.v1 import (
    access_service_pb2,
    forest_service_pb2,
    history_service_pb2,
    job_service_pb2,
    maintenance_service_pb2,
    memory_service_pb2,
    node_service_pb2,
    query_service_pb2,
    review_service_pb2,
    session_service_pb2,
    types_pb2,
)


class Level(StrEnum):
    """How much of a node is shown; each level includes the ones before it."""

    TITLE = "TITLE"
    BRIEF = "BRIEF"
    SUMMARY = "SUMMARY"
    DETAIL = "DETAIL"


class RelationType(StrEnum):
    """What a relation means, read from the node that holds it to its target."""

    REFERENCES = "REFERENCES"
    INSPIRED_BY = "INSPIRED_BY"
    CONTRADICTS = "CONTRADICTS"
    EXTENDS = "EXTENDS"
    DEPENDS_ON = "DEPENDS_ON"
    SUPERSEDES = "SUPERSEDES"
    PART_OF = "PART_OF"
    ABOUT = "ABOUT"


class ChangeKind(StrEnum):
    """What happened to a node or archive between two states."""

    CREATED = "CREATED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"


class MergeStyle(StrEnum):
    """How a merge is recorded: a commit with both parents, the branch moved, or a commit without the history."""

    COMMIT = "COMMIT"
    FAST_FORWARD = "FAST_FORWARD"
    SQUASH = "SQUASH"


class TextPartKind(StrEnum):
    """What a part of a text that was compared by words is; the text of an OMITTED one says how much is left out."""

    KEPT = "KEPT"
    REMOVED = "REMOVED"
    ADDED = "ADDED"
    OMITTED = "OMITTED"


class ConflictKind(StrEnum):
    """Why two edits exclude each other; UNSPECIFIED for a kind of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    BOTH_CHANGED = "BOTH_CHANGED"
    CHANGED_AND_DELETED = "CHANGED_AND_DELETED"
    CREATED_TWICE = "CREATED_TWICE"
    PARENT_DELETED = "PARENT_DELETED"
    PARENT_MOVED = "PARENT_MOVED"
    CYCLE = "CYCLE"
    TOO_DEEP = "TOO_DEEP"
    HAS_CHILDREN = "HAS_CHILDREN"
    NAME_TAKEN = "NAME_TAKEN"


class ConflictSide(StrEnum):
    """One of the sides of a conflict."""

    OURS = "OURS"
    THEIRS = "THEIRS"
    BASE = "BASE"


class SessionState(StrEnum):
    """The state of a session; only an open one accepts changes."""

    OPEN = "OPEN"
    DISCARDED = "DISCARDED"
    EXPIRED = "EXPIRED"
    DETACHED = "DETACHED"


class JobState(StrEnum):
    """The state of a job; one that failed, stopped or was cancelled can be resumed."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    CANCELLED = "CANCELLED"


class Role(StrEnum):
    """What somebody may do in a workspace; each role may do all that the ones before it may.

    NONE stands for a role of a newer server, too.
    """

    NONE = "NONE"
    READER = "READER"
    WRITER = "WRITER"
    REVIEWER = "REVIEWER"
    ADMIN = "ADMIN"


class SearchType(StrEnum):
    """How a search finds nodes: by words, by meaning, along relations, or by words and meaning fused."""

    FULL_TEXT = "FULL_TEXT"
    SEMANTIC = "SEMANTIC"
    RELATION = "RELATION"
    HYBRID = "HYBRID"


class SearchScope(StrEnum):
    """The nodes that a search covers."""

    ALL = "ALL"
    CURRENT_VIEW = "CURRENT_VIEW"
    SUBTREE = "SUBTREE"
    RELATED = "RELATED"


class UpdateMode(StrEnum):
    """How given values are combined with the present ones."""

    MERGE = "MERGE"
    REPLACE = "REPLACE"
    APPEND = "APPEND"
    PREPEND = "PREPEND"


class RecallStrategy(StrEnum):
    """What Recall returns: lowest common ancestors of the nearest nodes, the best of all levels, or packed leaves."""

    LCA = "LCA"
    COLLAPSED = "COLLAPSED"
    HYBRID = "HYBRID"


class QueryEnd(StrEnum):
    """Why a question with tools ended; UNSPECIFIED for a reason of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    ANSWERED = "ANSWERED"
    CALL_LIMIT = "CALL_LIMIT"
    FAULTY_CALLS = "FAULTY_CALLS"
    TOKEN_LIMIT = "TOKEN_LIMIT"  # noqa: S105 - tokens of a language model
    ANSWER_CUT = "ANSWER_CUT"
    TIME_LIMIT = "TIME_LIMIT"
    MODEL_FAILED = "MODEL_FAILED"


class QueryStrategy(StrEnum):
    """How a question is answered with tools; UNSPECIFIED for a strategy of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    DIRECT = "DIRECT"
    SINGLE_TOOL = "SINGLE_TOOL"
    SEQUENTIAL = "SEQUENTIAL"
    PARALLEL = "PARALLEL"
    ITERATIVE = "ITERATIVE"


class DropReason(StrEnum):
    """Why a node that recall found is not part of the answer; UNSPECIFIED for a reason of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    BUDGET = "BUDGET"
    COPY = "COPY"
    SCORE = "SCORE"


class StaleReason(StrEnum):
    """Why a summary needs renewal: its node's content changed, its children changed, or the chat model failed."""

    CONTENT = "CONTENT"
    CHILDREN = "CHILDREN"
    PENDING = "PENDING"


class Similarity(StrEnum):
    """How a note resembles a remembered text: it says the same, or something else of the same subject."""

    DUPLICATE = "DUPLICATE"
    SUPERSEDED = "SUPERSEDED"


class FaultKind(StrEnum):
    """What is wrong with a file that another program committed; UNSPECIFIED for a kind of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    ORPHAN = "ORPHAN"
    NO_ARCHIVE = "NO_ARCHIVE"
    CYCLE = "CYCLE"
    OTHER_ARCHIVE = "OTHER_ARCHIVE"
    NAME_TAKEN = "NAME_TAKEN"
    UNREADABLE = "UNREADABLE"
    TOO_DEEP = "TOO_DEEP"


class ProposalStatus(StrEnum):
    """What became of a proposal; UNSPECIFIED for a status of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    OPEN = "OPEN"
    MERGED = "MERGED"
    REJECTED = "REJECTED"
    WITHDRAWN = "WITHDRAWN"


class ProposalEventKind(StrEnum):
    """What somebody did to a proposal; UNSPECIFIED for a kind of a newer server."""

    UNSPECIFIED = "UNSPECIFIED"
    COMMENTED = "COMMENTED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EDITED = "EDITED"
    WITHDRAWN = "WITHDRAWN"
    REOPENED = "REOPENED"
    MERGED = "MERGED"


LevelName = Level | Literal["TITLE", "BRIEF", "SUMMARY", "DETAIL"]
RelationName = (
    RelationType
    | Literal["REFERENCES", "INSPIRED_BY", "CONTRADICTS", "EXTENDS", "DEPENDS_ON", "SUPERSEDES", "PART_OF", "ABOUT"]
)
MergeStyleName = MergeStyle | Literal["COMMIT", "FAST_FORWARD", "SQUASH"]
ConflictSideName = ConflictSide | Literal["OURS", "THEIRS", "BASE"]
JobStateName = JobState | Literal["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "CANCELLED"]
RoleName = Role | Literal["READER", "WRITER", "REVIEWER", "ADMIN"]
SearchTypeName = SearchType | Literal["FULL_TEXT", "SEMANTIC", "RELATION", "HYBRID"]
SearchScopeName = SearchScope | Literal["ALL", "CURRENT_VIEW", "SUBTREE", "RELATED"]
UpdateModeName = UpdateMode | Literal["MERGE", "REPLACE", "APPEND", "PREPEND"]
ProposalStatusName = ProposalStatus | Literal["OPEN", "MERGED", "REJECTED", "WITHDRAWN"]
RecallStrategyName = RecallStrategy | Literal["LCA", "COLLAPSED", "HYBRID"]


_WIRE: dict[type[StrEnum], tuple[Any, str]] = {
    Level: (types_pb2.LevelOfDetail, "LEVEL_OF_DETAIL_"),
    RelationType: (types_pb2.RelationType, "RELATION_TYPE_"),
    Role: (access_service_pb2.Role, "ROLE_"),
    ChangeKind: (types_pb2.ChangeKind, "CHANGE_KIND_"),
    MergeStyle: (history_service_pb2.MergeStyle, "MERGE_STYLE_"),
    TextPartKind: (history_service_pb2.TextPartKind, "TEXT_PART_KIND_"),
    ConflictKind: (types_pb2.ConflictKind, "CONFLICT_KIND_"),
    ConflictSide: (types_pb2.ConflictSide, "CONFLICT_SIDE_"),
    SessionState: (session_service_pb2.SessionState, "SESSION_STATE_"),
    JobState: (job_service_pb2.JobState, "JOB_STATE_"),
    SearchType: (node_service_pb2.SearchType, "SEARCH_TYPE_"),
    SearchScope: (node_service_pb2.SearchScope, "SEARCH_SCOPE_"),
    UpdateMode: (node_service_pb2.UpdateMode, "UPDATE_MODE_"),
    RecallStrategy: (forest_service_pb2.RecallStrategy, "RECALL_STRATEGY_"),
    DropReason: (forest_service_pb2.DropReason, "DROP_REASON_"),
    QueryEnd: (query_service_pb2.QueryEnd, "QUERY_END_"),
    QueryStrategy: (query_service_pb2.QueryStrategy, "QUERY_STRATEGY_"),
    Similarity: (memory_service_pb2.Similarity, "SIMILARITY_"),
    StaleReason: (forest_service_pb2.StaleReason, "STALE_REASON_"),
    ProposalStatus: (review_service_pb2.ProposalStatus, "PROPOSAL_STATUS_"),
    ProposalEventKind: (review_service_pb2.ProposalEventKind, "PROPOSAL_EVENT_KIND_"),
    FaultKind: (maintenance_service_pb2.FaultKind, "FAULT_KIND_"),
}

WordT = TypeVar("WordT", bound=StrEnum)


def to_wire(kind: type[WordT], word: WordT | str | None) -> Any:
    """The number of ``word`` in the contract; 0 (the call's default) for ``None``.

    Raises:
        ValueError: ``word`` is not in ``kind``; the message lists the valid words.
    """
    if word is None:
        return 0
    wire, prefix = _WIRE[kind]
    if word not in kind.__members__:
        raise ValueError(f"{word!r} is not a {kind.__name__}: use one of {', '.join(kind.__members__)}.")
    return wire.Value(f"{prefix}{word}")


def from_wire(kind: type[WordT], number: int, default: WordT) -> WordT:
    """The word for ``number``; ``default`` for 0 and for numbers that only newer servers use."""
    wire, prefix = _WIRE[kind]
    try:
        return kind[wire.Name(number).removeprefix(prefix)]
    except (KeyError, ValueError):
        return default
