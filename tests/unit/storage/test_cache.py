"""The bounded cache: it keeps the newest values within its weight."""

import random
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.cache import BoundedCache


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12)), max_size=60))
def test_the_weight_is_the_sum_of_what_is_kept_and_never_over_the_limit(steps: list[tuple[str, int]]) -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(40, len)
    last: dict[str, bytes] = {}
    for key, size in steps:
        value = bytes(size)
        cache.put(key, value)
        if size <= 10:
            last[key] = value
            assert cache.get(key) == value, "what was put last is there"
        kept = [found for name in "abcdef" if (found := cache.get(name)) is not None]
        assert sum(map(len, kept)) == cache.weight <= 40
        assert all(cache.get(name) in {None, last.get(name)} for name in "abcdef")


def test_the_least_recently_used_goes_first_and_what_is_removed_no_longer_weighs() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(40, len)
    for key in "abcd":
        cache.put(key, bytes(10))
    cache.get("a")
    cache.put("e", bytes(10))
    assert sorted(key for key, _ in cache.items()) == ["a", "c", "d", "e"]
    cache.remove("ac".__contains__)
    assert ([key for key, _ in cache.items()], cache.weight) == (["d", "e"], 20)
    cache.put("d", bytes(11))
    assert (cache.get("d"), cache.weight) == (None, 10), "a value too heavy removes the old value of its key"
    cache.clear()
    assert (cache.get("e"), cache.weight) == (None, 0)


def test_values_are_counted_when_nothing_weighs_them() -> None:
    cache: BoundedCache[int, str] = BoundedCache(4)
    for number in range(6):
        cache.put(number, "x" * 1000)
    assert [number for number in range(6) if cache.get(number)] == [2, 3, 4, 5]


def test_the_cache_is_thread_safe() -> None:
    cache: BoundedCache[int, bytes] = BoundedCache(100, len)

    def work(seed: int) -> None:
        rand = random.Random(seed)
        for _ in range(2000):
            key = rand.randrange(30)
            found = cache.get(key)
            assert found is None or len(found) == key % 7
            cache.put(key, bytes(key % 7))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    kept = [found for key in range(30) if (found := cache.get(key)) is not None]
    assert sum(map(len, kept)) == cache.weight <= 100
