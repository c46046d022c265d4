"""Converts between the store's values and the messages of the wire contract."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Relation, Source
from memotree_storage.model.provenance import is_older
from memotree_storage.model.validation import InvalidTimeError, check_author, check_text, check_time
from memotree_storage.ports import Signature
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.sessions import Session

from memotree.request.principal import principal
from memotree.v1 import session_service_pb2, types_pb2

_MESSAGE_BYTES = 64 << 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_SECONDS: Final = 86_400

Level = types_pb2.LevelOfDetail
TITLE = types_pb2.LEVEL_OF_DETAIL_TITLE
BRIEF = types_pb2.LEVEL_OF_DETAIL_BRIEF
SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL

_RELATION_PREFIX = "RELATION_TYPE_"
_STATES = {
    "open": session_service_pb2.SESSION_STATE_OPEN,
    "discarded": session_service_pb2.SESSION_STATE_DISCARDED,
    "expired": session_service_pb2.SESSION_STATE_EXPIRED,
    "detached": session_service_pb2.SESSION_STATE_DETACHED,
}


def level_or(given: Level.ValueType, default: Level.ValueType, field: str = "level") -> Level.ValueType:
    """The given level, or the default if it is unspecified.

    Raises:
        InvalidInputError: The number is not a level.
    """
    if given == types_pb2.LEVEL_OF_DETAIL_UNSPECIFIED:
        return default
    if given not in Level.values():
        raise InvalidInputError.at(field, f"{given} is no level of detail; give 1 to 4.")
    return given


def timestamp(when: datetime | None) -> Timestamp | None:
    """The time as a message; ``None`` for ``None``."""
    if when is None:
        return None
    since = when.astimezone(UTC) - _EPOCH  # FromDatetime is written in Python and takes ten times as long
    return Timestamp(seconds=since.days * _DAY_SECONDS + since.seconds, nanos=since.microseconds * 1000)


def read_time(field: str, message: Timestamp) -> datetime:
    """The time of a message, in UTC.

    Raises:
        InvalidTimeError: It is before 1970 or after 9999.
    """
    try:
        when = message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidTimeError.at(field, "is outside of the years 1970 to 9999.") from error
    check_time(field, when)
    return when


def read_author(message: types_pb2.CommitAuthor, field: str, default: Signature) -> Signature:
    """The author of a message; fields that are not given come from the default.

    Raises:
        InvalidAuthorError: Git refuses the name or address.
        InvalidTimeError: The time is before 1970 or after 9999.
    """
    name = message.name or default.name
    email = message.email if message.name else (message.email or default.email)
    check_author(name, email, field)
    when = read_time(f"{field}.timestamp", message.timestamp) if message.HasField("timestamp") else default.when
    return Signature(name, email, when.replace(microsecond=0))


def author_of(request: Any, default: Signature, field: str = "author") -> Signature:
    """The author of what a call makes: the principal that calls, if it is known; else whom the request names.

    Args:
        request: The request.
        default: The author if the request names none; its address is that of a principal without one.
        field: The field of type CommitAuthor, which the request must have.

    Raises:
        InvalidAuthorError: Git refuses the name or address.
        InvalidTimeError: The time is before 1970 or after 9999.
    """
    named = read_author(getattr(request, field), field, default) if request.HasField(field) else default
    return as_principal(named, default.email)


def as_principal(named: Signature, email: str) -> Signature:
    """The signature of the principal that calls, if it is known, at the time of the one that the call names.

    Args:
        named: Whom the call names; it signs if the principal is not known.
        email: The address of a principal that has none.
    """
    who = principal()
    return Signature(who.name, who.email or email, named.when) if who.is_known else named


def confidence_message(name: str) -> types_pb2.Confidence.ValueType:
    """The message of a confidence, given its name."""
    return types_pb2.Confidence.Value(f"CONFIDENCE_{name.upper()}")


def relation_name(given: types_pb2.RelationType.ValueType, field: str) -> str:
    """The name under which a relation type is stored.

    Raises:
        InvalidInputError: No type is given, or the number is not a relation type.
    """
    if given == types_pb2.RELATION_TYPE_UNSPECIFIED or given not in types_pb2.RelationType.values():
        known = ", ".join(name.removeprefix(_RELATION_PREFIX) for name in types_pb2.RelationType.keys()[1:])
        raise InvalidInputError.at(field, f"is needed: one of {known}.")
    return types_pb2.RelationType.Name(given).removeprefix(_RELATION_PREFIX)


def relation_message(type_name: str, target_id: str, description: str) -> types_pb2.Relation:
    """The message of a relation."""
    kind = types_pb2.RelationType.Value(_RELATION_PREFIX + type_name)
    return types_pb2.Relation(type=kind, target_id=target_id, description=description)


def read_relation(message: types_pb2.Relation, field: str) -> Relation:
    """The relation of a message."""
    return Relation(relation_name(message.type, f"{field}.type"), message.target_id, message.description)


def read_source(message: types_pb2.Source) -> Source:
    """The source of a message."""
    return Source(message.document_id, message.start, message.end, message.page, message.heading, message.sha256)


def node_message(
    version: Version,
    level: Level.ValueType,
    *,
    content: str = "",
    tokens: int | None = None,
    cut: bool = False,
    path: Sequence[str] = (),
    child_count: int = 0,
) -> types_pb2.Node:
    """The message of a node, with the texts of the level.

    Args:
        version: The node.
        level: Which of its texts the message has.
        content: Its content, used at DETAIL.
        tokens: The tokens of a derived content, which the version does not know.
        cut: Whether the content is truncated.
        path: The ids of its ancestors, root first.
        child_count: The number of its children.
    """
    message = types_pb2.Node(
        id=version.entry_id,
        archive_id=version.archive_id,
        parent_id=version.parent_id,
        position=version.position,
        type=version.type,
        title=version.title,
        tags=version.tags,
        attributes=version.attributes,
        etag=version.blob,
        path=path,
        child_count=child_count,
        commit_id=version.commit_id or "",
        update_time=timestamp(version.committed_at),
        content_tokens=version.tokens if tokens is None else tokens,
        level=level,
        relations=[relation_message(*relation) for relation in version.relations],
        source=types_pb2.Source(**version.source) if version.source else None,
    )
    if level >= BRIEF:
        message.brief = version.brief
    if level >= SUMMARY:
        message.summary = version.summary
        message.summary_older = is_older(version.attributes)
    if level >= DETAIL:
        message.content = content
        message.content_cut = cut
    return message


def archive_message(found: ArchiveVersion) -> types_pb2.Archive:
    """The message of an archive."""
    archive = found.archive
    return types_pb2.Archive(
        id=archive.id,
        name=archive.name,
        model_id=archive.model_id,
        description=archive.description,
        attributes=archive.attributes,
        etag=found.version.blob,
    )


def session_message(session: Session) -> session_service_pb2.Session:
    """The message of a session."""
    return session_service_pb2.Session(
        id=session.session_id,
        workspace_id=session.workspace_id,
        branch=session.branch,
        base_commit_id=session.base_commit,
        agent=session.agent,
        state=_STATES[session.state],
        create_time=timestamp(session.created_at),
        update_time=timestamp(session.used_at),
        expire_time=timestamp(session.expires_at),
        change_count=session.change_count,
        conflict_count=session.conflict_count,
        merge_commit_id=session.merged or "",
        rewound=session.rewound,
    )


def check_message(message: str) -> str:
    """The message of a commit, stripped.

    Raises:
        InvalidInputError: It is empty, too long, or has characters that a commit message cannot have.
    """
    stripped = message.strip()
    if not stripped:
        raise InvalidInputError.at("message", "is needed: say what the commit is for.")
    check_text("message", stripped, multiline=True, max_bytes=_MESSAGE_BYTES)
    return stripped
