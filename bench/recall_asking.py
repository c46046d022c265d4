"""A set's documents into a private server over gRPC, and its questions to Recall as any client asks them."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from bench.evidence import Document, EvaluationSet, Place, Question
from memotree.client import AsyncClient, Job, RecallResult, Turn
from memotree.client.errors import MemoTreeClientError
from memotree.client.workspace import AsyncWorkspace
from memotree.server.app import Server
from memotree.server.compose import compose
from memotree.settings import load_settings

WORKSPACE: Final = "recall"

Where: TypeAlias = Literal["own", "pooled"]
"""Whether a question is asked of its own document or of all documents at once."""

_MOST_IN_A_TREE: Final = 10_000
_NAME_CHARS: Final = 200


@dataclass(slots=True)
class Planted:
    """What became of the documents.

    Attributes:
        archives: The archive of each document; empty for one that failed, whose questions find nothing.
        home: The turn that each leaf is of, or a part of.
        leaves: How many leaves each turn has; one without words has none, and can never be packed.
        seconds: How long all documents took, one after the other.
        usage: By kind and model: calls, tokens read and written, answers from the cache.
        nodes: Leaves and nodes above them.
        failures: What did not become a tree, and questions that were not answered, as sentences.
    """

    archives: list[str] = field(default_factory=list)
    home: dict[str, Place] = field(default_factory=dict)
    leaves: Counter[Place] = field(default_factory=Counter)
    seconds: float = 0.0
    usage: dict[str, Counter[str]] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one call of Recall brought.

    Attributes:
        packed: The turns that are in the answer with all their leaves.
        tokens: Of the packed leaves, by the metric.
        dropped: Leaves that were left aside, worst first, because the metric's cost of all was over the budget.
        milliseconds: From the call to its answer, over gRPC.
        considered: Leaves that were looked at.
    """

    packed: frozenset[Place]
    tokens: float
    dropped: int
    milliseconds: float
    considered: int


@asynccontextmanager
async def private_server(folder: Path) -> AsyncIterator[AsyncClient]:
    """A client of a server that works in a folder of its own, with everything as it is by default."""
    settings = load_settings(data_folder=folder, port=0, log_level="warning")
    async with (
        compose(settings) as operations,
        Server(settings, operations) as server,
        AsyncClient(server.address, timeout=600.0) as client,
    ):
        yield client


# --- In --------------------------------------------------------------------------------------------------------------


async def ingest(workspace: AsyncWorkspace, data: EvaluationSet) -> Planted:
    """One archive for each document."""
    found = Planted()
    for number, document in enumerate(data.documents):
        begun = time.perf_counter()
        try:
            job = await _ingest_one(workspace, number, document)
            told = "" if job is None else f"{job.state}: {job.message}"
        except MemoTreeClientError as error:
            job, told = None, str(error)
        found.seconds += time.perf_counter() - begun
        if job is None or job.ingestion is None:
            found.failures.append(f"Document {number} ({document.id}) was not ingested. {told}")
            found.archives.append("")
            continue
        found.archives.append(job.ingestion.archive_id)
        found.nodes.update(leaves=job.ingestion.created_leaves, inner=job.ingestion.summary_nodes)
        for usage in job.usage:
            of = found.usage.setdefault(f"{usage.kind} {usage.model}".strip(), Counter())
            of.update(calls=usage.calls, read=usage.prompt_tokens, written=usage.completion_tokens, cached=usage.cached)
    for number, archive in enumerate(found.archives):
        if not archive:
            continue
        async for node_id, turn in _leaves(workspace, archive):
            found.home[node_id] = (number, turn)
            found.leaves[number, turn] += 1
    return found


async def _ingest_one(workspace: AsyncWorkspace, number: int, document: Document) -> Job | None:
    # A turn goes by its number: the ids of a set need not differ, and may be of any length.
    turns = [Turn(turn.speaker, turn.text, turn.time, str(place)) for place, turn in enumerate(document.turns)]
    name = " ".join(f"{number} {document.id}".split())[:_NAME_CHARS]
    job = None
    async for event in workspace.ingest(turns, name=name, document_id=f"document-{number}"):
        if isinstance(event, Job):
            job = event
    return job


async def _leaves(workspace: AsyncWorkspace, archive: str) -> AsyncIterator[tuple[str, int]]:
    """Each leaf of an archive with the number of its turn."""
    tree = await workspace.tree(archive=archive, max_nodes=_MOST_IN_A_TREE)
    nodes = [each.node for each in tree.nodes]
    if tree.truncated:
        nodes = [node async for node in workspace.children(archive=archive)]
        for node in nodes:  # grows while it is walked
            if node.child_count:
                nodes += [child async for child in workspace.children(node)]
    for node in nodes:
        if "turn_id" in node.attributes:
            yield node.id, int(node.attributes["turn_id"])


# --- Out -------------------------------------------------------------------------------------------------------------


async def ask(
    workspace: AsyncWorkspace, data: EvaluationSet, planted: Planted, question: Question, where: Where, budget: int
) -> Reply:
    """One question, by the default strategy."""
    archives = [planted.archives[question.document]] if where == "own" else []
    begun = time.perf_counter()
    try:
        # An archive that is not there is no filter; its question has nothing to find.
        result = (
            RecallResult()
            if archives == [""]
            else await workspace.recall(question.text, token_budget=budget, archives=archives)
        )
    except MemoTreeClientError as error:
        planted.failures.append(f"Question {question.id} of {where}, {budget} tokens, was not answered. {error}")
        result = RecallResult()
    spent = time.perf_counter() - begun
    return _reply(result, data, planted, budget, 1000 * spent)


def _reply(result: RecallResult, data: EvaluationSet, planted: Planted, budget: int, milliseconds: float) -> Reply:
    recalled = [each for passage in result.passages for each in passage.nodes]
    recalled.sort(key=lambda each: -each.score)
    dropped = 0
    while True:
        # A leaf that was cut to what fits is no whole leaf, and its turn not packed; what it has costs all the same.
        whole = [each for each in recalled if each.tokens >= each.node.content_tokens]
        packed = packed_turns([each.node.id for each in whole], planted)
        inside = {each.node.id for each in whole if planted.home[each.node.id] in packed}
        parts = sum(len(each.node.content) / 4 for each in recalled if each.node.id not in inside)
        tokens = sum(data.costs[place] for place in packed) + parts
        if tokens <= budget or not recalled:
            return Reply(packed, tokens, dropped, milliseconds, result.leaves_considered)
        recalled.pop()
        dropped += 1


def packed_turns(node_ids: Sequence[str], planted: Planted) -> frozenset[Place]:
    """The turns all of whose leaves are among some nodes."""
    found = Counter(planted.home[node_id] for node_id in dict.fromkeys(node_ids))
    return frozenset(place for place, count in found.items() if count == planted.leaves[place])
