"""Tokenizes texts for the built-in model word by word; a word that was seen before costs only a look-up.

No token of the model crosses the space before a word or the end of a line, so the tokens of a text are those of its
words. The tokenizer itself treats a whole text as one word and takes four times as long for English prose. A long word
(such as a run of an unspaced script) is rarely repeated, so a text with one goes to the tokenizer as a whole.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

_SPACE: Final = "\u2581"
"""The character that the tokenizer writes for a space; it puts one before each text."""

_WORD: Final = re.compile(f"{_SPACE}+[^{_SPACE}\n]*|[^{_SPACE}\n]+|\n")
_LONGEST: Final = 64
_LONG_WORD: Final = re.compile(f"[^ {_SPACE}\n]{{{_LONGEST},}}|[ {_SPACE}]{{{_LONGEST},}}")
_SPECIAL: Final = re.compile("<unk>|</?s>")  # one token each, anywhere in a text
_MOST_WORDS: Final = 1 << 16
"""The most words that are cached: about twenty megabytes. Then the cache is cleared, because a plain dictionary answers
ten times as fast as one that tracks the order of use under a lock."""


class WordPieces:
    """Returns the token ids of texts. Safe to share between threads.

    Args:
        tokenizer: WordLlama's tokenizer, without padding.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, tuple[int, ...]] = {}

    def of(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Returns the token ids of each text, the same as the tokenizer would."""
        whole = [place for place, text in enumerate(texts) if _LONG_WORD.search(text) or _SPECIAL.search(text)]
        encoded = self._tokenizer.encode_batch_fast([texts[place] for place in whole], add_special_tokens=False)
        found: dict[int, Sequence[int]] = {place: one.ids for place, one in zip(whole, encoded, strict=True)}
        return [found[place] if place in found else self._by_words(text) for place, text in enumerate(texts)]

    def _by_words(self, text: str) -> list[int]:
        if not text:
            return []
        known, numbers = self._known, list[int]()
        for word in _WORD.findall(_SPACE + text.replace(" ", _SPACE)):
            pieces = known.get(word)
            if pieces is None:
                pieces = tuple(token.id for token in self._tokenizer.model.tokenize(word))
                if len(known) >= _MOST_WORDS:
                    known.clear()
                known[word] = pieces
            numbers += pieces
        return numbers
