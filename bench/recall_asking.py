"""Ingests the documents of a set into a private server over gRPC, and asks Recall its questions as a client does."""

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
class Ingested:
    """The result of ingesting the documents.

    Attributes:
        archives: The id of each document's archive; empty if the ingestion failed, and then its questions find nothing.
        home: The turn that each leaf contains, whole or in part.
        leaves: How many leaves each turn has; a turn without words has none and can never be packed.
        seconds: How long all documents took, one after the other.
        usage: Calls, tokens read and written, and answers from the cache, by kind and model.
        nodes: The numbers of leaves and of nodes above them.
        failures: A sentence for each document that was not ingested and each question that was not answered.
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
    """The result of one call of Recall.

    Attributes:
        packed: The turns all of whose leaves are in the answer.
        tokens: The tokens of the packed leaves, by the metric.
        dropped: How many leaves were dropped, worst first, because all together exceeded the budget by the metric.
        milliseconds: The time from the call to its answer, over gRPC.
        considered: How many leaves were scored.
    """

    packed: frozenset[Place]
    tokens: float
    dropped: int
    milliseconds: float
    considered: int


@asynccontextmanager
async def private_server(folder: Path) -> AsyncIterator[AsyncClient]:
    """A client of a server on a folder of its own, with default settings."""
    settings = load_settings(data_folder=folder, port=0, log_level="warning")
    async with (
        compose(settings) as operations,
        Server(settings, operations) as server,
        AsyncClient(server.address, timeout=600.0) as client,
    ):
        yield client


# --- In --------------------------------------------------------------------------------------------------------------


async def ingest(workspace: AsyncWorkspace, data: EvaluationSet) -> Ingested:
    """Ingest each document into an archive of its own."""
    found = Ingested()
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
    # A turn is identified by its number: the ids of a set need not be unique, and may be of any length.
    turns = [Turn(turn.speaker, turn.text, turn.time, str(place)) for place, turn in enumerate(document.turns)]
    name = " ".join(f"{number} {document.id}".split())[:_NAME_CHARS]
    job = None
    async for event in workspace.ingest(turns, name=name, document_id=f"document-{number}"):
        if isinstance(event, Job):
            job = event
    return job


async def _leaves(workspace: AsyncWorkspace, archive: str) -> AsyncIterator[tuple[str, int]]:
    """Return each leaf of an archive with the number of its turn."""
    tree = await workspace.tree(archive=archive, max_nodes=_MOST_IN_A_TREE)
    nodes = [each.node for each in tree.nodes]
    if tree.truncated:
        nodes = [node async for node in workspace.children(archive=archive)]
        for node in nodes:  # grows during the loop
            if node.child_count:
                nodes += [child async for child in workspace.children(node)]
    for node in nodes:
        if "turn_id" in node.attributes:
            yield node.id, int(node.attributes["turn_id"])


# --- Out -------------------------------------------------------------------------------------------------------------


async def ask(
    workspace: AsyncWorkspace, data: EvaluationSet, ingested: Ingested, question: Question, where: Where, budget: int
) -> Reply:
    """Ask one question with the default strategy."""
    archives = [ingested.archives[question.document]] if where == "own" else []
    begun = time.perf_counter()
    try:
        # An empty archive id would not filter at all; the question of a failed document must find nothing.
        result = (
            RecallResult()
            if archives == [""]
            else await workspace.recall(question.text, token_budget=budget, archives=archives)
        )
    except MemoTreeClientError as error:
        ingested.failures.append(f"Question {question.id} of {where}, {budget} tokens, was not answered. {error}")
        result = RecallResult()
    spent = time.perf_counter() - begun
    return _reply(result, data, ingested, budget, 1000 * spent)


def _reply(result: RecallResult, data: EvaluationSet, ingested: Ingested, budget: int, milliseconds: float) -> Reply:
    recalled = [each for passage in result.passages for each in passage.nodes]
    recalled.sort(key=lambda each: -each.score)
    dropped = 0
    while True:
        # A leaf that was cut to fit is not whole, so its turn is not packed; its tokens are counted nevertheless.
        whole = [each for each in recalled if each.tokens >= each.node.content_tokens]
        packed = packed_turns([each.node.id for each in whole], ingested)
        inside = {each.node.id for each in whole if ingested.home[each.node.id] in packed}
        parts = sum(len(each.node.content) / 4 for each in recalled if each.node.id not in inside)
        tokens = sum(data.costs[place] for place in packed) + parts
        if tokens <= budget or not recalled:
            return Reply(packed, tokens, dropped, milliseconds, result.leaves_considered)
        recalled.pop()
        dropped += 1


def packed_turns(node_ids: Sequence[str], ingested: Ingested) -> frozenset[Place]:
    """Return the turns all of whose leaves are among these nodes."""
    found = Counter(ingested.home[node_id] for node_id in dict.fromkeys(node_ids))
    return frozenset(place for place, count in found.items() if count == ingested.leaves[place])
