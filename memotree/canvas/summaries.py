"""Generates summaries during an edit and maintains the attributes that record where a summary comes from.

A summary that the caller gives is the caller's own text: it has no such attributes, so it is never renewed. A generated
summary keeps the hash of its source; if a call changes the content but not the summary, an attribute marks the node.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    hash_of_children,
    hash_of_content,
    with_provenance,
    without_provenance,
)
from memotree_storage.postgres import tree

from memotree.models.extractive import MADE_BY, brief_of, digest_of, summary_of
from memotree.sessions.editing import SessionEditor

FEW_CHARS: Final = 1 << 15
"""Longer texts are summarised in a thread, so that other calls are not blocked."""

_INGESTED: Final = frozenset({LEAF_TYPE, SUMMARY_TYPE})


class ReservedAttributeError(InvalidInputError):
    """The request sets an attribute that only MemoTree sets."""

    reason = "RESERVED_ATTRIBUTE"


@dataclass(frozen=True, slots=True)
class GeneratedSummary:
    """A generated brief and summary, the model or method that made them, and the hash of their source."""

    brief: str
    summary: str
    by: str
    of: str


def check_attributes(given: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Check that no attribute is changed that only MemoTree sets; unchanged values are accepted.

    Raises:
        ReservedAttributeError: Such attributes are changed; the error names each.
    """
    wrong = sorted(name for name in RESERVED & given.keys() if given[name] != present.get(name))
    if wrong:
        fault = "is set only by MemoTree, to record where a summary comes from; leave it out"
        listed = ", ".join(wrong)
        raise ReservedAttributeError(
            f"{listed} cannot be set: only MemoTree records where a summary comes from. Leave it out; give a summary "
            "to replace the generated one by your own.",
            [FieldViolation(f"attributes[{name!r}]", fault) for name in wrong],
        )


def keep_provenance(given: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """The given attributes, plus the present ones that record where the summary comes from."""
    reserved = {name: value for name, value in present.items() if name in RESERVED}
    return {**without_provenance(given), **reserved}


async def summarise(title: str, content: str) -> tuple[str, str]:
    """The brief and the summary of a text; a long text is summarised in a thread."""

    def summarise() -> tuple[str, str]:
        return brief_of(title, content), summary_of(title, content)

    return await asyncio.to_thread(summarise) if len(content) > FEW_CHARS else summarise()


async def generate(editor: SessionEditor, node: Node) -> GeneratedSummary:
    """A new brief and summary: from the children's summaries for a summary node, else from the content."""
    if node.type == SUMMARY_TYPE:
        ids = (await tree.directly_below(editor.snapshot, [node.id])).get(node.id, [])
        found = await tree.versions(editor.snapshot, ids)
        children = [found[child] for child in ids if child in found]
        if children:
            made_of = hash_of_children((child.entry_id, child.summary) for child in children)
            if len(children) == 1 and children[0].summary:
                by, summary = children[0].attributes.get(SUMMARY_BY, MADE_BY), children[0].summary
            else:
                by, summary = MADE_BY, digest_of([child.summary or child.title for child in children])
            return GeneratedSummary(brief_of(node.title, summary), summary, by, made_of)
    brief, summary = await summarise(node.title, node.content)
    return GeneratedSummary(brief, summary, MADE_BY, hash_of_content(node.content))


def with_generated(node: Node, made: GeneratedSummary, given: Collection[str] = ()) -> Node:
    """The node with the generated brief and summary, except for those that the caller gave.

    A node that was not ingested and has no recorded source gets none here: its summary would be renewed unasked.
    """
    brief = node.brief if "brief" in given else made.brief
    if "summary" in given:
        return replace(node, brief=brief)
    attributes = without_provenance(node.attributes)
    if node.type in _INGESTED or SUMMARY_OF in node.attributes:
        attributes = with_provenance(attributes, made.by, made.of)
    return replace(node, brief=brief, summary=made.summary, attributes=attributes)


def with_own_summary(node: Node) -> Node:
    """The node with its summary marked as the caller's own: without the attributes of a generated one."""
    return replace(node, attributes=without_provenance(node.attributes))


def mark_stale(node: Node) -> Node:
    """The node after its content changed but not its summary: marked as stale if the summary was generated."""
    made_of = node.attributes.get(SUMMARY_OF)
    if made_of is None:
        return node
    attributes = dict(node.attributes)
    if made_of != hash_of_content(node.content):
        attributes[SUMMARY_PENDING] = PENDING_CONTENT
    elif attributes.get(SUMMARY_PENDING) == PENDING_CONTENT:
        del attributes[SUMMARY_PENDING]
    return replace(node, attributes=attributes)
