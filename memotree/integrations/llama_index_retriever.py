"""A LlamaIndex retriever over recall: each passage is a ``TextNode`` with a score, which cites node, commit and span.

    from memotree.client import Client
    from memotree.integrations.llama_index_retriever import MemoTreeRetriever

    retriever = MemoTreeRetriever(Client().workspace("handbook"), token_budget=1000)
    for found in retriever.retrieve("How are failed calls repeated?"):
        print(found.score, found.node.metadata["title"], found.node.get_content())

Any revision can be searched: ``Client().workspace("handbook").at("v1")``.
"""

import asyncio
from collections.abc import Iterable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from memotree.client import AsyncRevision, Revision
from memotree.integrations.found_passages import FoundPassage, RecallOptions, arecall, recall


class MemoTreeRetriever(BaseRetriever):
    """Returns the passages that answer a query, the document with the best one first, in one call.

    Args:
        memory: A workspace, or a workspace at a revision, of either client. With the blocking client the asynchronous
            methods work in a thread; with the asynchronous one only they work.
        token_budget: The most tokens of all passages together; 2000 if 0.
        archives: Only these archives.
        tags: Only nodes with all of these tags.
        node_types: Only nodes of one of these types.
        under: Only this node and the nodes below it.
        only_if_known: Whether to return nothing if probably nothing here answers the query.
        callback_manager: LlamaIndex's own.
    """

    def __init__(
        self,
        memory: Revision | AsyncRevision,
        *,
        token_budget: int = 0,
        archives: Iterable[str] = (),
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        under: str | None = None,
        only_if_known: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._memory = memory
        self._options = RecallOptions(
            token_budget, tuple(archives), tuple(tags), tuple(node_types), under, only_if_known
        )
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_scored(passage) for passage in recall(self._memory, query_bundle.query_str, self._options)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._memory, Revision):
            return await asyncio.to_thread(self._retrieve, query_bundle)
        return [_scored(passage) for passage in await arecall(self._memory, query_bundle.query_str, self._options)]


def _scored(passage: FoundPassage) -> NodeWithScore:
    metadata = dict(passage.metadata)
    node = TextNode(
        id_=passage.node_id,
        text=passage.text,
        metadata=metadata,
        excluded_llm_metadata_keys=[name for name in metadata if name != "title"],
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=passage.score)
