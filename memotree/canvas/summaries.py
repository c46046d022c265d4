"""Summaries that an edit makes, and the attributes that tell where a summary comes from.

A summary given by hand is the caller's own words: nothing tells of a model, so nothing renews it. One that was made
keeps the hash of what it was made from; when a call changes the content and leaves the summary, the node says so.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attributes import RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING
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
"""Longer texts are summed up in a thread, so that other calls go on meanwhile."""

_INGESTED: Final = frozenset({LEAF_TYPE, SUMMARY_TYPE})


class ReservedAttributeError(InvalidInputError):
    """An attribute that only MemoTree sets."""

    reason = "RESERVED_ATTRIBUTE"


@dataclass(frozen=True, slots=True)
class Made:
    """A brief and a summary that were made, by what, and the hash of what they were made from."""

    brief: str
    summary: str
    by: str
    of: str


def check_attributes(given: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Refuse attributes that only MemoTree sets; sent back as they were read, they pass.

    Raises:
        ReservedAttributeError: Naming each.
    """
    wrong = sorted(name for name in RESERVED & given.keys() if given[name] != present.get(name))
    if wrong:
        fault = "is set by MemoTree alone, which tells with it where a summary comes from; leave it out"
        listed = ", ".join(wrong)
        raise ReservedAttributeError(
            f"{listed} cannot be given: only MemoTree sets what tells where a summary comes from. Leave it out; give a "
            "summary to make it your own.",
            [FieldViolation(f"attributes[{name!r}]", fault) for name in wrong],
        )


def kept(given: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """The attributes given, with what tells where the summary comes from as it was."""
    told = {name: value for name, value in present.items() if name in RESERVED}
    return {**without_provenance(given), **told}


async def told_briefly(title: str, content: str) -> tuple[str, str]:
    """The brief and the summary of a text; those of a long one are made in a thread."""

    def told() -> tuple[str, str]:
        return brief_of(title, content), summary_of(title, content)

    return await asyncio.to_thread(told) if len(content) > FEW_CHARS else told()


async def made_for(editor: SessionEditor, node: Node) -> Made:
    """A new brief and summary: of a summary node from its children's summaries, of another from its content."""
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
            return Made(brief_of(node.title, summary), summary, by, made_of)
    brief, summary = await told_briefly(node.title, node.content)
    return Made(brief, summary, MADE_BY, hash_of_content(node.content))


def with_made(node: Node, made: Made, given: Collection[str] = ()) -> Node:
    """The node with what was made for it, the fields given aside.

    A note of somebody's own does not begin to tell where its summary comes from: it would be renewed unasked.
    """
    brief = node.brief if "brief" in given else made.brief
    if "summary" in given:
        return replace(node, brief=brief)
    attributes = without_provenance(node.attributes)
    if node.type in _INGESTED or SUMMARY_OF in node.attributes:
        attributes = with_provenance(attributes, made.by, made.of)
    return replace(node, brief=brief, summary=made.summary, attributes=attributes)


def by_hand(node: Node) -> Node:
    """The node whose summary is the caller's own words."""
    return replace(node, attributes=without_provenance(node.attributes))


def left_behind(node: Node) -> Node:
    """The node whose content changed while its summary stayed: marked, when that was made from the content."""
    made_of = node.attributes.get(SUMMARY_OF)
    if made_of is None:
        return node
    attributes = dict(node.attributes)
    if made_of != hash_of_content(node.content):
        attributes[SUMMARY_PENDING] = PENDING_CONTENT
    elif attributes.get(SUMMARY_PENDING) == PENDING_CONTENT:
        del attributes[SUMMARY_PENDING]
    return replace(node, attributes=attributes)
