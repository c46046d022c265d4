"""Ask: recalls nodes, then lets the chat model answer or explore in a bounded number of steps. Answers cite nodes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol

from memotree_storage.errors import InvalidInputError, MemoTreeError
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.postgres import archive_versions, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.node_messages import nodes_at
from memotree.forest.asking.drill_down import DEFAULT_THRESHOLD, DrillDown
from memotree.forest.asking.extracts import EXTRACTIVE_BUDGET, extract
from memotree.forest.asking.loop_context import Context, Shown, nearest_by_words
from memotree.forest.citations import cite
from memotree.forest.recall.answers import as_asked
from memotree.forest.recall.filters import Filter, read_filter, scope_ids
from memotree.forest.recall.recall import NOTHING_RELEVANT
from memotree.forest.recall.superseded import superseded_among
from memotree.forest.usage import usage_rows
from memotree.models.chat_answers import Answer, ContextNode, Decision, Explore
from memotree.models.meter import Meter
from memotree.models.model_errors import UnusableAnswerError
from memotree.request import lookup
from memotree.request.messages import DETAIL, SUMMARY, TITLE
from memotree.request.questions import MAX_QUERY_CHARS, check_question
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

DEFAULT_STEPS: Final = 5
MOST_STEPS: Final = 20
DEFAULT_BUDGET: Final = 4000
MOST_BUDGET: Final = 200_000

_RECALL_SHARE: Final = 0.75
"""The share of a decision's budget that recalled passages may fill; the rest is for their ancestors."""

_MOST_ABOVE: Final = 12
"""The most ancestors of recalled nodes that are shown, so that there is something to explore."""

_LEAST_BELOW: Final = 3
"""The children shown after an exploration: at least this many even if none reaches the threshold, and at most
``_MOST_BELOW``."""

_MOST_BELOW: Final = 20

_SHOWN_ID: Final = 40
"""An id given by a model may be any text; messages quote at most this many characters of it."""

_INSTEAD: Final = "The chat model failed, so the answer consists of the passages that match best."
_ONLY_NEAR: Final = "Recall shows the nearest passages, which are probably about something else."
_NOTHING: Final = "Nothing is known about this here."


class RecallOperation(Protocol):
    """Finds the first nodes; implemented by ``memotree.forest.recall.recall.Recall``."""

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Finds the nodes that answer a question."""
        ...


class DecisionModel(Protocol):
    """Decides between an answer and an exploration; implemented by ``memotree.models``."""

    @property
    def has_chat(self) -> bool:
        """Whether a chat model is configured."""
        ...

    async def decide(
        self,
        query: str,
        nodes: Sequence[ContextNode],
        meter: Meter,
        *,
        must_answer: bool = False,
    ) -> Decision:
        """Returns the next step; with ``must_answer`` the model may not explore."""
        ...


@dataclass(slots=True)
class _Question:
    """One question in progress; all its steps read the same state.

    ``revision`` names that state: the session, or the commit, so that a branch that moves meanwhile has no effect.
    """

    request: pb.AskRequest
    state: State
    revision: str
    wanted: Filter
    scope: set[str] | None
    budget: int
    context: Context
    confidence: types_pb2.Confidence.ValueType = types_pb2.CONFIDENCE_NONE
    meter: Meter = field(default_factory=Meter)
    warnings: list[str] = field(default_factory=list)

    async def admitted(self, snapshot: Snapshot, versions: Mapping[str, Version]) -> set[str]:
        """Returns the ids of the nodes that may be shown: the filter of the request also applies to explored nodes."""
        ended = await superseded_among(snapshot, versions)
        return {
            key
            for key, version in versions.items()
            if self.wanted.admits(version, ended.get(key)) and (self.scope is None or key in self.scope)
        }


class Ask:
    """Answers questions.

    Args:
        recalling: Finds the first nodes.
        drilling: Returns the children of a node that the model explores.
        store: An open store.
        models: Decide on each step; without a chat model the answer consists of the passages themselves.
    """

    def __init__(self, recalling: RecallOperation, drilling: DrillDown, store: Store, models: DecisionModel) -> None:
        self._recalling = recalling
        self._drilling = drilling
        self._store = store
        self._models = models

    async def ask(self, request: pb.AskRequest) -> AsyncIterator[pb.AskResponse]:
        """Answers a question; yields each step when it is taken, and the answer last.

        Raises:
            InvalidInputError: If there is no question, or a number is out of bounds.
        """
        asked = await self._begin(request)
        recalled = await self._recall(asked)
        fresh = asked.context.add(await self._first(asked, recalled))
        yield _step(1, "recall", nodes=fresh)
        if not self._models.has_chat:
            if recalled.confidence != types_pb2.CONFIDENCE_NONE:
                asked.warnings.append(
                    "No chat model is configured, so the answer consists of the passages that match best. Set "
                    "MEMOTREE_CHAT_URL to get answers written by a model."
                )
            yield await self._extractive(asked, recalled)
            return
        if not fresh:
            yield await self._extractive(asked, recalled)
            return
        async with aclosing(self._decisions(asked, recalled)) as events:
            async for event in events:
                yield event

    async def _decisions(self, asked: _Question, recalled: pb.RecallResponse) -> AsyncGenerator[pb.AskResponse, None]:
        """Runs the loop: the model answers, or explores and is asked again; in the last step it must answer."""
        most = asked.request.max_steps or DEFAULT_STEPS
        count, must_answer = 0, False
        while count < most:
            count += 1
            must_answer = must_answer or count == most
            nodes = await asyncio.to_thread(asked.context.for_model)
            try:
                decision = await self._models.decide(asked.request.query, nodes, asked.meter, must_answer=must_answer)
            except UnusableAnswerError as error:
                if must_answer:
                    asked.warnings.append(f"{_INSTEAD} {error.message}")
                    break
                asked.warnings.append(f"Step {count + 1} was skipped: {error.message}")
                must_answer = True
                continue
            except MemoTreeError as error:
                asked.warnings.append(f"{_INSTEAD} {error.message}")
                break
            if isinstance(decision, Answer):
                yield _step(count + 1, "answer")
                yield await self._answer(asked, decision, exhausted=count == most)
                return
            fresh = await self._explore(asked, decision, count) if not must_answer else []
            yield _step(count + 1, "explore", _clean(decision.node_id)[:_SHOWN_ID], _clean(decision.reasoning), fresh)
            # If the model named a node it cannot explore, the node's hint says so in the next step. It must answer now
            # if it has not been shown the node, because there is no hint then, or if the node is a leaf.
            known = asked.context.get(decision.node_id)
            must_answer = known is None or known.is_leaf
        yield await self._extractive(asked, recalled, exhausted=count == most)

    async def _begin(self, request: pb.AskRequest) -> _Question:
        check_question("query", request.query)
        for name, value, most in (
            ("max_steps", request.max_steps, MOST_STEPS),
            ("token_budget", request.token_budget, MOST_BUDGET),
        ):
            if not 0 <= value <= most:
                raise InvalidInputError.at(name, f"is {value}; give 0 (the default) to {most}.")
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            wanted = await read_filter(
                Snapshot(conn, place.state),
                request.filter,
                await archive_versions.archives(Snapshot(conn, place.state)),
            )
            scope = await scope_ids(Snapshot(conn, place.state), wanted)
        budget = request.token_budget or DEFAULT_BUDGET
        revision = place.state.session_id or place.state.commit_id
        return _Question(request, place.state, revision, wanted, scope, budget, Context(budget))

    async def _recall(self, asked: _Question) -> pb.RecallResponse:
        request = asked.request
        budget = int(asked.budget * _RECALL_SHARE)
        if not self._models.has_chat:
            budget = request.token_budget or EXTRACTIVE_BUDGET
        recalled = await self._recalling.recall(
            pb.RecallRequest(
                workspace=asked.state.workspace_id,
                revision=asked.revision,
                query=request.query,
                strategy=request.strategy,
                token_budget=max(1, budget),
                filter=request.filter,
                include_trace=True,
            )
        )
        asked.warnings += [warning for warning in recalled.warnings if warning != NOTHING_RELEVANT]
        asked.confidence = recalled.confidence
        return recalled

    async def _first(self, asked: _Question, recalled: pb.RecallResponse) -> list[Shown]:
        """Returns the recalled nodes, and their parents and roots, below which more can be found."""
        found = [node for passage in recalled.passages for node in passage.nodes] + list(recalled.nodes)
        if asked.scope is not None:
            found = [recalled_node for recalled_node in found if recalled_node.node.id in asked.scope]
        shown = [_recalled(recalled_node, recalled) for recalled_node in found]
        above: dict[str, float] = {}
        for item in sorted(shown, key=lambda item: -item.score):
            for node_id in (item.node.path[-1:], item.node.path[:1]):  # its parent, and the root of its tree
                above.setdefault("".join(node_id), item.score)
        wanted = [node_id for node_id in above if node_id and asked.context.get(node_id) is None]
        async with self._store.database.connection() as conn:
            versions = await tree.versions(Snapshot(conn, asked.state), wanted)
            admitted = await asked.admitted(Snapshot(conn, asked.state), versions)
            kept = [key for key in wanted if key in admitted][:_MOST_ABOVE]
            nodes = await nodes_at(Snapshot(conn, asked.state), self._store, kept, SUMMARY)
        hint = "stands above passages that were found; more of the same may be below"
        shown += [Shown(node, "", hint, above[node.id], -1) for node in nodes]
        return await self._with_text(asked, shown)

    async def _with_text(self, asked: _Question, shown: Sequence[Shown]) -> list[Shown]:
        """Fills in the content of nodes that have both content and children, which recall returns without content."""
        missing = [
            one.node
            for one in shown
            if one.node.child_count and one.node.type != SUMMARY_TYPE and one.node.content_tokens and not one.content
        ]
        read = [node.id for node in missing if node.content_tokens <= asked.budget]
        if read:
            async with self._store.database.connection() as conn:
                nodes = await nodes_at(Snapshot(conn, asked.state), self._store, read, DETAIL)
            texts = {node.id: node.content for node in nodes}
            for one in shown:
                one.content = one.content or texts.get(one.node.id, "")
        return list(shown)

    async def _explore(self, asked: _Question, decision: Explore, count: int) -> list[Shown]:
        """Returns the children of a node to show, or adds a warning if it cannot be explored."""
        refusal = asked.context.refusal(decision.node_id)
        if refusal:
            asked.warnings.append(f"Step {count + 1}: the model named a node that it cannot explore. {refusal}")
            return []
        known = asked.context.get(decision.node_id)
        question = f"{asked.request.query}\n{_clean(decision.reasoning)}"[:MAX_QUERY_CHARS]
        request = pb.DrillDownRequest(
            workspace=asked.state.workspace_id,
            revision=asked.revision,
            node_id=decision.node_id,
            query=question,
            threshold=0.0,
        )
        try:
            below = await self._drilling.drill(request, asked.meter)
        except lookup.NodeNotFoundError:  # in a session that changes meanwhile
            asked.warnings.append(f"Step {count + 1}: node {decision.node_id} no longer exists.")
            below = pb.DrillDownResponse()
        if known is not None:
            known.explored = True
        asked.warnings += below.warnings
        return asked.context.add(await self._below(asked, decision.node_id, below.nodes, count))

    async def _below(self, asked: _Question, node_id: str, found: Sequence[pb.DrilledNode], count: int) -> list[Shown]:
        async with self._store.database.connection() as conn:
            versions = await tree.versions(Snapshot(conn, asked.state), [one.node.id for one in found])
            ids = await asked.admitted(Snapshot(conn, asked.state), versions)
        admitted = [one for one in found if one.node.id in ids]
        good = sum(1 for one in admitted if one.score >= DEFAULT_THRESHOLD)
        shown = [
            Shown(
                one.node,
                one.node.content if one.node.type != SUMMARY_TYPE else "",
                f"below {node_id}, which was explored; relevance {one.score:.2f}",
                one.score,
                count,
            )
            for one in admitted[: min(max(good, _LEAST_BELOW), _MOST_BELOW)]
        ]
        return await self._with_text(asked, shown)

    async def _answer(self, asked: _Question, decision: Answer, *, exhausted: bool) -> pb.AskResponse:
        """Returns the model's answer with the nodes it cites, or else those that share most words with it."""
        cited, unknown = asked.context.cited(decision.cited)
        if unknown:
            asked.warnings.append(
                f"The model cited {', '.join(repr(name[:_SHOWN_ID]) for name in unknown[:5])}, which it was not shown; "
                "these citations were left out."
            )
        if not cited:
            cited = await asyncio.to_thread(nearest_by_words, decision.text, asked.context.leaves())
            asked.warnings.append(
                "The model cited no passages; the ones cited here share most words with its answer."
                if cited
                else "The model cited no passages, and none shares enough words with its answer: check the answer."
            )
        return await self._end(asked, _clean(decision.text), [one.node.id for one in cited], exhausted=exhausted)

    async def _extractive(
        self, asked: _Question, recalled: pb.RecallResponse, *, exhausted: bool = False
    ) -> pb.AskResponse:
        """Returns the recalled passages as the answer, or that nothing is known."""
        budget = asked.request.token_budget or EXTRACTIVE_BUDGET
        text, cited = await asyncio.to_thread(extract, recalled, budget, asked.scope)
        if not cited:
            if recalled.passages or recalled.nodes or not asked.warnings:  # if it found none, recall says why
                asked.warnings.append("Nothing was found. Ask in other words, or with fewer conditions.")
        elif recalled.confidence == types_pb2.CONFIDENCE_NONE:
            text, cited = "", []
            asked.warnings.append(_ONLY_NEAR)
        return await self._end(asked, text or _NOTHING, cited, exhausted=exhausted, extractive=True)

    async def _end(
        self, asked: _Question, text: str, cited: Sequence[str], *, exhausted: bool, extractive: bool = False
    ) -> pb.AskResponse:
        async with self._store.database.connection() as conn:
            versions = await tree.versions(Snapshot(conn, asked.state), cited)
            present = [versions[node_id] for node_id in cited if node_id in versions]
            citations = await cite(Snapshot(conn, asked.state), self._store, present)
        return pb.AskResponse(
            answer=pb.Answer(
                text=text,
                citations=[citations[each.entry_id] for each in present if each.entry_id in citations],
                extractive=extractive,
                steps_exhausted=exhausted,
                usage=usage_rows(asked.meter),
                warnings=list(dict.fromkeys([*asked.warnings, *asked.meter.warnings])),
                commit_id=asked.state.commit_id,
                confidence=asked.confidence,
            )
        )


def _clean(text: str) -> str:
    """Returns a model's text without NUL characters and lone surrogates, so that it can be sent and searched for."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _recalled(one: pb.RecalledNode, recalled: pb.RecallResponse) -> Shown:
    inner = one.node.child_count > 0
    hint = "the nearest common ancestor of several hits, maybe an outline of much" if inner else "a leaf that fits well"
    content = one.node.content if one.node.type != SUMMARY_TYPE else ""
    return Shown(one.node, as_asked(content, one, recalled), hint, one.score, 0)


def _step(
    number: int, action: str, node_id: str = "", reasoning: str = "", nodes: Iterable[Shown] = ()
) -> pb.AskResponse:
    titles = [_at_title(one.node) for one in nodes]
    return pb.AskResponse(
        step=pb.AskStep(number=number, action=action, node_id=node_id, reasoning=reasoning, nodes=titles)
    )


def _at_title(node: types_pb2.Node) -> types_pb2.Node:
    """Returns a copy of a node without its texts."""
    message = types_pb2.Node()
    message.CopyFrom(node)
    message.brief = message.summary = message.content = ""
    message.level = TITLE
    return message
