"""Documents as JSON: the input of a job, and the answer of a reading process."""

import json
from dataclasses import asdict
from typing import Any

from memotree.forest.documents.document import Document, Section, Table, Turn


def to_json(document: Document) -> bytes:
    """Returns a document as JSON in UTF-8."""
    return json.dumps(asdict(document), ensure_ascii=False).encode()


def from_json(data: bytes) -> Document:
    """Returns the document that `to_json` wrote."""
    values: dict[str, Any] = json.loads(data)
    outline = tuple(Section(**section) for section in values.pop("outline"))
    turns = tuple(Turn(**turn) for turn in values.pop("turns"))
    pages, warnings = tuple(values.pop("pages")), tuple(values.pop("warnings"))
    tables = tuple(Table(**table) for table in values.pop("tables", ()))
    return Document(**values, outline=outline, turns=turns, pages=pages, warnings=warnings, tables=tables)
