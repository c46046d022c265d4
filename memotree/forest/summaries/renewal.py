"""Makes new summaries for stale nodes, from the deepest one up. Callers write them to the store."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.attribute_names import SUMMARY_BY, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.model.provenance import (
    PENDING_MODEL,
    PERSON,
    brief_is_made,
    hash_of_children,
    hash_of_content,
    with_brief_by,
    with_provenance,
)
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.forest.summaries.staleness import Scope, reason_of
from memotree.models.concurrent import finish_all
from memotree.models.extractive import brief_of
from memotree.models.gateway import Models, Summary
from memotree.models.meter import Meter

VERBATIM: Final = "verbatim"
"""The author of a summary that is the text itself."""

SUMMARY_CHARS: Final = 200
"""The longest summary that is made (FOREST-10); a text up to this length is its own summary."""

_LONGEST_LINE: Final = 1 << 16
"""A text may be short once its white space is collapsed; one with more characters than this is not tried."""

_AT_ONCE: Final = 256
_FEW: Final = 100
"""More nodes than these are checked in a thread, so that other calls go on meanwhile."""

ReportProgress = Callable[[int], Awaitable[None]]
"""Called with the number of summaries made so far."""

ReadNodes = Callable[[Sequence[Version]], Awaitable[Mapping[str, Node]]]
"""Reads whole nodes of the state that is checked, by id."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """A new summary, and the attributes of its node, which hold its provenance."""

    before: Version
    summary: str
    attributes: Mapping[str, str]
    pending: bool

    @property
    def is_new(self) -> bool:
        """Whether the summary or its attributes differ from the stored ones."""
        return (self.summary, dict(self.attributes)) != (self.before.summary, dict(self.before.attributes))

    def until_model(self) -> "Renewed":
        """Returns the same, marked as used until the chat model makes a summary."""
        return replace(self, attributes={**self.attributes, SUMMARY_PENDING: PENDING_MODEL}, pending=True)

    def version(self) -> Version:
        """Returns the node's version with the new summary, from which its ancestors are summarised."""
        return replace(self.before, summary=self.summary, attributes=self.attributes)

    def apply(self, node: Node) -> Node:
        """Returns the node with the new summary, and with a new brief if its brief was generated, too."""
        is_made = bool(node.brief) and brief_is_made(node.attributes)
        brief = brief_of(node.title, node.content or self.summary) if is_made else node.brief
        return replace(node, summary=self.summary, brief=brief, attributes=dict(self.attributes))


def nodes_at(store: Store, state: State) -> ReadNodes:
    """Returns a reader of whole nodes of a state for a caller that holds no connection."""
    return partial(read_nodes_at, state, store.database, store.entries)


async def summarise_texts(models: Models, texts: Sequence[str], meter: Meter) -> list[Summary]:
    """Returns the summary of each text: the text itself if it is short, else one by a model."""
    if not models.has_chat:
        return await asyncio.to_thread(lambda: [_verbatim(text) or models.summarise_text_now(text) for text in texts])

    async def summarise(text: str) -> Summary:
        return _verbatim(text) or await models.summarise_text(text, meter)

    return await finish_all(map(summarise, texts))


async def summarise_families(
    models: Models, families: Sequence[Sequence[Version | Node]], meter: Meter
) -> list[Summary]:
    """Returns the summary of each node from the summaries of its children; an only child's summary is copied."""
    child_summaries = [[child.summary or child.title for child in below] for below in families]
    if not models.has_chat:
        return await asyncio.to_thread(
            lambda: [
                _only(below) or models.summarise_children_now(summaries)
                for below, summaries in zip(families, child_summaries, strict=True)
            ]
        )

    async def summarise(below: Sequence[Version | Node], summaries: Sequence[str]) -> Summary:
        return _only(below) or await models.summarise_children(summaries, meter)

    return await finish_all(map(summarise, families, child_summaries))


def _verbatim(text: str) -> Summary | None:
    line = " ".join(text.split()) if len(text) <= _LONGEST_LINE else text
    return Summary(line, VERBATIM) if len(line) <= SUMMARY_CHARS else None


def _only(below: Sequence[Version | Node]) -> Summary | None:
    if len(below) != 1 or not below[0].summary:
        return None
    return Summary(below[0].summary, below[0].attributes.get(SUMMARY_BY, VERBATIM))


async def renew(
    read: ReadNodes, models: Models, scope: Scope, meter: Meter, report: ReportProgress | None = None
) -> list[Renewed]:
    """Makes new summaries for every stale node of a scope, the deepest first; writes nothing.

    The result includes summaries that came out unchanged, because the built-in summary is used again
    (`Renewed.is_new` is false). Ancestors of a node whose summary is unchanged are not summarised again for it.

    Raises:
        BudgetExhaustedError: If the meter's limit is reached.
    """
    now = dict(scope.versions)
    contents = await _contents(read, scope, models)
    renewals: list[Renewed] = []

    async def renewed(due: Sequence[Version]) -> list[Renewed]:
        leaves = [version for version in due if version.type != SUMMARY_TYPE]
        texts = [contents[version.entry_id] for version in leaves]
        inner = [version for version in due if version.type == SUMMARY_TYPE]
        families = [[now[child] for child in scope.children[version.entry_id]] for version in inner]
        of_texts = await summarise_texts(models, texts, meter)
        of_families = await summarise_families(models, families, meter)

        def applied() -> list[Renewed]:
            return [
                _renewed(version, summary, hash_of_content(text))
                for version, text, summary in zip(leaves, texts, of_texts, strict=True)
            ] + [
                _renewed(version, summary, hash_of_children((child.entry_id, child.summary) for child in below))
                for version, below, summary in zip(inner, families, of_families, strict=True)
            ]

        return await asyncio.to_thread(applied)

    def due_of(level: Sequence[str]) -> list[Version]:
        return [
            now[entry_id]
            for entry_id in level
            if (now[entry_id].type == SUMMARY_TYPE or entry_id in contents)
            and reason_of(now[entry_id], scope, now, with_models=models.has_chat) is not None
        ]

    for level in scope.levels:
        due = await in_store_thread_if(len(level) > _FEW, due_of, level)
        for start in range(0, len(due), _AT_ONCE):
            batch = await renewed(due[start : start + _AT_ONCE])
            now.update((item.before.entry_id, item.version()) for item in batch)
            renewals += batch
            if report is not None:
                await report(len(renewals))
    return renewals


def _renewed(version: Version, summary: Summary, made_of: str) -> Renewed:
    pending = PENDING_MODEL if summary.pending else ""
    attributes = with_provenance(version.attributes, summary.made_by, made_of, pending)
    if not brief_is_made(version.attributes):
        attributes = with_brief_by(attributes, PERSON)
    return Renewed(version, summary.text, attributes, summary.pending)


async def _contents(read: ReadNodes, scope: Scope, models: Models) -> dict[str, str]:
    """Returns the contents of stale nodes that have content of their own."""

    def stale() -> list[Version]:
        return [
            version
            for version in (scope.versions[entry_id] for entry_id in chain.from_iterable(scope.levels))
            if version.type != SUMMARY_TYPE
            and reason_of(version, scope, scope.versions, with_models=models.has_chat) is not None
        ]

    nodes = await read(await in_store_thread_if(sum(map(len, scope.levels)) > _FEW, stale))
    return {node_id: node.content for node_id, node in nodes.items()}
