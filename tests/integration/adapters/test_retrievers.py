"""The retrievers of LangChain and LlamaIndex return recalled passages that cite their source."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import pytest
from memotree_storage.model.node import new_id

from memotree.client import AsyncClient, AsyncWorkspace, Client, Workspace

pytestmark = pytest.mark.requirement("USE-6")

GUIDE = """# Guide

## Backoff

The pause between two attempts doubles, up to a minute.

## Colours

Apples are red, and pears are green.
"""


@pytest.fixture(scope="module")
def langchain_retriever() -> Any:
    """The module; its framework loads for seconds, which only the process that runs these tests spends."""
    return import_module("memotree.integrations.langchain_retriever")


@pytest.fixture(scope="module")
def llama_index_retriever() -> Any:
    return import_module("memotree.integrations.llama_index_retriever")


@pytest.fixture(scope="module")
def guide(address: str) -> Iterator[Workspace]:
    """A document and a note; tests change it on branches of their own."""
    with Client(address) as client:
        name = f"w-{new_id()}"
        client.create_workspace(name)
        made = client.workspace(name)
        for _ in made.ingest(GUIDE, name="guide.md", document_id="guide.md"):
            pass
        with made.session() as session:
            session.create_archive("notes")
            session.create("Retries", "A failed call is sent again at most five times.", archive="notes", tags=["grpc"])
            session.commit("Note how calls are repeated")
        yield made


@pytest.fixture
async def async_guide(address: str, guide: Workspace) -> AsyncIterator[AsyncWorkspace]:
    """The same workspace."""
    async with AsyncClient(address) as client:
        yield client.workspace(guide.name)


def test_langchain_gets_documents_that_cite_node_commit_and_span(langchain_retriever: Any, guide: Workspace) -> None:
    retriever = langchain_retriever.MemoTreeRetriever(memory=guide, token_budget=60)
    found = retriever.invoke("How long is the pause between attempts?")[0]
    assert "The pause between two attempts doubles" in found.page_content
    data = found.metadata
    assert data["document"] == "guide.md"
    start, end = data["span"]
    assert "The pause between two attempts doubles, up to a minute." in GUIDE[start:end]
    node = guide.at(data["commit"]).node(data["node"])
    assert hashlib.sha256(node.content.encode()).hexdigest() == data["sha256"]
    assert "Backoff" in data["title"]
    assert 0 < data["score"] <= 1
    assert found.id == data["node"] in data["nodes"]
    assert data["confidence"] in {"weak", "strong"}


def test_langchain_filters_reads_any_revision_and_says_when_nothing_is_known(
    langchain_retriever: Any, guide: Workspace
) -> None:
    def titles(memory: Any = guide, **options: object) -> list[str]:
        retriever = langchain_retriever.MemoTreeRetriever(memory=memory, **options)
        return [each.metadata["title"] for each in retriever.invoke("How often is a failed call sent again?")]

    assert titles(archives=("notes",)) == ["Retries"]
    assert titles(with_tags=("grpc",)) == ["Retries"]
    guide.branch("forgetful")
    with guide.session(branch="forgetful") as session:
        session.delete(next(iter(guide.children(archive="notes"))))
        session.commit("Forget it")
    assert titles(guide.at("forgetful"), archives=("notes",)) == []
    assert titles(guide.at("main"), archives=("notes",)) == ["Retries"]
    strict = langchain_retriever.MemoTreeRetriever(memory=guide, only_if_known=True)
    assert strict.invoke("Who won the elections in Peru?") == []


async def test_langchain_works_with_both_clients_on_an_event_loop_and_in_a_chain(
    langchain_retriever: Any, guide: Workspace, async_guide: AsyncWorkspace
) -> None:
    question = "How long is the pause between attempts?"
    near = langchain_retriever.MemoTreeRetriever(memory=guide)
    far = langchain_retriever.MemoTreeRetriever(memory=async_guide)
    assert await near.ainvoke(question) == await far.ainvoke(question) == near.invoke(question)
    with pytest.raises(TypeError, match="AsyncClient"):
        far.invoke(question)
    chain = near | import_module("langchain_core.runnables").RunnableLambda(len)
    assert chain.invoke(question) >= 1


def test_llama_index_gets_nodes_with_scores_that_cite_node_commit_and_span(
    llama_index_retriever: Any, guide: Workspace
) -> None:
    found = llama_index_retriever.MemoTreeRetriever(guide, token_budget=60).retrieve("How long is the pause?")[0]
    assert found.score is not None
    assert 0 < found.score <= 1
    assert found.node.metadata["document"] == "guide.md"
    start, end = found.node.metadata["span"]
    assert "up to a minute" in GUIDE[start:end]
    assert guide.at(found.node.metadata["commit"]).node(found.node_id).id == found.node.metadata["node"]
    shown = found.node.get_content(import_module("llama_index.core.schema").MetadataMode.LLM)
    assert "Backoff" in shown
    assert found.node.metadata["commit"] not in shown


async def test_llama_index_works_with_both_clients_on_an_event_loop(
    llama_index_retriever: Any, guide: Workspace, async_guide: AsyncWorkspace
) -> None:
    question = "How long is the pause between attempts?"
    near = llama_index_retriever.MemoTreeRetriever(guide, archives=["notes"], tags=["grpc"])
    far = llama_index_retriever.MemoTreeRetriever(async_guide, archives=["notes"], tags=["grpc"])
    first, second = await near.aretrieve(question), await far.aretrieve(question)
    assert [each.node_id for each in first] == [each.node_id for each in second] != []
    with pytest.raises(TypeError, match="AsyncClient"):
        far.retrieve(question)


def test_llama_index_puts_it_into_a_query_engine(llama_index_retriever: Any, guide: Workspace) -> None:
    core, model = import_module("llama_index.core"), import_module("llama_index.core.llms").MockLLM()
    engine = import_module("llama_index.core.query_engine").RetrieverQueryEngine(
        llama_index_retriever.MemoTreeRetriever(guide), core.get_response_synthesizer(llm=model)
    )
    answer = engine.query("How long is the pause between attempts?")
    assert "The pause between two attempts doubles" in str(answer)
    assert answer.source_nodes
