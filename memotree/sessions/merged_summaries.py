"""The summary of a node whose content was merged from both sides follows in the same commit, if MemoTree made it."""

from dataclasses import replace
from typing import Final

from memotree_storage.model.attribute_names import SUMMARY_BY, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PENDING_MODEL,
    PERSON,
    brief_is_made,
    hash_of_content,
    summary_is_made,
    with_brief_by,
    with_provenance,
)

from memotree.models.extractive import MADE_BY, brief_of, summary_of

_BUILT_IN: Final = frozenset({MADE_BY, "verbatim"})
"""Who makes a summary without a chat model."""


def with_renewed_summary(node: Node) -> Node:
    """The node with a built-in summary of its content if a merge has left it with a generated one of a side's content.

    A summary that a person wrote stays, and one of a chat model is made again in the background after the commit.
    """
    attributes = node.attributes
    if attributes.get(SUMMARY_PENDING) != PENDING_CONTENT or not summary_is_made(attributes):
        return node
    if node.type == SUMMARY_TYPE or not node.content:
        return node
    pending = "" if attributes.get(SUMMARY_BY) in _BUILT_IN else PENDING_MODEL
    made = with_provenance(attributes, MADE_BY, hash_of_content(node.content), pending)
    renewed = replace(node, summary=summary_of(node.title, node.content), attributes=made)
    if brief_is_made(attributes) and node.brief:
        return replace(renewed, brief=brief_of(node.title, node.content))
    return replace(renewed, attributes=with_brief_by(made, MADE_BY if brief_is_made(attributes) else PERSON))
