"""Two conversations of two models, and recall over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from integration.worlds import World
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.position import many_between
from memotree_storage.ports import Embedder
from memotree_storage.postgres.tree import State

from memotree.forest.recall.recall import Recall
from memotree.models.meter import Meter
from memotree.v1 import forest_service_pb2 as pb

LCA, COLLAPSED, HYBRID = pb.RECALL_STRATEGY_LCA, pb.RECALL_STRATEGY_COLLAPSED, pb.RECALL_STRATEGY_HYBRID
MUCH = 10_000
TRACTOR = "Why does the diesel engine of the tractor smoke?"


@dataclass(frozen=True)
class Models:
    """The models that recall needs; with ``liked`` also a reranking model, which prefers texts with these words.

    Attributes:
        embedder: The embedding model.
        liked: The relevance of a text that has a word; 0 for a text without any.
    """

    embedder: Embedder
    liked: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_ranking(self) -> bool:
        return bool(self.liked)

    @property
    def ranking_model(self) -> str:
        return f"likes {self.liked}" if self.liked else ""

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        del query, meter
        return [max((value for word, value in self.liked.items() if word in text), default=0.0) for text in texts]


def talk(archive: str, lines: list[str], **fields: Any) -> list[Node]:
    """A root and a leaf for each line, as an ingested conversation has them."""
    root = Node(new_id(), archive, None, "a0", type="summary_node", title="A talk", summary="People talk.")
    places = many_between(None, None, len(lines))
    leaves = [
        Node(new_id(), archive, root.id, place, type="leaf_chunk", title=f"{line[:30]}…", content=line, **fields)
        for place, line in zip(places, lines, strict=True)
    ]
    return [root, *leaves]


GARDEN = [
    "Ann: I planted roses by the wall in March.",
    "Ben: Do they need much water?",
    "Ann: Only in July, when the sun burns.",
    "Ben: My tractor broke again, the diesel engine smokes.",
    "Ann: Take it to the workshop in the village.",
    "Ben: They are closed until Monday.",
]
SEA = [
    "Cid: The ferry to the island leaves at nine.",
    "Dot: I get seasick on every boat.",
    "Cid: Take ginger with you.",
]
EVERYTHING = " ".join([*GARDEN, *SEA])
"""A question that has words of every leaf."""


@dataclass
class Forest:
    """Two conversations of two models in one workspace."""

    world: World
    recalling: Recall
    sea: Archive
    garden: list[Node]
    ferry: list[Node]
    commit: str

    async def __call__(self, query: str = TRACTOR, **fields: Any) -> pb.RecallResponse:
        return await self.recalling.recall(pb.RecallRequest(workspace=self.world.workspace, query=query, **fields))

    def restarted(self, **settings: Any) -> "Forest":
        """The same, with a recall that knows nothing, as after a start of the server."""
        recalling = Recall(self.world.store, self.world.limits, Models(self.world.store.embedder), **settings)
        return replace(self, recalling=recalling)

    async def search(self, query: str) -> list[FoundNode]:
        """The hits of a search by words and meaning at the head of the default branch."""
        state = State(self.world.workspace, await self.world.head())
        return await self.world.store.search.find(state, SearchQuery(query, 10, words=True, meaning=True))

    async def contents(self, **fields: Any) -> set[str]:
        """The contents of all leaves of a recall whose budget fits everything."""
        answer = await self(**{"query": EVERYTHING, "token_budget": MUCH, **fields})
        found = texts(answer)
        assert len(found) == len(set(found))
        assert answer.leaves_considered >= len(found)
        return set(found)


def leaves(answer: pb.RecallResponse) -> list[pb.RecalledNode]:
    return [one for passage in answer.passages for one in passage.nodes]


def texts(answer: pb.RecallResponse) -> list[str]:
    """The contents of the leaves of an answer, in its order."""
    return [one.node.content for one in leaves(answer)]


def as_told(answer: pb.RecallResponse) -> pb.RecallResponse:
    """An answer without its receipt, which has the moment, and its warnings, which may be about the memory."""
    told = pb.RecallResponse()
    told.CopyFrom(answer)
    told.ClearField("receipt")
    told.ClearField("warnings")
    return told
