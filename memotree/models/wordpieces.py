"""Texts as token numbers of the built-in model, word by word: a word that was read before costs a look-up.

No token of the model reaches across the space before a word or across a line's end, so the tokens of a text are those
of its words. The tokenizer itself takes a whole text for one word and needs four times as long for English prose. A
word that is long (a run of an unspaced script, say) hardly comes again, so its text goes to the tokenizer as a whole.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

_SPACE: Final = "\u2581"
"""How the tokenizer writes a space; it puts one before each text."""

_WORD: Final = re.compile(f"{_SPACE}+[^{_SPACE}\n]*|[^{_SPACE}\n]+|\n")
_LONGEST: Final = 64
_LONG_WORD: Final = re.compile(f"[^ {_SPACE}\n]{{{_LONGEST},}}|[ {_SPACE}]{{{_LONGEST},}}")
_SPECIAL: Final = re.compile("<unk>|</?s>")  # one token each, wherever it stands
_MOST_WORDS: Final = 1 << 16
"""Words that are remembered: some twenty megabytes. Then all are forgotten: a text has thousands of words, and a plain
dictionary answers ten times as fast as one that keeps their order of use under a lock."""


class WordPieces:
    """The token numbers of texts. Safe to share between threads.

    Args:
        tokenizer: Of WordLlama, without padding.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, tuple[int, ...]] = {}

    def of(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """The numbers of each text's tokens, as the tokenizer gives them."""
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
