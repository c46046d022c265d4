"""Reads files and conversations into a `Document`: one text and its sections, pages and turns.

Pure (no I/O); import `read_document` and `conversation`.
"""

from memotree.forest.documents.conversation import SpokenTurn, conversation
from memotree.forest.documents.document import Document, Section, Table, Turn, UnreadableDocumentError
from memotree.forest.documents.reading import read_document

__all__ = [
    "Document",
    "Section",
    "SpokenTurn",
    "Table",
    "Turn",
    "UnreadableDocumentError",
    "conversation",
    "read_document",
]
