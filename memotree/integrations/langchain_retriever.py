"""A LangChain retriever over recall: each passage is a ``Document`` that cites its node, commit and span.

    from memotree.client import Client
    from memotree.integrations.langchain_retriever import MemoTreeRetriever

    retriever = MemoTreeRetriever(memory=Client().workspace("handbook"), token_budget=1000)
    for document in retriever.invoke("How are failed calls repeated?"):
        print(document.metadata["title"], document.page_content)

Any revision can be searched: ``Client().workspace("handbook").at("v1")``.
"""

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from memotree.client import AsyncRevision, Revision
from memotree.integrations.found_passages import FoundPassage, RecallOptions, arecall, recall


class MemoTreeRetriever(BaseRetriever):
    """Returns the passages that answer a query, the document with the best one first, in one call.

    Attributes:
        memory: A workspace, or a workspace at a revision, of either client. With the blocking client the asynchronous
            methods work in a thread; with the asynchronous one only they work.
        token_budget: The most tokens of all passages together; 2000 if 0.
        archives: Only these archives.
        with_tags: Only nodes with all of these tags.
        node_types: Only nodes of one of these types.
        under: Only this node and the nodes below it.
        only_if_known: Whether to return nothing if probably nothing here answers the query.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Revision | AsyncRevision
    token_budget: int = 0
    archives: tuple[str, ...] = ()
    with_tags: tuple[str, ...] = ()
    node_types: tuple[str, ...] = ()
    under: str | None = None
    only_if_known: bool = False

    @property
    def _options(self) -> RecallOptions:
        return RecallOptions(
            self.token_budget,
            self.archives,
            self.with_tags,
            self.node_types,
            self.under,
            self.only_if_known,
        )

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager  # nothing to report while the one call runs
        return [_document(passage) for passage in recall(self.memory, query, self._options)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if isinstance(self.memory, Revision):
            return await super()._aget_relevant_documents(query, run_manager=run_manager)
        return [_document(passage) for passage in await arecall(self.memory, query, self._options)]


def _document(passage: FoundPassage) -> Document:
    return Document(id=passage.node_id, page_content=passage.text, metadata=dict(passage.metadata))
