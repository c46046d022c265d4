"""Ingests the documents of a set into a private server over gRPC, and asks Recall its questions as a client does."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from memotree_storage.model.node import LEAF_TYPE

from bench.evidence import Document, EvaluationSet, Question, Span, cost_of
from memotree.client import AsyncClient, Job, Node, RecallResult, Turn
from memotree.client.errors import MemoTreeClientError
from memotree.client.workspace import AsyncWorkspace
from memotree.composition import compose
from memotree.server.app import Server
from memotree.settings import load_settings

WORKSPACE: Final = "recall"

Where: TypeAlias = Literal["own", "pooled"]
"""Whether a question is asked of its own document or of all documents at once."""

Part: TypeAlias = tuple[int, Span]
"""A part of a document, which is packed whole: the number of the document, and the part's place in its text."""

_MOST_IN_A_TREE: Final = 10_000
_NAME_CHARS: Final = 200


@dataclass(slots=True)
class Ingested:
    """The result of ingesting the documents.

    Attributes:
        documents: The documents.
        archives: The id of each document's archive; empty if the ingestion failed, and then its questions find nothing.
        parts: For each leaf the part of a document that it contains, whole or in part: a turn, or its own text.
        leaves: How many leaves each part has; a turn without words has none and can never be packed.
        seconds: How long all documents took, one after the other.
        usage: Calls, tokens read and written, and answers from the cache, by kind and model.
        nodes: The numbers of leaves and of nodes above them.
        failures: A sentence for each document that was not ingested and each question that was not answered.
    """

    documents: Sequence[Document]
    archives: list[str] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    leaves: Counter[Part] = field(default_factory=Counter)
    seconds: float = 0.0
    usage: dict[str, Counter[str]] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one call of Recall.

    Attributes:
        packed: The parts all of whose leaves are in the answer.
        tokens: The tokens of the packed leaves, by the metric.
        dropped: How many leaves were dropped, worst first, because all together exceeded the budget by the metric.
        milliseconds: The time from the call to its answer, over gRPC.
        considered: How many leaves were scored.
    """

    packed: frozenset[Part]
    tokens: float
    dropped: int
    milliseconds: float
    considered: int


@asynccontextmanager
async def private_server(folder: Path, embedding: str | None = None) -> AsyncIterator[AsyncClient]:
    """A client of a server on a folder of its own, with default settings except for the embedding model."""
    settings = load_settings(data_folder=folder, port=0, log_level="warning", embedding_model=embedding)
    async with (
        compose(settings) as operations,
        Server(settings, operations) as server,
        AsyncClient(server.address, timeout=600.0, on_warning=lambda _: None) as client,
    ):
        yield client


# --- In --------------------------------------------------------------------------------------------------------------


async def ingest(workspace: AsyncWorkspace, data: EvaluationSet) -> Ingested:
    """Ingest each document into an archive of its own."""
    found = Ingested(data.documents)
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
        for node_id, span in await _spans(workspace, archive, data.documents[number]):
            found.parts[node_id] = (number, span)
            found.leaves[number, span] += 1
    return found


async def _ingest_one(workspace: AsyncWorkspace, number: int, document: Document) -> Job | None:
    # A turn is identified by its number: the ids of a set need not be unique, and may be of any length.
    turns = [Turn(turn.speaker, turn.text, turn.time, str(place)) for place, turn in enumerate(document.turns)]
    name = " ".join(f"{number} {document.id if turns else document.title}".split())[:_NAME_CHARS]
    given = document.text if document.file is None else document.file.read_bytes()
    job = None
    async for event in workspace.ingest(
        turns or given, name=name, document_id=f"document-{number}", media_type=document.media_type
    ):
        if isinstance(event, Job):
            job = event
    return job


async def _spans(workspace: AsyncWorkspace, archive: str, document: Document) -> list[tuple[str, Span]]:
    """Return each leaf of an archive with its place in the text of the set: that of its turn, or its own."""
    nodes = [node async for node in _nodes(workspace, archive)]
    if document.turns:
        return [
            (node.id, document.lines[int(node.attributes["turn_id"])]) for node in nodes if "turn_id" in node.attributes
        ]
    leaves = [node for node in nodes if node.source is not None and node.type == LEAF_TYPE]
    if document.file is None:
        return [(node.id, (node.source.start, node.source.end)) for node in leaves if node.source is not None]
    leaves.sort(key=lambda node: node.source.start if node.source is not None else 0)
    contents = [(await workspace.node(node)).content for node in leaves]
    return list(zip((node.id for node in leaves), located(contents, document.text), strict=True))


async def _nodes(workspace: AsyncWorkspace, archive: str) -> AsyncIterator[Node]:
    """Yield the nodes of an archive."""
    tree = await workspace.tree(archive=archive, max_nodes=_MOST_IN_A_TREE)
    if not tree.truncated:
        for each in tree.nodes:
            yield each.node
        return
    nodes = [node async for node in workspace.children(archive=archive)]
    for node in nodes:  # grows during the loop
        yield node
        if node.child_count:
            nodes += [child async for child in workspace.children(node)]


def located(contents: Sequence[str], text: str) -> list[Span]:
    """Return where a text says what consecutive contents say; only letters and digits are compared.

    A file is not read here exactly as the set was made: spaces, line ends and page numbers differ. A content that is
    not found has an empty span.
    """
    places = [place for place, char in enumerate(text) if char.isalnum()]
    letters = "".join(text[place] for place in places)
    found, at = [], 0
    for content in contents:
        wanted = "".join(filter(str.isalnum, content))
        begin = letters.find(wanted, max(0, at - len(wanted))) if wanted else -1
        if begin < 0:
            found.append((0, 0))
            continue
        at = begin + len(wanted)
        found.append((places[begin], places[at - 1] + 1))
    return found


# --- Out -------------------------------------------------------------------------------------------------------------


async def ask(workspace: AsyncWorkspace, ingested: Ingested, question: Question, where: Where, budget: int) -> Reply:
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
    return _reply(result, ingested, budget, 1000 * spent)


def _reply(result: RecallResult, ingested: Ingested, budget: int, milliseconds: float) -> Reply:
    recalled = [each for passage in result.passages for each in passage.nodes]
    recalled.sort(key=lambda each: -each.score)
    dropped = 0
    while True:
        # A leaf that was cut to fit is not whole, so its part is not packed; its tokens are counted nevertheless.
        whole = [each for each in recalled if each.tokens >= each.node.content_tokens]
        packed = packed_parts([each.node.id for each in whole], ingested)
        inside = {each.node.id for each in whole if ingested.parts[each.node.id] in packed}
        texts = [each.node.content for each in recalled if each.node.id not in inside]
        texts += [ingested.documents[number].text[slice(*span)] for number, span in packed]
        tokens = sum(map(cost_of, texts))
        if tokens <= budget or not recalled:
            return Reply(packed, tokens, dropped, milliseconds, result.leaves_considered)
        recalled.pop()
        dropped += 1


def packed_parts(node_ids: Sequence[str], ingested: Ingested) -> frozenset[Part]:
    """Return the parts all of whose leaves are among these nodes."""
    found = Counter(ingested.parts[node_id] for node_id in dict.fromkeys(node_ids))
    return frozenset(part for part, count in found.items() if count == ingested.leaves[part])


def recall_of(question: Question, packed: Iterable[Part], data: EvaluationSet) -> float:
    """Return the share of a question's evidence in these parts."""
    own = [span for number, span in packed if number == question.document]
    return question.recall(own, data.documents[question.document])
