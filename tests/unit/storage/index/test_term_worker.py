"""Terms from a worker process: they equal those of this process, even if the worker ends."""

import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from memotree_storage.index.leaf_features import leaf_terms
from memotree_storage.index.node_text import text_of
from memotree_storage.index.term_worker import NodeTerms, TermMaker
from memotree_storage.index.terms import document_terms
from memotree_storage.model.node import Node, new_id


def node(number: int) -> Node:
    return Node(
        id=new_id(),
        archive_id=new_id(),
        parent_id=None,
        position="a0",
        title=f"Node {number}",
        brief="A brief with 三 characters",
        summary="snake_case and camelCase",
        content=f"Words about {number} things, \U0001f600 and é.\n" * (number % 7),
        tags=(f"tag{number % 5}",),
    )


NODES = [node(number) for number in range(300)]


def expected(nodes: list[Node]) -> list[NodeTerms]:
    texts = [(text_of(one), one.content) for one in nodes]
    return [(document_terms(text), leaf_terms(text) if content else None) for text, content in texts]


@pytest_asyncio.fixture
async def maker() -> AsyncIterator[TermMaker]:
    maker = TermMaker()
    yield maker
    await maker.rest()


async def test_a_thread_and_the_worker_return_the_same_terms(maker: TermMaker) -> None:
    for count in (0, 1, 199, 200, 300):
        assert await maker.terms_of(NODES[:count]) == expected(NODES[:count])
        assert (maker.worker.process is not None) == (count >= 200)


async def test_a_worker_serves_until_it_is_killed_or_stopped_or_its_input_ends_and_the_next_need_starts_another(
    maker: TermMaker,
) -> None:
    assert await maker.terms_of(NODES) == expected(NODES)
    worker = maker.worker.process
    assert await maker.terms_of(NODES[:250]) == expected(NODES[:250])
    assert worker is not None
    assert maker.worker.process is worker
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert await maker.terms_of(NODES) == expected(NODES)
    assert await maker.terms_of(NODES) == expected(NODES)
    another = maker.worker.process
    assert another not in {worker, None}
    await maker.rest()
    assert another.returncode is not None
    assert await maker.terms_of(NODES) == expected(NODES)
    last = maker.worker.process
    assert last is not None
    assert last.stdin is not None
    last.stdin.close()  # as when the service is killed
    assert last.wait(60) == 0


async def test_a_worker_that_cannot_start_loses_no_terms(maker: TermMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert await maker.terms_of(NODES) == expected(NODES)
