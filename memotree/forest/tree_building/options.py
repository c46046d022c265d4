"""How a document is split and its pieces are merged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from memotree_storage.model import attributes

from memotree.forest.chunking.splitting import SPLITTER
from memotree.v1 import forest_service_pb2 as pb

CHUNK_SIZE: Final = 1000
SIMILARITY_THRESHOLD: Final = 0.5
MERGE_FACTOR: Final = 8
"""The merge limit is so many chunks: with one chunk as the limit, as the source of this design has it, next to nothing
could be merged."""


@dataclass(frozen=True, slots=True)
class ChunkingOptions:
    """How a document is split and merged; kept with its archive, so that the next version is treated alike.

    Attributes:
        chunk_size: The greatest leaf, in characters.
        similarity_threshold: Neighbours merge when their similarity is over it.
        merge_limit: The most characters that the leaves of a merged node have together.
    """

    chunk_size: int = CHUNK_SIZE
    similarity_threshold: float = SIMILARITY_THRESHOLD
    merge_limit: int = CHUNK_SIZE * MERGE_FACTOR

    @classmethod
    def from_request(cls, request: pb.IngestDocumentRequest, before: Mapping[str, str] | None = None) -> Self:
        """What the request asks for; what it does not say is as it was ``before``, else by default."""
        known = _known(before or {})
        chunk_size = request.chunk_size or int(known.get(attributes.CHUNK_SIZE, CHUNK_SIZE))
        if request.merge_limit or request.chunk_size:
            merge_limit = request.merge_limit or MERGE_FACTOR * chunk_size
        else:
            merge_limit = int(known.get(attributes.MERGE_LIMIT, MERGE_FACTOR * chunk_size))
        if request.HasField("similarity_threshold"):
            threshold = request.similarity_threshold
        else:
            threshold = known.get(attributes.SIMILARITY_THRESHOLD, SIMILARITY_THRESHOLD)
        return cls(chunk_size, threshold, merge_limit)

    def attributes(self) -> dict[str, str]:
        """As attributes of the archive."""
        return {
            attributes.CHUNK_SIZE: str(self.chunk_size),
            attributes.SIMILARITY_THRESHOLD: str(self.similarity_threshold),
            attributes.MERGE_LIMIT: str(self.merge_limit),
            attributes.SPLITTER: SPLITTER,
        }


def _known(given: Mapping[str, str]) -> dict[str, float]:
    """The settings among an archive's attributes; what a person made unreadable there counts as not said."""
    found = {}
    for name in (attributes.CHUNK_SIZE, attributes.SIMILARITY_THRESHOLD, attributes.MERGE_LIMIT):
        try:
            found[name] = float(given[name])
        except (KeyError, ValueError):
            continue
    return found
