"""What is kept in memory is bounded, and what several snapshots share counts once."""

import numpy as np
import pytest

from memotree.forest.recall.kept_snapshots import KeptSnapshots
from memotree.forest.recall.scoring.leaf_index import leaf_features, make_leaf_index
from memotree.forest.recall.search_corpus import SearchCorpus

pytestmark = pytest.mark.requirement("FOREST-8")


def corpus(texts: list[str]) -> SearchCorpus:
    index = make_leaf_index(leaf_features(texts, np.zeros((len(texts), 4), np.float32)))
    return SearchCorpus((), np.zeros(1, np.int64), index)


def sharing(one: SearchCorpus) -> SearchCorpus:
    return SearchCorpus((), one.starts, one.leaf_index)


def test_what_two_of_them_share_counts_once_until_both_are_gone() -> None:
    one = corpus(["A ferry", "leaves at noon"])
    kept = KeptSnapshots(1 << 20)
    kept.put("one", one)
    alone = kept.weight
    kept.put("two", sharing(one))
    assert kept.weight == alone + one.own_weight
    kept.put("one", corpus([]))
    kept.put("two", corpus([]))
    assert kept.weight == 2 * (corpus([]).own_weight + sum(part.weight for part in corpus([]).segments))


def test_the_least_recently_used_goes_first_and_its_weight_with_it() -> None:
    first, second, third = corpus(["A ferry"]), corpus(["A harbour"]), corpus(["A pier"])
    kept = KeptSnapshots(1 << 20)
    kept.put("first", first)
    each = kept.weight
    bounded = KeptSnapshots(2 * each + each // 2)
    bounded.put("first", first)
    bounded.put("second", second)
    assert bounded.get("first") is first
    bounded.put("third", third)
    assert [key in bounded for key in ("first", "second", "third")] == [True, False, True]
    assert bounded.weight <= 2 * each + each // 2
    tiny = KeptSnapshots(1)
    tiny.put("first", first)
    assert (tiny.get("first"), tiny.weight) == (None, 0)
    assert (bounded.excess(first), tiny.excess(first)) == (None, (each, 1))
