"""Damages bytes: parts are put in, taken out, repeated and swapped."""

from collections.abc import Sequence

from hypothesis import strategies as st

LONGEST = 60_000


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes], parts: Sequence[bytes]) -> bytes:
    """Bytes that begin as one of the seeds.

    Args:
        draw: Of hypothesis.
        seeds: What to begin with.
        parts: What the language of the seeds is made of.
    """
    data = draw(st.sampled_from(seeds))
    pieces = st.one_of(st.sampled_from(parts), st.sampled_from(parts), st.binary(max_size=4))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 12))
        times = draw(st.sampled_from((1, 1, 1, 2, 40, 3000)))
        part = draw(st.one_of(pieces, st.just(data[at : at + size])))
        data = (data[:at] + part * times + data[at + size * draw(st.integers(0, 1)) :])[:LONGEST]
    return data
