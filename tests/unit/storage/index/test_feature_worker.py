"""What worker processes return for the stores: it equals what this process makes, also after a worker is killed."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from memotree_storage.git.repository import GitRepository
from memotree_storage.index import leaf_features
from memotree_storage.index.feature_worker import EncodedSlice, FeatureWorkers
from memotree_storage.index.node_text import embedded_leaf, embedded_text, shown_tokens, text_of
from memotree_storage.index.points import index_point
from memotree_storage.index.term_counts import add_counts
from memotree_storage.index.terms import document_terms
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft
from memotree_storage.postgres.pending import Pending
from memotree_storage.qdrant.encoding import CollectionEncoder, upsert_request
from qdrant_client import grpc as wire

from memotree.models.builtin import WordllamaEmbedder

WORKSPACE = new_id()
ENCODER = CollectionEncoder("memory_forest__test")


def node(number: int) -> Node:
    return Node(
        id=new_id(),
        archive_id=new_id(),
        parent_id=None,
        position="a0",
        type=(LEAF_TYPE, SUMMARY_TYPE, "note")[number % 3],
        title=f"Node {number}",
        brief="A brief with 三 characters",
        summary="snake_case and camelCase" if number % 2 else "",
        content=f"Words about {number}  things,\n <s> \U0001f600 and é {'x' * number}.\n" * (number % 7),
        tags=(f"tag{number % 5}",),
    )


NODES = [node(number) for number in range(300)]


def pending(number: int, one: Node, blob: str) -> Pending:
    return Pending(
        outbox_id=number,
        changed=False,
        counted=number % 4 == 0,
        entry_id=one.id,
        blob=blob,
        archive_id=one.archive_id,
        type=one.type,
        tags=list(one.tags),
        tokens=number,
        commit_id="c" * 40,
        line_id=7,
        from_seq=3,
        to_seq=None if number % 2 else 9,
        version_id=1000 + number,
        overrides=[[2, 5]] if number % 3 else [],
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitRepository]:
    with GitRepository.create(tmp_path_factory.mktemp("worker") / "repository.git") as made:
        yield made


@pytest.fixture(scope="module")
def rows(repository: GitRepository) -> list[Pending]:
    signature = service_signature(datetime.now(UTC))
    files = {entry_path(one): encode_entry(one) for one in NODES}
    written = repository.write_commit(CommitDraft(None, files, "Nodes\n", signature, signature))
    return [pending(number, one, written.blobs[entry_path(one)]) for number, one in enumerate(NODES)]


@pytest.fixture(scope="module")
def embedder() -> WordllamaEmbedder:
    return WordllamaEmbedder()


@pytest_asyncio.fixture(scope="module")
async def workers(embedder: WordllamaEmbedder, repository: GitRepository) -> AsyncIterator[FeatureWorkers]:
    """Those of all tests: what one test leaves running, the next one uses."""
    made = FeatureWorkers(embedder, ENCODER, lambda _: repository.path)
    yield made
    await made.stop()


def assert_equal(made: EncodedSlice | None, rows: Sequence[Pending], embedder: WordllamaEmbedder) -> None:
    """Compare with what one process makes of the nodes one by one."""
    assert made is not None
    nodes = NODES[: len(rows)]
    vectors = embedder.embed_now([embedded_text(one) for one in nodes])
    terms = [document_terms(text_of(one)) for one in nodes]
    points = [
        index_point(WORKSPACE, row, *pair) for row, pair in zip(rows, zip(terms, vectors, strict=True), strict=True)
    ]
    # Decoded, since the bytes have the fields of a payload in any order.
    requests = [wire.UpsertPoints.FromString(request) for request in made.encoded.points]
    assert requests == [upsert_request(ENCODER.collection, points)]
    leaves = [
        (row.version_id, shown_tokens(one, row.tokens), leaf_features.leaf_terms(text_of(one)), embedded_leaf(one))
        for row, one in zip(rows, nodes, strict=True)
        if one.content and one.type != SUMMARY_TYPE
    ]
    assert made.encoded.leaf_versions == [version_id for version_id, *_ in leaves]
    own = embedder.embed_now([text for *_, text in leaves])
    expected = [leaf_features.row(1, *values, vector) for (*values, _), vector in zip(leaves, own, strict=True)]
    assert made.encoded.leaf_rows == b"".join(expected)
    fresh = [vector for row, vector in zip(rows, terms, strict=True) if not row.counted]
    counts: Counter[int] = Counter()
    add_counts(counts, made.encoded.terms, made.encoded.documents)
    assert counts == Counter(term for vector in fresh for term in vector.ids)
    assert made.encoded.counted == len(fresh)


async def test_workers_share_the_slices_return_what_this_process_makes_and_end_when_they_rest(
    workers: FeatureWorkers, rows: list[Pending], embedder: WordllamaEmbedder
) -> None:
    many = len(workers.workers)
    assert [workers.useful(count) for count in (0, 999, 1000, 4000)] == [0, 0, 1, many]
    slices = [rows, *(2 * many - 1) * [rows[:10]]]
    made = await asyncio.gather(*(workers.made(1, WORKSPACE, each, many) for each in slices))
    for each, some in zip(made, slices, strict=True):
        assert_equal(each, some, embedder)
    processes = [worker.process for worker in workers.workers]
    assert all(process is not None for process in processes)
    await workers.rest()
    assert all(process is not None and process.returncode is not None for process in processes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.executable", "/nowhere/python")
        assert await workers.made(1, WORKSPACE, rows[:10], 1) is None, "one that cannot start is noticed"


async def test_a_killed_worker_is_noticed_and_another_one_is_started(
    workers: FeatureWorkers, rows: list[Pending], embedder: WordllamaEmbedder
) -> None:
    await workers.made(1, WORKSPACE, rows[:10], 1)
    process = workers.workers[0].process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert await workers.made(1, WORKSPACE, rows[:10], 1) is None
    assert_equal(await workers.made(1, WORKSPACE, rows[:10], 1), rows[:10], embedder)


async def test_a_missing_text_is_left_to_this_process(workers: FeatureWorkers, rows: list[Pending]) -> None:
    lost = rows[5]._replace(blob="f" * 40)
    assert await workers.made(1, WORKSPACE, [*rows[:5], lost], 1) is None
    assert await workers.made(1, WORKSPACE, rows[:5], 1) is not None, "the worker goes on"


async def test_a_worker_reads_what_was_committed_after_it_had_started(
    workers: FeatureWorkers, repository: GitRepository, rows: list[Pending]
) -> None:
    await workers.made(1, WORKSPACE, rows[:1], 1)
    one = node(1)
    signature = service_signature(datetime.now(UTC))
    draft = CommitDraft(None, {entry_path(one): encode_entry(one)}, "One\n", signature, signature)
    blob = repository.write_commit(draft).blobs[entry_path(one)]
    assert await workers.made(1, WORKSPACE, [pending(1, one, blob)], 1) is not None


def test_a_slice_fits_only_rows_that_are_held_as_they_were_read(rows: list[Pending]) -> None:
    some = rows[:3]
    made = EncodedSlice(some, None)  # type: ignore[arg-type]
    held = {row.outbox_id: row for row in rows}
    assert made.fits(held)
    assert not made.fits({**held, some[1].outbox_id: some[1]._replace(to_seq=12)}), "its version has ended meanwhile"
    del held[some[2].outbox_id]
    assert not made.fits(held), "it was applied elsewhere"
