"""Detects the script of a text, to notice answers in another language than their input."""

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
"""The weight of a character in letters; a word in these scripts is only one or two characters."""


def differs_in_script(source: str, answer: str) -> bool:
    """Whether an answer is in another script than the text it is about.

    True only in a clear case: at least six tenths of the source are in one script, and less than a fifth of the answer
    is. Some is allowed, because names and terms are not translated. Languages with the same script are not
    distinguished.
    """
    found, answered = scripts(source), scripts(answer)
    total, total_answer = sum(found.values()), sum(answered.values())
    if total < _FEW or total_answer < _FEW:
        return False
    main, weight = found.most_common(1)[0]
    return weight >= _MAIN * total and answered[main] < _ENOUGH * total_answer


def scripts(text: str) -> Counter[str]:
    """Counts the letters of each script at the beginning of a text; Chinese and Japanese count as one script."""
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
