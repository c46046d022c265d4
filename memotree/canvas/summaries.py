"""Generates summaries during an edit and maintains the attributes that record where a summary comes from.

A brief or summary that the caller gives is the caller's own text and is never renewed. If a call changes the content
but not the summary, a generated summary is made again at once, by the built-in method if a model had made it (the
model's follows by a job), and a given one stays and is marked as older than its content.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import RESERVED, SUMMARY_BY, SUMMARY_PENDING
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PENDING_MODEL,
    PERSON,
    brief_is_made,
    hash_of_children,
    hash_of_content,
    is_older,
    summary_is_made,
    with_brief_by,
    with_provenance,
    without_provenance,
)
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot

from memotree.models.extractive import MADE_BY, brief_of, digest_of, summary_of
from memotree.sessions.editing import SessionEditor

_BUILT_IN: Final = frozenset({MADE_BY, "verbatim"})
"""Who makes a summary without a chat model."""

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


async def extracted(node: Node) -> GeneratedSummary:
    """A brief and a summary from the content of a node; those of a long text are made in a thread."""
    return await in_thread_if_long(len(node.content), _extracted, node)


def _extracted(node: Node) -> GeneratedSummary:
    brief, summary = brief_of(node.title, node.content), summary_of(node.title, node.content)
    return GeneratedSummary(brief, summary, MADE_BY, hash_of_content(node.content))


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
                parts = [child.summary or child.title for child in children]
                by, summary = MADE_BY, await in_thread_if_long(sum(map(len, parts)), digest_of, parts)
            brief = await in_thread_if_long(len(summary), brief_of, node.title, summary)
            return GeneratedSummary(brief, summary, by, made_of)
    return await extracted(node)


def with_generated(node: Node, made: GeneratedSummary, given: Collection[str] = (), pending: str = "") -> Node:
    """The node with the generated brief and summary, except for those in ``given``, which are a person's."""
    if "summary" in given:
        attributes = with_own_texts(node, given).attributes
        return _with_brief(replace(node, attributes=attributes), made, given)
    attributes = with_provenance(node.attributes, made.by, made.of, pending)
    return _with_brief(replace(node, summary=made.summary, attributes=attributes), made, given)


def _with_brief(node: Node, made: GeneratedSummary, given: Collection[str]) -> Node:
    """The node with the generated brief unless it is in ``given``, and with the record of who made it."""
    by = PERSON if "brief" in given else MADE_BY
    brief = node.brief if "brief" in given else made.brief
    return replace(node, brief=brief, attributes=with_brief_by(node.attributes, by))


def with_own_texts(node: Node, given: Collection[str]) -> Node:
    """The node with the brief or summary in ``given`` marked as a person's."""
    brief_made = "brief" not in given and brief_is_made(node.attributes)
    attributes = without_provenance(node.attributes) if "summary" in given else node.attributes
    return replace(node, attributes=with_brief_by(attributes, MADE_BY if brief_made else PERSON))


async def follow(before: Node, node: Node, given: Collection[str]) -> Node:
    """The node with brief and summary that follow its new title and content, as far as MemoTree made them.

    A text counts as made by MemoTree if the attributes say so, or if a node without such attributes has exactly what
    MemoTree makes of its title and content. A summary that a person gave stays; if the content is another one now, it
    is marked as older. A new title alone replaces no summary of a model and none of a document.

    Args:
        before: The node as it was.
        node: The node with its new title or content, which is its own: it is no summary node.
        given: The names of the fields that the caller gave.
    """
    node = with_own_texts(node, given)
    is_changed = node.content != before.content
    by_model = before.attributes.get(SUMMARY_BY, MADE_BY) not in _BUILT_IN
    if not is_changed and (by_model or node.type in _INGESTED):
        return node
    # Once for both texts, since a hop to a thread takes as long as the summary of a note.
    follows, made = await in_thread_if_long(max(len(before.content), len(node.content)), _renewed, before, node, given)
    if made is not None:
        was_pending = before.attributes.get(SUMMARY_PENDING) == PENDING_MODEL
        pending = PENDING_MODEL if by_model or was_pending else ""
        node = with_generated(node, made, {"brief", "summary"} - follows, pending)
    is_older_now = is_changed or is_older(before.attributes)
    if is_older_now and node.summary and "summary" not in follows and "summary" not in given:
        node = replace(node, attributes={**node.attributes, SUMMARY_PENDING: PENDING_CONTENT})
    return node


def _renewed(before: Node, node: Node, given: Collection[str]) -> tuple[set[str], GeneratedSummary | None]:
    """Which of ``brief`` and ``summary`` follow the new title and content, and the new ones if any does."""
    follows = _made(before) - set(given)
    return follows, _extracted(node) if follows else None


def _made(node: Node) -> set[str]:
    """Which of ``brief`` and ``summary`` of a node MemoTree made."""
    made = {"brief"} if brief_is_made(node.attributes) else set[str]()
    if node.type in _INGESTED and not node.brief:  # the leaves of a document have none
        made.discard("brief")
    if summary_is_made(node.attributes):
        made.add("summary")
    if not node.attributes.keys() & RESERVED and (node.brief or node.summary):
        made |= {"brief"} if node.brief == brief_of(node.title, node.content) != "" else set()
        made |= {"summary"} if node.summary == summary_of(node.title, node.content) != "" else set()
    return made


async def as_at_base(editor: SessionEditor, node: Node) -> Node:
    """The node as it is at the base of the session if it differs only in where its summary comes from.

    So an edit that is taken back leaves nothing staged.
    """
    base = Snapshot(editor.conn, replace(editor.state, session_id=None))
    version = (await tree.versions(base, [node.id])).get(node.id)
    if version is None or version.summary != node.summary or version.title != node.title:
        return node
    entry = await editor.load_node(version)
    return (
        entry
        if replace(entry, attributes=without_provenance(entry.attributes))
        == replace(node, attributes=without_provenance(node.attributes))
        else node
    )
