"""The bounded cache: within its weight, the newest stay."""

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


def test_the_least_recently_used_goes_first() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(40, len)
    for key in "abcd":
        cache.put(key, bytes(10))
    cache.get("a")
    cache.put("e", bytes(10))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    cache.clear()
    assert cache.weight == 0
    assert cache.get("a") is None
