"""The pieces of a new version of a document: what was kept as it stood, and the gaps cut anew."""

from bisect import bisect_right
from dataclasses import dataclass

from memotree.forest.documents.document import Document
from memotree.forest.growth.alignment import Alignment
from memotree.forest.growth.splitting import Piece, split, stretches


@dataclass(frozen=True, slots=True)
class RenewedPiece:
    """A piece of the new version; ``kept`` is the id of the old leaf whose text it is, or ``None`` for a new one."""

    piece: Piece
    kept: str | None


def recut(document: Document, alignment: Alignment, chunk_size: int) -> list[RenewedPiece]:
    """All pieces of a new version in order; joined they are its text.

    Args:
        document: The new version.
        alignment: What it keeps of the old one, see `align`.
        chunk_size: The most characters of a new piece; kept ones stay as long as they are.
    """
    if not document.text:
        return []
    whole = stretches(document)
    starts = [stretch.start for stretch in whole]
    found = [
        RenewedPiece(piece, None)
        for piece in split(document, chunk_size, ((gap.start, gap.end) for gap in alignment.gaps))
    ]
    for kept in alignment.kept:
        stretch = whole[bisect_right(starts, kept.start) - 1]
        found.append(RenewedPiece(Piece(kept.start, kept.end, stretch.section, stretch.turn), kept.id))
    found.sort(key=lambda renewed: renewed.piece.start)
    return found
