"""Tokenizes texts for the built-in model word by word; a word that was seen before costs only a look-up.

No token of the model crosses the space before a word or the end of a line, so the tokens of a text are those of its
words. The tokenizer itself treats a whole text as one word and takes four times as long for English prose. A long word
(such as a run of an unspaced script) is rarely repeated, so a text with one goes to the tokenizer as a whole.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.uint16] | NDArray[np.uint32]

_SPACE: Final = "\u2581"
"""The character that the tokenizer writes for a space; it puts one before each text."""

_WORD: Final = re.compile(f"{_SPACE}+[^{_SPACE}\n]*|[^{_SPACE}\n]+|\n")
_LONGEST: Final = 64
_LONG_WORD: Final = re.compile(f"[^ {_SPACE}\n]{{{_LONGEST},}}|[ {_SPACE}]{{{_LONGEST},}}")
_SPECIAL: Final = re.compile("<unk>|</?s>")  # one token each, anywhere in a text
_MOST_WORDS: Final = 1 << 16
"""The most words of a generation of the cache; both generations take about twenty megabytes."""


class WordPieces:
    """Returns the token ids of texts. Safe to share between threads.

    Args:
        tokenizer: WordLlama's tokenizer, without padding.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32)
        self._known = _KnownWords(self._read)

    def of(self, texts: Sequence[str]) -> list[TokenIds]:
        """Returns the token ids of each text, the same as the tokenizer would."""
        words = [_words(text) for text in texts]
        whole = [place for place, found in enumerate(words) if found is None]
        encoded = self._tokenizer.encode_batch_fast([texts[place] for place in whole], add_special_tokens=False)
        by_place = {place: np.array(one.ids, dtype=self._dtype) for place, one in zip(whole, encoded, strict=True)}
        return [by_place[place] if found is None else self._by_words(found) for place, found in enumerate(words)]

    def _by_words(self, words: Sequence[str]) -> TokenIds:
        return np.frombuffer(b"".join(map(self._known.__getitem__, words)), dtype=self._dtype)

    def _read(self, word: str) -> bytes:
        return np.array([token.id for token in self._tokenizer.model.tokenize(word)], dtype=self._dtype).tobytes()


def _words(text: str) -> list[str] | None:
    """Splits a text into the words that no token crosses; ``None`` for a text that the tokenizer reads as a whole."""
    if not text:
        return []
    if "<" in text and _SPECIAL.search(text):
        return None
    if "  " in text or text[0] == " " or _SPACE in text:
        words = _WORD.findall(_SPACE + text.replace(" ", _SPACE))
    else:  # what the expression would find, in a sixth of the time; an empty word has no tokens
        words = f"{_SPACE}{text.replace(' ', f' {_SPACE}')}".replace("\n", " \n ").split(" ")
    # A long word of the text is within one of these, which may be longer by the spaces before it.
    if len(max(words, key=len)) >= _LONGEST and _LONG_WORD.search(text):
        return None
    return words


class _KnownWords(dict[str, bytes]):
    """The token ids of words, in the bytes of their type, so that a repeated word costs one look-up in C.

    When there are too many words, the present generation becomes the earlier one, which is then forgotten unless its
    words are asked for again. So frequent words stay, and a look-up needs no lock and no order of use.
    """

    def __init__(self, read: Callable[[str], bytes]) -> None:
        super().__init__()
        self._read = read
        self._earlier: dict[str, bytes] = {}

    def __missing__(self, word: str) -> bytes:
        pieces = self._earlier.get(word)
        if pieces is None:
            pieces = self._read(word)
        if len(self) >= _MOST_WORDS:
            self._earlier = self.copy()
            self.clear()
        self[word] = pieces
        return pieces
