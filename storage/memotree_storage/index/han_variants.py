"""Traditional Chinese characters and the simplified ones that people type in place of them.

The table is for comparing two texts, and both are changed: some simplified characters stand for several traditional
ones, and Japanese uses characters of both kinds.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final


def _read() -> dict[int, str]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = (zip(*two, strict=True) for two in zip(lines[::2], lines[1::2], strict=True))
    return {ord(traditional): simplified for traditional, simplified in chain.from_iterable(pairs)}


SIMPLIFIED: Final[Mapping[int, str]] = _read()
"""The simplified character of each traditional one, for `str.translate`."""
