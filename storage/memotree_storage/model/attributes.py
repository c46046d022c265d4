"""The names of the attributes that MemoTree itself sets on nodes and archives, all in one place.

Anybody may set others, and may change these but for the `RESERVED` ones.
"""

from typing import Final

# --- Where a summary comes from; see `provenance` ---

SUMMARY_BY: Final = "summary_by"
"""The model (and the version of its prompt) that wrote the summary."""

SUMMARY_OF: Final = "summary_of"
"""A hash of what the summary was made from: of a leaf its content, of another node its children and their summaries."""

SUMMARY_PENDING: Final = "summary_pending"
"""Why the summary is to be made anew; absent when it is not."""

RESERVED: Final = frozenset({SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING})
"""The attributes that only MemoTree sets."""

# --- Of the archive of a document, or of the node that stands for it in a joined archive ---

DOCUMENT_ID: Final = "document_id"
"""The document."""

MEDIA_TYPE: Final = "media_type"
"""What kind of file it was."""

SHA256: Final = "sha256"
"""A hash of its text."""

INGESTION: Final = "ingestion"
"""The job that made its present version."""

TAGS: Final = "tags"
"""The tags of its nodes, between commas."""

SPLITTER: Final = "splitter"
"""The way it was split."""

CHUNK_SIZE: Final = "chunk_size"
"""The greatest leaf, in characters."""

SIMILARITY_THRESHOLD: Final = "similarity_threshold"
"""The similarity over which neighbours were merged."""

MERGE_LIMIT: Final = "merge_limit"
"""The most characters that the leaves of a merged node have together."""

# --- Of the nodes of a document ---

SECTION: Final = "section"
"""Of a node that stands for a heading: its level, 1 for the outermost."""

SPEAKER: Final = "speaker"
"""Who said the turn of a conversation."""

TIME: Final = "time"
"""When the content was said or written."""

TURN_ID: Final = "turn_id"
"""The id of the turn in its conversation."""

# --- Of a node that stands for a former archive ---

JOINED_FROM: Final = "joined_from"
"""The id of that archive."""

DESCRIPTION: Final = "description"
"""Its description, cut."""
