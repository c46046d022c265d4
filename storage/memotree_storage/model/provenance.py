"""Where a summary comes from: which model wrote it, from which input, and whether it is only a stopgap.

Three attributes of a node record this. `SUMMARY_OF` is a hash of the input of the summary; if the hash of the current
input differs, the summary is stale. Staleness itself is not stored anywhere: editing a leaf touches no file of its
ancestors, and a merge or revert leaves nothing to correct. A summary without these attributes was written by a person
and is never regenerated automatically.

A brief comes from where the summary comes from; a fourth attribute, `BRIEF_BY`, records the exception. So most files
have no line about their brief.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from memotree_storage.model.attribute_names import BRIEF_BY, RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.node import Entry, Node

PENDING_MODEL: Final = "model"
"""A value of `SUMMARY_PENDING`: the chat model failed, so the node has a built-in summary for now."""

PENDING_CONTENT: Final = "content"
"""A value of `SUMMARY_PENDING`: the content was changed after the summary was given, or was made on a merged side."""

PERSON: Final = "person"
"""A value of `BRIEF_BY`: the summary was generated, but a person gave the brief."""

_HEX_DIGITS: Final = 16


def hash_of_content(content: str) -> str:
    """Return the `SUMMARY_OF` hash of a node that has content of its own: 16 hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()[:_HEX_DIGITS]


def hash_of_children(children: Iterable[tuple[str, str]]) -> str:
    """Return the `SUMMARY_OF` hash of a node summarised from its children, given the (id, summary) of each in order."""
    digest = hashlib.sha256()
    for node_id, summary in children:
        digest.update(f"{node_id} {hashlib.sha256(summary.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()[:_HEX_DIGITS]


def summary_is_made(attributes: Mapping[str, str]) -> bool:
    """Whether the summary of a node was generated."""
    return SUMMARY_OF in attributes


def brief_is_made(attributes: Mapping[str, str]) -> bool:
    """Whether the brief of a node was generated."""
    by = attributes.get(BRIEF_BY)
    return by != PERSON if by else summary_is_made(attributes)


def with_brief_by(attributes: Mapping[str, str], by: str) -> dict[str, str]:
    """Return the attributes with a record of who made the brief: a method, or `PERSON`.

    Nothing is recorded where the summary comes from there, too.
    """
    kept = {name: value for name, value in attributes.items() if name != BRIEF_BY}
    return kept if summary_is_made(kept) == (by != PERSON) else {**kept, BRIEF_BY: by}


def is_older(attributes: Mapping[str, str]) -> bool:
    """Whether the summary of a node was given by a person before the content was last changed."""
    return attributes.get(SUMMARY_PENDING) == PENDING_CONTENT and SUMMARY_OF not in attributes


def shown_summary(summary: str, attributes: Mapping[str, str]) -> str:
    """Return the summary of a node as people and models read it: with a remark if it is older than the content."""
    return f"{summary} (older than the content)" if summary and is_older(attributes) else summary


def with_provenance(attributes: Mapping[str, str], made_by: str, made_of: str, pending: str = "") -> dict[str, str]:
    """Return the attributes of a node whose brief and summary have just been generated."""
    kept = without_provenance(attributes)
    provenance = {SUMMARY_BY: made_by, SUMMARY_OF: made_of}
    return {**kept, **provenance, **({SUMMARY_PENDING: pending} if pending else {})}


def without_provenance(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a node whose brief and summary were written by a person."""
    return {name: value for name, value in attributes.items() if name not in RESERVED}


def is_same_apart_from_summary(one: Entry | None, other: Entry | None) -> bool:
    """Whether two versions of an entry differ at most in brief and summary, and only if both generated them."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        return one == other
    if not summary_is_made(one.attributes) or not summary_is_made(other.attributes):
        return one == other
    return _without_summary(one) == _without_summary(other)


def _without_summary(node: Node) -> Node:
    brief = "" if brief_is_made(node.attributes) else node.brief
    return replace(node, brief=brief, summary="", attributes=without_provenance(node.attributes))
