"""The retrievers of LangChain and LlamaIndex return recalled passages that cite their source."""

import hashlib

import pytest
from langchain_core.runnables import RunnableLambda
from llama_index.core import get_response_synthesizer
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode

from memotree.client import AsyncWorkspace, Workspace
from memotree.integrations import langchain_retriever, llama_index_retriever

pytestmark = pytest.mark.requirement("USE-6")

GUIDE = """# Guide

## Backoff

The pause between two attempts doubles, up to a minute.

## Colours

Apples are red, and pears are green.
"""


@pytest.fixture
def guide(workspace: Workspace) -> Workspace:
    """A document and a note."""
    for _ in workspace.ingest(GUIDE, name="guide.md", document_id="guide.md"):
        pass
    with workspace.session() as session:
        session.create_archive("notes")
        session.create("Retries", "A failed call is sent again at most five times.", archive="notes", tags=["grpc"])
        session.commit("Note how calls are repeated", tag="v1")
    return workspace


def test_langchain_gets_documents_that_cite_node_commit_and_span(guide: Workspace) -> None:
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


def test_langchain_filters_reads_any_revision_and_says_when_nothing_is_known(guide: Workspace) -> None:
    def titles(**options: object) -> list[str]:
        retriever = langchain_retriever.MemoTreeRetriever(memory=guide, **options)
        return [each.metadata["title"] for each in retriever.invoke("How often is a failed call sent again?")]

    assert titles(archives=("notes",)) == ["Retries"]
    assert titles(with_tags=("grpc",)) == ["Retries"]
    with guide.session() as session:
        session.delete(next(iter(guide.children(archive="notes"))))
        session.commit("Forget it")
    assert titles(archives=("notes",)) == []
    old = langchain_retriever.MemoTreeRetriever(memory=guide.at("v1"), archives=("notes",))
    assert [each.metadata["title"] for each in old.invoke("How often is a failed call sent again?")] == ["Retries"]
    strict = langchain_retriever.MemoTreeRetriever(memory=guide, only_if_known=True)
    assert strict.invoke("Who won the elections in Peru?") == []


async def test_langchain_works_with_both_clients_on_an_event_loop(
    guide: Workspace, async_workspace: AsyncWorkspace
) -> None:
    question = "How long is the pause between attempts?"
    near = langchain_retriever.MemoTreeRetriever(memory=guide)
    far = langchain_retriever.MemoTreeRetriever(memory=async_workspace)
    assert await near.ainvoke(question) == await far.ainvoke(question) == near.invoke(question)
    with pytest.raises(TypeError, match="AsyncClient"):
        far.invoke(question)


def test_langchain_puts_it_into_a_chain(guide: Workspace) -> None:
    chain = langchain_retriever.MemoTreeRetriever(memory=guide) | RunnableLambda(len)
    assert chain.invoke("How long is the pause?") >= 1


def test_llama_index_gets_nodes_with_scores_that_cite_node_commit_and_span(guide: Workspace) -> None:
    found = llama_index_retriever.MemoTreeRetriever(guide, token_budget=60).retrieve("How long is the pause?")[0]
    assert found.score is not None
    assert 0 < found.score <= 1
    assert found.node.metadata["document"] == "guide.md"
    start, end = found.node.metadata["span"]
    assert "up to a minute" in GUIDE[start:end]
    assert guide.at(found.node.metadata["commit"]).node(found.node_id).id == found.node.metadata["node"]
    shown = found.node.get_content(MetadataMode.LLM)
    assert "Backoff" in shown
    assert found.node.metadata["commit"] not in shown


async def test_llama_index_works_with_both_clients_on_an_event_loop(
    guide: Workspace, async_workspace: AsyncWorkspace
) -> None:
    question = "How long is the pause between attempts?"
    near = llama_index_retriever.MemoTreeRetriever(guide, archives=["notes"], tags=["grpc"])
    far = llama_index_retriever.MemoTreeRetriever(async_workspace, archives=["notes"], tags=["grpc"])
    first, second = await near.aretrieve(question), await far.aretrieve(question)
    assert [each.node_id for each in first] == [each.node_id for each in second] != []
    with pytest.raises(TypeError, match="AsyncClient"):
        far.retrieve(question)


def test_llama_index_puts_it_into_a_query_engine(guide: Workspace) -> None:
    engine = RetrieverQueryEngine(
        llama_index_retriever.MemoTreeRetriever(guide), get_response_synthesizer(llm=MockLLM())
    )
    answer = engine.query("How long is the pause between attempts?")
    assert "The pause between two attempts doubles" in str(answer)
    assert answer.source_nodes
