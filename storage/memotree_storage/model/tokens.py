"""The one token counter: offline, named, the same everywhere.

A character of an unspaced script (Han, kana, Thai, …) counts 1; all other characters of a text together count a
quarter of their number, rounded up. That is close to what the tokenizers of language models give for prose, needs no
vocabulary and never changes with a model. Characters are Unicode code points.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

COUNTER_NAME: Final = "memotree-approx-1"
"""The counter's name. A counter with another rule gets another name."""

CHARS_PER_TOKEN: Final = 4
"""Characters of spaced text that make one token."""

# The inside of a regular expression's character class. Punctuation and spaces of these blocks are left out, since they
# separate words there too. Hangul is included although Korean is written with spaces: one syllable block carries as
# much as one ideograph, and endings are attached to words, so whole words would be as useless for search as in
# Japanese.
UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59"  # Thai
    "\u0e81-\u0edf"  # Lao
    "\u0f00\u0f20-\u0f33\u0f40-\u0fbc"  # Tibetan
    "\u1000-\u1049\u1050-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"  # Myanmar
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\uffa0-\uffdc"  # Hangul
    "\u1780-\u17d3\u17d7\u17dc\u17dd\u17e0-\u17e9"  # Khmer
    "\u1950-\u1974\u1980-\u19da\u1a20-\u1a99"  # Tai Le, New Tai Lue, Tai Tham
    "\u1b05-\u1b59\ua984-\ua9c0\ua9d0-\ua9d9"  # Balinese, Javanese
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\ua000-\ua48c"  # Yi
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"  # more kana, more Han
)

_RUN: Final = re.compile(f"[{UNSPACED}]+")
_JOINERS: Final = "\u200c\u200d"
_AT_ONCE: Final = 1 << 16


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text."""
    unspaced = _unspaced(text)
    return unspaced + _spaced_tokens(len(text) - unspaced)


def spaced_length(text: str) -> int:
    """Return how many characters of spaced text make as many tokens as a text: its length, if it is spaced."""
    return len(text) + (CHARS_PER_TOKEN - 1) * _unspaced(text)


def _unspaced(text: str) -> int:
    """The number of characters of unspaced scripts."""
    if text.isascii():
        return 0
    # In parts, since no other thread runs during one call of a regular expression.
    starts = range(0, len(text), _AT_ONCE)
    return sum(sum(map(len, _RUN.findall(text, start, start + _AT_ONCE))) for start in starts)


def _spaced_tokens(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def truncate_to_tokens(text: str, budget: int) -> str:
    """Return the longest prefix of a text that has at most ``budget`` tokens and does not split a character.

    Combining marks, joiners and variation selectors stay with the character that they belong to.
    """
    end = _cut(text, budget)
    while 0 < end < len(text) and (continues(text[end]) or text[end - 1] in _JOINERS):
        end -= 1
    return text[:end]


class Counted(Protocol):
    """An item that knows the number of tokens of its content."""

    @property
    def tokens(self) -> int: ...  # noqa: D102 - the class docstring describes it


_T = TypeVar("_T", bound=Counted)


def in_pieces(items: Iterable[_T], most: int, most_tokens: int) -> Iterator[list[_T]]:
    """Group items into lists of at most ``most`` items and ``most_tokens`` tokens; a larger item gets its own list."""
    piece: list[_T] = []
    tokens = 0
    for item in items:
        if piece and (len(piece) == most or tokens + item.tokens > most_tokens):
            yield piece
            piece, tokens = [], 0
        piece.append(item)
        tokens += item.tokens
    if piece:
        yield piece


def _cut(text: str, budget: int) -> int:
    """The greatest offset such that the text before it fits the budget."""
    unspaced = spaced = offset = 0
    for run in _RUN.finditer(text):
        gap = run.start() - offset
        room = (budget - unspaced) * CHARS_PER_TOKEN - spaced
        if gap > room:
            return offset + max(room, 0)
        spaced += gap
        room = budget - unspaced - _spaced_tokens(spaced)
        if run.end() - run.start() > room:
            return run.start() + max(room, 0)
        unspaced += run.end() - run.start()
        offset = run.end()
    room = (budget - unspaced) * CHARS_PER_TOKEN - spaced
    return min(len(text), offset + max(room, 0))


def continues(character: str) -> bool:
    """Whether a character belongs to the one before: a combining mark, a joiner or a variation selector."""
    return character in _JOINERS or unicodedata.category(character)[0] == "M"
