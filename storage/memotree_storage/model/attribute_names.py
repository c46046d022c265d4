"""The names of all attributes that MemoTree itself sets on nodes and archives.

Callers may set other attributes, and may change these except for the `RESERVED` ones.
"""

from typing import Final

RECORD_PREFIX: Final = "_"
"""How the names begin of attributes in which a program keeps records; nobody searches for their words."""

# --- Where a summary comes from; see `provenance` ---

SUMMARY_BY: Final = "summary_by"
"""The model (and the version of its prompt) that wrote the summary."""

SUMMARY_OF: Final = "summary_of"
"""A hash of the summary's input: the content of a leaf, or the children of another node and their summaries."""

SUMMARY_PENDING: Final = "summary_pending"
"""Why the summary must be regenerated; absent if it need not be."""

BRIEF_BY: Final = "brief_by"
"""Who made the brief, where that differs from the summary: a method, or ``person``; see `provenance.PERSON`."""

RESERVED: Final = frozenset({SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING, BRIEF_BY})
"""The attributes that only MemoTree may set."""

# --- When a node holds; see `validity` ---

VALID_FROM: Final = "valid_from"
"""From when on what the node says holds; without it, always."""

VALID_TO: Final = "valid_to"
"""From when on it does not hold any more; without it, it still does."""

# --- Of the archive of a document, or of the node that replaces it in a joined archive ---

DOCUMENT_ID: Final = "document_id"
"""The id of the document."""

MEDIA_TYPE: Final = "media_type"
"""The media type of its file."""

SHA256: Final = "sha256"
"""A hash of its text."""

INGESTION: Final = "ingestion"
"""The job that ingested its current version."""

TAGS: Final = "tags"
"""The tags of its nodes, separated by commas."""

SPLITTER: Final = "splitter"
"""The splitter that cut it into leaves."""

CHUNK_SIZE: Final = "chunk_size"
"""The maximum size of a leaf in characters."""

SIMILARITY_THRESHOLD: Final = "similarity_threshold"
"""The similarity above which neighbours were merged."""

MERGE_LIMIT: Final = "merge_limit"
"""The maximum total size of a merged node's leaves in characters."""

# --- Of the nodes of a document ---

SECTION: Final = "section"
"""Of a node that represents a heading: its level, 1 for the outermost."""

SPEAKER: Final = "speaker"
"""The speaker of a turn in a conversation."""

TIME: Final = "time"
"""When the content was said or written."""

TURN_ID: Final = "turn_id"
"""The id of the turn in its conversation."""

TABLE_HEADER: Final = "table_header"
"""The header of the table that a leaf goes on with; its title shows the names of the columns."""

# --- Of a node that represents a former archive ---

JOINED_FROM: Final = "joined_from"
"""The id of that archive."""

DESCRIPTION: Final = "description"
"""Its description, truncated."""
