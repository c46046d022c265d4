"""How a document is split and its pieces are merged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from memotree_storage.model import attribute_names

from memotree.forest.chunking.splitting import SPLITTER
from memotree.forest.documents import Document
from memotree.v1 import forest_service_pb2 as pb

TEXT_CHUNK_SIZE: Final = 400
"""The default for a text: a paragraph or two, so that a fact of one line can be recalled without a page around it.
Measured in docs/reference/recall.md."""

CHUNK_SIZE: Final = 1000
"""The default for a turn of a conversation, which should be one leaf, and for code."""

SIMILARITY_THRESHOLD: Final = 0.5
MERGE_FACTOR: Final = 8
"""The default merge limit in chunks. With a limit of one chunk, as in the source of this design, almost nothing could
be merged."""


@dataclass(frozen=True, slots=True)
class ChunkingOptions:
    """How a document is split and merged; stored with its archive, so that the next version is treated the same way.

    Attributes:
        chunk_size: The most characters of a leaf.
        similarity_threshold: Neighbours merge only if their similarity is greater.
        merge_limit: The most characters that the leaves of a merged node may have together.
    """

    chunk_size: int = CHUNK_SIZE
    similarity_threshold: float = SIMILARITY_THRESHOLD
    merge_limit: int = CHUNK_SIZE * MERGE_FACTOR

    @classmethod
    def from_request(
        cls, request: pb.IngestDocumentRequest, document: Document, before: Mapping[str, str] | None = None
    ) -> Self:
        """Returns the options of a request; an option not given is taken from the attributes ``before``, or default."""
        known = _known(before or {})
        usual = CHUNK_SIZE if document.turns or document.language else TEXT_CHUNK_SIZE
        chunk_size = request.chunk_size or int(known.get(attribute_names.CHUNK_SIZE, usual))
        if request.merge_limit or request.chunk_size:
            merge_limit = request.merge_limit or MERGE_FACTOR * chunk_size
        else:
            merge_limit = int(known.get(attribute_names.MERGE_LIMIT, MERGE_FACTOR * chunk_size))
        if request.HasField("similarity_threshold"):
            threshold = request.similarity_threshold
        else:
            threshold = known.get(attribute_names.SIMILARITY_THRESHOLD, SIMILARITY_THRESHOLD)
        return cls(chunk_size, threshold, merge_limit)

    def attributes(self) -> dict[str, str]:
        """Returns the options as attributes of the archive."""
        return {
            attribute_names.CHUNK_SIZE: str(self.chunk_size),
            attribute_names.SIMILARITY_THRESHOLD: str(self.similarity_threshold),
            attribute_names.MERGE_LIMIT: str(self.merge_limit),
            attribute_names.SPLITTER: SPLITTER,
        }


def _known(given: Mapping[str, str]) -> dict[str, float]:
    """Returns the options among an archive's attributes; people can edit these, so unreadable values are ignored."""
    found = {}
    for name in (attribute_names.CHUNK_SIZE, attribute_names.SIMILARITY_THRESHOLD, attribute_names.MERGE_LIMIT):
        try:
            found[name] = float(given[name])
        except (KeyError, ValueError):
            continue
    return found
