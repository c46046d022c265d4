"""The inputs kept in the repository: seeds to begin from, to be damaged, and every input that ever found a defect."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

FOLDER: Final = Path(__file__).parent / "corpus"

_REPEATED: Final = re.compile(r"\{(.+)\*(\d+)\}([^{}]*)", re.DOTALL)
_LONGEST: Final = 2_000_000
_LONGEST_DAMAGED: Final = 60_000


@cache
def files(kind: str) -> tuple[tuple[str, bytes], ...]:
    """The names and bytes of a folder of the corpus, in order."""
    return tuple((path.name, path.read_bytes()) for path in sorted((FOLDER / kind).iterdir()))


def seeds(kind: str) -> list[bytes]:
    """The bytes of a folder of the corpus."""
    return [data for _, data in files(kind)]


@cache
def texts(name: str) -> tuple[str, ...]:
    """Strange texts, short ones and ``{unit*number}``."""
    return tuple(json.loads(line) for line in (FOLDER / "texts" / f"{name}.jsonl").read_text("utf-8").splitlines())


@cache
def parts(name: str) -> tuple[bytes, ...]:
    """Parts of a language. A byte that is no UTF-8 stands there as Python's ``surrogateescape`` writes it."""
    lines = (FOLDER / "parts" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return tuple(repeated(json.loads(line)).encode("utf-8", "surrogateescape") for line in lines)


def repeated(text: str) -> str:
    """The text that ``{ab*1000}c`` stands for, a thousand times ``ab`` and then ``c``; another text as it is."""
    found = _REPEATED.fullmatch(text)
    return found[1] * min(int(found[2]), _LONGEST // len(found[1])) + found[3] if found else text


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
        data = (data[:at] + part * times + data[at + size * draw(st.integers(0, 1)) :])[:_LONGEST_DAMAGED]
    return data
