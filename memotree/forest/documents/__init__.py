"""Reads what people call a document into one text with known parts; pure, import `read_document` and `conversation`."""

from memotree.forest.documents.conversation import SpokenTurn, conversation
from memotree.forest.documents.document import Document, Section, Turn, UnreadableDocumentError
from memotree.forest.documents.reading import read_document

__all__ = [
    "Document",
    "Section",
    "SpokenTurn",
    "Turn",
    "UnreadableDocumentError",
    "conversation",
    "read_document",
]
