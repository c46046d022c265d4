"""Checks a request to ingest a document, and reads its document."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import TAGS
from memotree_storage.model.node import Node
from memotree_storage.model.validation import canonical_node, check_archive_name, check_author, node_faults, text_faults
from memotree_storage.ports import Signature

from memotree.forest.documents import Document, SpokenTurn, conversation
from memotree.forest.documents.reader import DocumentReader
from memotree.request.limits import ServiceLimits
from memotree.request.messages import author_of, check_message
from memotree.sessions.operations import DEFAULT_AGENT
from memotree.v1 import forest_service_pb2 as pb

_SMALLEST_CHUNK: Final = 20
_MOST_ID_CHARS: Final = 200


def tag_attribute(tags: Iterable[str]) -> dict[str, str]:
    """Returns the tags of a document's nodes as an attribute of the archive, joined by commas; no tag has a comma."""
    joined = ",".join(sorted({tag.strip() for tag in tags}))
    return {TAGS: joined} if joined else {}


def tags_of(attributes: Mapping[str, str]) -> list[str]:
    """Returns the tags that `tag_attribute` stored."""
    return [tag for tag in attributes.get(TAGS, "").split(",") if tag]


def check_request(request: pb.IngestDocumentRequest, limits: ServiceLimits, *, has_document: bool = True) -> None:
    """Rejects a request with invalid values before any model is paid for.

    Args:
        request: The request.
        limits: The limits of the service.
        has_document: Whether it must have a document; otherwise only its options are checked.

    Raises:
        InvalidInputError: With every invalid field.
    """
    most_chars = limits.node.content_bytes // 4
    faults = []
    if has_document and request.WhichOneof("document") is None:
        faults.append(FieldViolation("document", "is needed: give text, file or conversation"))
    if request.chunk_size and not _SMALLEST_CHUNK <= request.chunk_size <= most_chars:
        faults.append(FieldViolation("chunk_size", f"must be from {_SMALLEST_CHUNK} to {most_chars} characters"))
    if request.merge_limit < 0:
        faults.append(FieldViolation("merge_limit", "must not be negative; leave it out for eight times chunk_size"))
    if not -1 <= request.similarity_threshold <= 1:
        faults.append(FieldViolation("similarity_threshold", "is a cosine, from -1 to 1"))
    if request.max_model_tokens < 0:
        faults.append(FieldViolation("max_model_tokens", "must not be negative; leave it out for no limit"))
    faults += _text_faults(request, limits)
    if faults:
        raise InvalidInputError("The document cannot be ingested", faults)
    if request.name:
        check_archive_name("name", request.name, limits.node)
    if request.message:
        check_message(request.message)


def _text_faults(request: pb.IngestDocumentRequest, limits: ServiceLimits) -> Iterator[FieldViolation]:
    yield from text_faults("document_id", request.document_id, max_chars=_MOST_ID_CHARS)
    yield from text_faults("model_id", request.model_id, max_chars=limits.node.model_id_chars)
    node = canonical_node(Node("0" * 16, "0" * 16, None, "a0", title="x", tags=tuple(request.tags)))
    yield from (fault for fault in node_faults(node, limits.node) if fault.field.startswith("tags"))
    size = len(",".join(request.tags).encode("utf-8", "surrogatepass"))
    if size > limits.node.attribute_value_bytes:
        yield FieldViolation("tags", f"have {size} bytes together, over {limits.node.attribute_value_bytes}; use fewer")


@dataclass(frozen=True, slots=True)
class Ingester:
    """Who ingests: the author of the commit, and the agent that the commit names."""

    author: Signature
    agent: str


def read_ingester(request: pb.IngestDocumentRequest | pb.IngestDocumentsRequest, limits: ServiceLimits) -> Ingester:
    """Returns who ingests, with the current time; as in a session, the agent is the author unless another is given.

    Raises:
        InvalidAuthorError: If Git refuses the name or address.
        InvalidTimeError: If the author's time is before 1970 or after 9999.
    """
    agent = request.agent or DEFAULT_AGENT
    check_author(agent, "", name_field="agent")
    author = Signature(agent, limits.author_email, datetime.now(UTC).replace(microsecond=0))
    return Ingester(author_of(request, author), agent)


async def read(request: pb.IngestDocumentRequest, reader: DocumentReader) -> Document:
    """Reads the document of a request.

    Raises:
        UnreadableDocumentError: If it has no text, or none that can be read.
    """
    name = request.name or request.document_id
    if request.WhichOneof("document") == "conversation":
        return await asyncio.to_thread(_conversation, request)
    data: bytes | str = request.text if request.WhichOneof("document") == "text" else request.file
    return await reader.read(data, media_type=request.media_type, name=name)


def _conversation(request: pb.IngestDocumentRequest) -> Document:
    turns = [
        SpokenTurn(turn.speaker, turn.text, turn.time, turn.id, turn.session) for turn in request.conversation.turns
    ]
    return conversation(turns, name=request.name or request.document_id)
