"""The checked values of a request to recall."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.index.frequencies import Frequencies
from memotree_storage.index.model_index import ModelIndex

from memotree.forest.recall.passages import ID_TOKENS
from memotree.forest.recall.past import Past
from memotree.forest.recall.snapshot_cache import SnapshotCache
from memotree.request.questions import check_question
from memotree.v1 import forest_service_pb2 as pb

DEFAULT_TOP_K: Final = 10
MOST_TOP_K: Final = 1000
DEFAULT_BUDGET: Final = 2000
MOST_BUDGET: Final = 200_000


@dataclass(slots=True)
class Question:
    """The checked values of a request, and what else its answer comes from.

    Attributes:
        text: The question.
        strategy: The strategy.
        top_k: How many nodes LCA and COLLAPSED start from.
        budget: The most tokens; 0 for no limit.
        covers_text: Whether the budget is that of the whole text, with headings and ids.
        has_trace: Whether the answer says how each part was found.
        receipt: The receipt of the answer that is wanted again.
        warnings: The warnings for the answer.
        term_counts: How frequent the words of the question are in the workspace, once that counts.
        outdated: How many nodes LCA and COLLAPSED looked at that do not hold.
        selected: The archives that the index selected because there are too many leaves to score all.
        past: The past that the question is about, if it is.
        snapshots: The cached trees, with the vectors of the index that answers; set when an answer is begun.
    """

    text: str
    strategy: pb.RecallStrategy.ValueType
    top_k: int
    budget: int
    covers_text: bool
    has_trace: bool
    receipt: pb.RecallReceipt | None = None
    warnings: list[str] = field(default_factory=list)
    term_counts: Frequencies | None = None
    selected: Sequence[str] = ()
    outdated: int = 0
    past: Past | None = None
    snapshots: SnapshotCache = field(init=False)

    @property
    def around(self) -> int:
        """What each leaf takes of the budget beside its own tokens."""
        return ID_TOKENS if self.covers_text else 0

    @property
    def index(self) -> ModelIndex:
        """The index that the whole answer is made of: vectors of two models cannot be compared."""
        return self.snapshots.index


def read_question(request: pb.RecallRequest) -> Question:
    """Reads and checks a request, except for its filter.

    Raises:
        InvalidInputError: If a value is invalid.
    """
    check_question("query", request.query)
    if request.strategy not in pb.RecallStrategy.values():
        raise InvalidInputError.at("strategy", f"{request.strategy} is not a strategy; give LCA, COLLAPSED or HYBRID.")
    if request.top_k < 0:
        raise InvalidInputError.at("top_k", f"must be 0 (for {DEFAULT_TOP_K}) to {MOST_TOP_K}.")
    if not 0 <= request.token_budget <= MOST_BUDGET:
        raise InvalidInputError.at("token_budget", f"must be 0 (for {DEFAULT_BUDGET}) to {MOST_BUDGET}.")
    strategy = request.strategy or pb.RECALL_STRATEGY_HYBRID
    default = DEFAULT_BUDGET if strategy == pb.RECALL_STRATEGY_HYBRID else 0
    return Question(
        text=request.query,
        strategy=strategy,
        top_k=min(request.top_k or DEFAULT_TOP_K, MOST_TOP_K),
        budget=request.token_budget or default,
        covers_text=request.budget_covers_text,
        has_trace=request.include_trace,
        receipt=request.receipt if request.HasField("receipt") else None,
    )
