"""What a search and a recall find a node by: its title, tags, attributes, brief, summary and content."""

from typing import Final, NamedTuple

from memotree_storage.model.attribute_names import (
    CHUNK_SIZE,
    DOCUMENT_ID,
    INGESTION,
    JOINED_FROM,
    MEDIA_TYPE,
    MERGE_LIMIT,
    RECORD_PREFIX,
    RESERVED,
    SECTION,
    SHA256,
    SIMILARITY_THRESHOLD,
    SPEAKER,
    SPLITTER,
    TABLE_HEADER,
    TAGS,
    TIME,
    TURN_ID,
    VALID_FROM,
    VALID_TO,
)
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node
from memotree_storage.model.titles import own_title, titled
from memotree_storage.model.tokens import count_tokens

_RECORDS: Final = RESERVED | {
    *(DOCUMENT_ID, MEDIA_TYPE, SHA256, INGESTION, TAGS, SPLITTER, CHUNK_SIZE, SIMILARITY_THRESHOLD, MERGE_LIMIT),
    *(SECTION, TABLE_HEADER, TURN_ID, JOINED_FROM, VALID_FROM, VALID_TO),
}
"""The attributes in which MemoTree keeps its records, and the valid time; nobody searches for their words."""

_OF_TURNS: Final = frozenset({SPEAKER, TIME})
"""The attributes of an ingested turn that its text begins with, or that a recall reads as such."""

_SUMMARY_CHARS: Final = 2000

INDEXED_CHARS: Final = 1 << 21
"""Characters of a content that are indexed; a node of the default size limit has half as many at most.

A file of forty million characters, which anybody may push, took a minute, and the index refused its words as too many.
"""


class NodeText(NamedTuple):
    """The texts of a node. A tuple, since thousands at once go to the term worker.

    Attributes:
        title: Its title.
        tags: Its tags.
        facts: Its attributes, each a line with name and value, without records.
        brief: Its brief.
        summary: Its summary.
        content: Its content, or the beginning of it.
        own_title: Its title, if that says more than the content does.
        has_leaf: Whether it has content of its own, and so leaf features.
    """

    title: str = ""
    tags: tuple[str, ...] = ()
    facts: str = ""
    brief: str = ""
    summary: str = ""
    content: str = ""
    own_title: str = ""
    has_leaf: bool = False


def text_of(node: Node) -> NodeText:
    """Return the texts of a node."""
    has_leaf = has_leaf_features(node)
    own = own_title(node.title, node.type, node.content) if has_leaf else node.title
    return NodeText(
        node.title,
        node.tags,
        _facts(node),
        node.brief,
        node.summary,
        node.content[:INDEXED_CHARS],
        own_title=own,
        has_leaf=has_leaf,
    )


def has_leaf_features(node: Node) -> bool:
    """Whether a node has its own content, and so leaf features."""
    return bool(node.content) and node.type != SUMMARY_TYPE


def shown_tokens(node: Node, tokens: int | None = None, title: str | None = None) -> int:
    """Return the tokens of a leaf as a recall shows it, with its title if that says more than the content does.

    Args:
        node: The node.
        tokens: The tokens of its content, if they are known.
        title: Its own title (`own_title`), if that is known.
    """
    if title is None:
        title = own_title(node.title, node.type, node.content)
    if not title and tokens is not None:
        return tokens
    return count_tokens(titled(title, node.content))


def embedded_text(node: Node) -> str:
    """Return the text that a node's vector is computed from: its title and summary, then its tags and attributes."""
    summary = node.summary or node.brief or node.content[:_SUMMARY_CHARS]
    return "\n".join([node.title, summary, *_described(node)])


def embedded_leaf(node: Node, title: str | None = None) -> str:
    """Return the text that the vector of a leaf is computed from; its content alone if it is all there is.

    Args:
        node: The node.
        title: Its own title (`own_title`), if that is known.
    """
    if title is None:
        title = own_title(node.title, node.type, node.content)
    return "\n".join([*([title] if title else []), node.content[:INDEXED_CHARS], *_described(node)])


def _described(node: Node) -> list[str]:
    """The tags and attributes of a note, a line each; those of a document's nodes say nothing about one of them."""
    if node.type in {LEAF_TYPE, SUMMARY_TYPE}:
        return []
    return [line for line in (" ".join(node.tags), _facts(node)) if line]


def _facts(node: Node) -> str:
    left_out = _RECORDS | _OF_TURNS if node.type == LEAF_TYPE else _RECORDS
    found = ((name, value) for name, value in node.attributes.items() if name not in left_out)
    return "\n".join(f"{name} {value}" for name, value in found if not name.startswith(RECORD_PREFIX))
