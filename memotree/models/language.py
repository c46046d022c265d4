"""Which script a text is in, to notice an answer in another language than its input."""

import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Final

_SAMPLE: Final = 4_000
_FEW: Final = 8
_MAIN: Final = 0.6
_ENOUGH: Final = 0.2
_EAST_ASIAN: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO"})
_WEIGHTS: Final = {"CJK": 3, "HANGUL": 3}
"""How many letters a character counts: a word of these scripts is one or two of them."""


def speaks_otherwise(source: str, answer: str) -> bool:
    """Whether an answer is in another script than the text it is about.

    Only a clear case counts: at least six tenths of the source are of one script, and less than a fifth of the answer
    is; names and terms stay what they are in every language. Languages of one script are not told apart.
    """
    found, answered = scripts(source), scripts(answer)
    total, total_answer = sum(found.values()), sum(answered.values())
    if total < _FEW or total_answer < _FEW:
        return False
    main, weight = found.most_common(1)[0]
    return weight >= _MAIN * total and answered[main] < _ENOUGH * total_answer


def scripts(text: str) -> Counter[str]:
    """The letters of each script in the beginning of a text; Chinese and Japanese are one."""
    counts: Counter[str] = Counter()
    for character, times in Counter(text[:_SAMPLE]).items():
        script = _script(character)
        if script:
            counts[script] += times * _WEIGHTS.get(script, 1)
    return counts


@lru_cache(maxsize=1 << 13)
def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").partition(" ")[0].partition("-")[0]
    return "CJK" if name in _EAST_ASIAN else name
