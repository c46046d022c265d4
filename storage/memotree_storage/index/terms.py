"""Terms for full text search, and their BM25 weights.

A text is split into terms in the same way when it is stored and when it is searched for:

* A word of a spaced script is one term: normalised (NFKC), case-folded, without accents of Latin, Greek and Cyrillic
  letters and vowel marks of Arabic and Hebrew, with one letter for those that people type in place of each other
  (``ø`` and ``o``, Arabic and Persian kaf), and without an English plural ending.
* An identifier (``snake_case``, ``camelCase``, ``os.path``) is one term, and each of its parts is another.
* A run of an unspaced script gives its single characters and its pairs of neighbours, with simplified characters for
  traditional ones. A query of two or more characters searches only for the pairs, a query of one character for that
  character.
* A symbol or emoji is one term.

Weights follow BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009), with term
frequencies summed over the fields before they saturate (BM25F). The average length is a constant, so that a stored
weight depends only on its own text; the inverse document frequency is part of the query's weights. It is that of the
workspace, smoothed (see `query_weights`), so that a few notes are not taken for a sample of the language.
"""

import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from operator import add
from typing import Final

import numpy as np

from memotree_storage.index.han_variants import SIMPLIFIED
from memotree_storage.index.node_text import NodeText
from memotree_storage.model.normal_form import character_class, normalized
from memotree_storage.model.tokens import UNSPACED
from memotree_storage.ports import TermVector

K1: Final = 1.2
"""How slowly repeated occurrences saturate."""

B: Final = 0.75
"""How strongly a long text is discounted."""

AVERAGE_LENGTH: Final = 256
"""The length, in words and unspaced characters, at which a text is neither discounted nor favoured."""

TITLE_BOOST: Final = 3.0
TAG_BOOST: Final = 2.0

LEAF_TITLE_BOOST: Final = 2.0
"""How often a word of a note's title counts when the note is recalled."""

MAX_TERM_CHARS: Final = 64
"""A longer word is cut to this length, both when it is stored and when it is searched for."""

MAX_QUERY_TERMS: Final = 256
"""Only this many different terms of a query are used, the first ones."""

_AT_ONCE: Final = 1 << 14  # characters


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A term to search for.

    Attributes:
        term: The folded text.
        id: Its hash (see `term_id`).
        bonus: Whether a text can lack the term and still match the query in full. This holds for a whole dotted name,
            whose words are searched for separately, and for the parts of an identifier that is searched for as a whole.
    """

    term: str
    id: int
    bonus: bool = False


def term_id(term: str) -> int:
    """Return the 32-bit hash of a folded term: CRC-32 of its UTF-8. It never changes; terms can collide."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def fold(text: str) -> str:
    """Fold a text for comparison: NFKC, case-folded, without joiners, accents and vowel marks, variants as one."""
    return text.lower() if text.isascii() else normalized("NFC", _bare(text, _LEFT_OUT).translate(_VARIANTS))


def fold_as_before(text: str) -> str:
    """Fold a text as indexes of earlier versions have it: with vowel marks and variants of letters."""
    return text.lower() if text.isascii() else normalized("NFC", _bare(text, _ACCENTS))


def _bare(text: str, without: re.Pattern[str]) -> str:
    folded = normalized("NFKC", normalized("NFKC", text).casefold())
    return without.sub("", normalized("NFD", folded))


# --- From text to terms ----------------------------------------------------------------------------------------------


def _classes() -> tuple[str, str, str]:
    """Marks of spaced scripts, marks of unspaced ones, and symbols, each as a character class; ASCII has none."""
    unspaced = re.compile(f"[{UNSPACED}]")
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    for character in map(chr, range(0x80, _END_OF_DENSE_PLANES)):
        category = unicodedata.category(character)
        if category in {"Mn", "Mc", "Me"}:
            found[1 if unspaced.match(character) else 0].append(character)
        elif category in {"So", "Sm", "Sc"} and not unspaced.match(character):
            found[2].append(character)
    spaced, bound, symbols = map(character_class, found)
    return spaced, bound, symbols


_END_OF_DENSE_PLANES: Final = 0x1FB00  # after the last block of symbols; no script of later planes has marks
_DIGITS: Final = [
    character
    for character in map(chr, range(0x80, _END_OF_DENSE_PLANES))
    if character.isdecimal() and not re.match(f"[{UNSPACED}]", character)
]
_JOINERS: Final = "\u200c\u200d\u00ad"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_MARKS, _BOUND_MARKS, _SYMBOLS = _classes()
_SYMBOL: Final = re.compile(f"[{_SYMBOLS}]")

# Accents of Western letters, joiners and variation selectors.
_ACCENTS: Final = re.compile(f"[\u0300-\u036f{_JOINERS}{_SELECTORS}]+")

# Also what is written in Arabic and Hebrew for those who learn to read, the hamza on a letter, and the stroke that
# makes a word longer. Marks of other scripts distinguish words, so they stay.
_HEBREW_MARKS: Final = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
_ARABIC_MARKS: Final = "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
_LEFT_OUT: Final = re.compile(f"[\u0300-\u036f{_JOINERS}{_SELECTORS}{_HEBREW_MARKS}{_ARABIC_MARKS}]+")

# Letters in place of which people type others: Latin ones with strokes and joined ones, which have no accents to leave
# out; variants of Arabic letters, as other keyboards have them or with dots left off (those of Lucene's
# ArabicNormalizer and PersianNormalizer); the digits of spaced scripts; traditional characters.
_VARIANTS: Final[Mapping[int, str]] = {
    ord(letter): other
    for letters, other in (
        ("\u00f8", "o"),
        ("\u0142", "l"),
        ("\u0111\u00f0", "d"),
        ("\u0127", "h"),
        ("\u0167", "t"),
        ("\u0131", "i"),
        ("\u00e6", "ae"),
        ("\u0153", "oe"),
        ("\u00fe", "th"),
        ("\u0671", "\u0627"),  # alef
        ("\u0649\u06cc\u06d2", "\u064a"),  # yeh
        ("\u06a9", "\u0643"),  # kaf
        ("\u0629\u06c1\u06be\u06d5", "\u0647"),  # heh
        *((digit, str(unicodedata.digit(digit))) for digit in _DIGITS),
    )
    for letter in letters
} | dict(SIMPLIFIED)

# The three kinds of token have no character in common, so each can be searched for separately: names (words joined by
# dots), runs of unspaced scripts, symbols.
_LETTERS: Final = rf"(?:[0-9A-Za-z_]++|[^\W{UNSPACED}]++)"  # ASCII first, for speed
_WORD: Final = rf"(?>{_LETTERS}+)(?>(?:(?![\x00-\x7f])[{_MARKS}{_JOINERS}{_SELECTORS}]++(?>{_LETTERS}*))*)"
_NAME: Final = rf"{_WORD}(?>(?:\.{_WORD})*)"
_RUN: Final = f"[{UNSPACED}][{UNSPACED}{_SELECTORS}]*+"
_BEGIN: Final = r"(?=[0-9A-Za-z_\x80-\U0010ffff])"  # so that the long classes are not tried between two words
_TOKEN: Final = re.compile(rf"{_BEGIN}(?:(?P<name>{_NAME})|(?P<run>{_RUN})|(?P<symbol>[{_SYMBOLS}]))")
_FIND_WORDS: Final = re.compile(_WORD)
_FIND_NAMES: Final = re.compile(_BEGIN + _NAME)
_FIND_ASCII_NAMES: Final = re.compile(r"[0-9A-Za-z_]++(?>(?:\.[0-9A-Za-z_]++)*)")
_FIND_RUNS: Final = re.compile(_RUN)
_FIND_FOREIGN: Final = re.compile(r"[^\x00-\x7f]+")
_GAP: Final = re.compile(rf"[^\w.{_MARKS}{_JOINERS}{_SELECTORS}{UNSPACED}]")  # no token goes on over it

# A character of a run with its marks (no writing has dozens), including the voicing marks of half-width kana; and runs
# that need no such care, since each of their characters folds to itself.
_CLUSTER: Final = re.compile(f".[{_BOUND_MARKS}{_SELECTORS}\uff9e\uff9f]{{0,{MAX_TERM_CHARS - 1}}}+")
_SIMPLE_RUN: Final = re.compile("[\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+")

# The borders between the parts of an identifier: underscores, between a lower-case and an upper-case letter, and before
# the last of several upper-case letters if a lower-case letter follows.
_BORDER: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A term inside a token; offsets are relative to the token's start."""

    term: str
    start: int
    end: int
    bonus: bool = False


def tokens_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield every term of a text with the offsets of the characters that it stands for, in token order.

    Terms overlap: the parts of an identifier lie inside the whole, and the pairs of an unspaced run overlap each other.
    """
    for found in tokens(text):
        offset = found.start()
        for term, start, end in pieces_of(found[0]):
            yield term, offset + start, offset + end


def tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a text: names, runs of unspaced scripts, and symbols."""
    return (_FIND_ASCII_NAMES if text.isascii() else _TOKEN).finditer(text)


def pieces_of(token: str) -> Sequence[tuple[str, int, int]]:
    """Return the terms of one token with their offsets in it; its characters determine its kind."""
    return _known_pieces(token) if len(token) <= MAX_TERM_CHARS else _read_pieces(token)


def _read_pieces(token: str) -> tuple[tuple[str, int, int], ...]:
    if len(token) <= MAX_TERM_CHARS and token.isascii() and token.isalpha() and (token[1:] or "a").islower():
        return ((_stem(token.lower()), 0, len(token)),)  # most tokens are such a word, which is a single term
    pieces = _pieces(token, getattr(_TOKEN.fullmatch(token), "lastgroup", None) or "name")
    return tuple((piece.term, piece.start, piece.end) for piece in pieces)


_known_pieces: Final = lru_cache(maxsize=1 << 15)(_read_pieces)


def words_of(text: str) -> list[str]:
    """Return the terms that show what a text is about, for ranking: its words, and the pairs of its unspaced runs."""
    words: list[str] = []
    for name in _names(text):
        words += _name_words(name[:MAX_TERM_CHARS])
    if not text.isascii():
        for run in _all(_FIND_RUNS, text):
            single = _characters(run)
            words += _pairs(single)
    return words


def _pairs(single: Sequence[str]) -> Iterable[str]:
    """The pairs of neighbours, or the only character."""
    return map(add, single, islice(single, 1, None)) if len(single) > 1 else single


@lru_cache(maxsize=1 << 14)
def _name_words(name: str) -> tuple[str, ...]:
    return tuple(piece.term for piece in _name_pieces(name) if not piece.bonus)


def _names(text: str) -> list[str]:
    return _all(_FIND_ASCII_NAMES if text.isascii() else _FIND_NAMES, text)


def _all(pattern: re.Pattern[str], text: str) -> list[str]:
    """All matches in a text. A long one is read in stretches, since no other thread runs during one call of ``re``."""
    return list(chain.from_iterable(pattern.findall(text, start, end) for start, end in stretches(text, _AT_ONCE)))


def stretches(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Split a text into stretches of about ``size`` characters, which cut no token unless it is longer than that."""
    start = 0
    while start < len(text):
        end = start + size
        gap = _GAP.search(text, end, end + size)
        end = min(gap.start() if gap else end + size, len(text))
        yield start, end
        start = end


def _pieces(token: str, kind: str) -> Sequence[_Piece]:
    if kind == "name":
        return _name_pieces(token) if len(token) <= MAX_TERM_CHARS else _long_pieces(token)
    return _run_pieces(token) if kind == "run" else (_Piece(_fold_cluster(token), 0, 1),)


@lru_cache(maxsize=1 << 14)
def _name_pieces(name: str) -> tuple[_Piece, ...]:
    """The terms of a dotted name: the whole, its words, and their parts. Cached, since texts repeat their words."""
    pieces = []
    words = list(_FIND_WORDS.finditer(name))
    if len(words) > 1:
        pieces.append(_Piece(fold(name), 0, len(name), bonus=True))
    for found in words:
        word, offset = found[0], found.start()
        pieces.append(_Piece(_stem(fold(word)), offset, offset + len(word)))
        parts = list(_parts(word))
        if len(parts) > 1:
            pieces += (
                _Piece(_stem(fold(word[start:end])), offset + start, offset + end, bonus=True) for start, end in parts
            )
    return tuple(piece for piece in pieces if piece.term.strip("_"))


def _parts(word: str) -> Iterator[tuple[int, int]]:
    start = 0
    for border in _BORDER.finditer(word):
        if border.start() > start:
            yield start, border.start()
        start = border.end()
    if start < len(word):
        yield start, len(word)


def _long_pieces(name: str) -> list[_Piece]:
    """The terms of a name that is too long: only its words, each cut. Most are data, whose parts would be noise."""
    pieces: list[_Piece] = []
    for found in _FIND_WORDS.finditer(name):
        word, offset = found[0], found.start()
        inner: Iterable[_Piece] = (_Piece(_cut(word), 0, len(word)),)
        if len(word) <= MAX_TERM_CHARS:
            inner = _name_pieces(word)
        pieces += (_Piece(piece.term, offset + piece.start, offset + piece.end, piece.bonus) for piece in inner)
    return [piece for piece in pieces if piece.term.strip("_")]


def _cut(word: str) -> str:
    return fold(word[:MAX_TERM_CHARS])[:MAX_TERM_CHARS]


def _stem(word: str) -> str:
    """Remove an English plural ending.

    The S-stemmer of D. Harman ("How effective is suffixing?", 1991) is the mildest stemmer: a search for ``task`` finds
    ``tasks``, while words with other meanings stay apart. It changes only ASCII words of four letters or more.
    """
    if len(word) < _SHORTEST_PLURAL or word[-1] != "s" or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies"):
        return word if word.endswith(("eies", "aies")) else word[:-3] + "y"
    if word.endswith("es"):
        return word if word.endswith(("aes", "ees", "oes")) else word[:-1]
    return word if word.endswith(("us", "ss")) else word[:-1]


_SHORTEST_PLURAL: Final = 4


def _run_pieces(run: str) -> list[_Piece]:
    """Single characters, then pairs."""
    single = []
    for found in _CLUSTER.finditer(run):
        term = _fold_cluster(found[0])
        if term:
            single.append(_Piece(term, found.start(), found.end()))
    return single + [_Piece(left.term + right.term, left.start, right.end) for left, right in pairwise(single)]


_fold_cluster: Final = lru_cache(maxsize=1 << 12)(fold)


def _characters(run: str) -> Sequence[str]:
    """The folded characters of a run, each with its marks."""
    if _SIMPLE_RUN.fullmatch(run):
        return run.translate(SIMPLIFIED)
    return [term for cluster in _CLUSTER.findall(run) if (term := _fold_cluster(cluster))]


def _characters_as_before(run: str) -> Sequence[str]:
    """The same as indexes of earlier versions have them."""
    if _SIMPLE_RUN.fullmatch(run):
        return run
    return [term for cluster in _CLUSTER.findall(run) if (term := fold_as_before(cluster))]


# --- Documents -------------------------------------------------------------------------------------------------------


def document_terms(text: NodeText) -> TermVector:
    """Return the terms of a node with their saturated frequencies (the part of BM25 that depends only on the text).

    A weight is between 0 and ``K1 + 1`` and exact as a 32-bit float.
    """
    return terms_around(count_terms(text.content), text)


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How often each term id occurs in a text, and the text's length in words and unspaced characters."""

    frequencies: Mapping[int, float]
    length: int


def count_terms(text: str) -> TermCounts:
    """Count the terms of one text, neither saturated nor boosted."""
    frequencies: defaultdict[int, float] = defaultdict(float)
    return TermCounts(frequencies, _count(text, 1.0, frequencies))


def terms_around(content: TermCounts, text: NodeText) -> TermVector:
    """Return the `document_terms` of a node whose content has already been counted."""
    around = (
        (text.title, TITLE_BOOST),
        ("\n".join(text.tags), TAG_BOOST),
        (f"{text.brief}\n{text.summary}\n{text.facts}", 1.0),
    )
    return _saturate(*_counted_with(content, around))


def leaf_counts(content: TermCounts, text: NodeText) -> TermCounts:
    """Count the terms that a leaf is recalled by, neither saturated nor compared: its content's, and those around it.

    A title counts only if it says more than the content does.
    """
    around = ((text.own_title, LEAF_TITLE_BOOST), ("\n".join(text.tags), 1.0), (text.facts, 1.0))
    if not any(words for words, _ in around):
        return content
    return TermCounts(*_counted_with(content, around))


def _counted_with(content: TermCounts, around: Iterable[tuple[str, float]]) -> tuple[defaultdict[int, float], int]:
    frequencies: defaultdict[int, float] = defaultdict(float, content.frequencies)
    length = content.length
    for words, boost in around:
        length += _count(words, boost, frequencies)
    return frequencies, length


def _count(text: str, boost: float, frequencies: defaultdict[int, float]) -> int:
    """Add the terms of a text to ``frequencies``; return the text's length."""
    length = _count_names(text, boost, frequencies)
    if not text.isascii():
        length += _count_foreign("\n".join(_all(_FIND_FOREIGN, text)), boost, frequencies)
    return length


def _count_names(text: str, boost: float, frequencies: defaultdict[int, float]) -> int:
    """Add the terms of the names in a text to ``frequencies``; return the number of words."""
    names = _names(text)
    if not names:
        return 0
    length = 0
    if len(max(names, key=len)) > MAX_TERM_CHARS:
        names, length = _short_names(names, boost, frequencies)
    counts = Counter(map(_PLAIN.__getitem__, names))
    others = counts.pop(_NOT_PLAIN, 0)
    length += len(names) - others
    if boost == 1.0 and not frequencies:
        frequencies.update(counts)
    else:
        for key, times in counts.items():
            frequencies[key] += boost * times
    if others:
        for name, times in Counter(name for name in names if _PLAIN[name] == _NOT_PLAIN).items():
            ids, words = _name_ids(name)
            length += words * times
            for part in ids:
                frequencies[part] += boost * times
    return length


def _short_names(names: Iterable[str], boost: float, frequencies: defaultdict[int, float]) -> tuple[list[str], int]:
    """Return the names without those that are too long, but with the words of these, and how many words were cut.

    Word by word: otherwise a text of one long name (minified code) would be slow and would fill the cache.
    """
    short, length = list[str](), 0
    for name in names:
        if len(name) <= MAX_TERM_CHARS:
            short.append(name)
            continue
        for word in _FIND_WORDS.findall(name):
            if len(word) <= MAX_TERM_CHARS:
                short.append(word)
            elif (term := _cut(word)).strip("_"):
                frequencies[term_id(term)] += boost
                length += 1
    return short, length


class _PlainIds(dict[str, int]):
    """The term ids of plain words, cached by name, so that a repeated word costs one lookup in C."""

    def __missing__(self, name: str) -> int:
        plain = name.isascii() and name.isalnum() and (name.islower() or name[1:].islower())
        key = term_id(_stem(name.lower())) if plain else _NOT_PLAIN
        if len(self) >= _MOST_PLAIN:
            self.clear()
        self[name] = key
        return key


_NOT_PLAIN: Final = -1
_MOST_PLAIN: Final = 1 << 17
_PLAIN: Final = _PlainIds()


@lru_cache(maxsize=1 << 15)
def _name_ids(name: str) -> tuple[tuple[int, ...], int]:
    """The ids of a name's terms, and how many of them are words."""
    pieces = _name_pieces(name)
    return tuple(term_id(piece.term) for piece in pieces), sum(not piece.bonus for piece in pieces)


def _count_foreign(text: str, boost: float, frequencies: defaultdict[int, float]) -> int:
    """Add the runs and symbols of a text without ASCII to ``frequencies``; return the number of characters."""
    counts: Counter[str] = Counter()
    length = 0
    for run in _all(_FIND_RUNS, text):
        single = _characters(run)
        length += len(single)
        counts.update(single)
        counts.update(map(add, single, islice(single, 1, None)))
    for character, times in Counter(text).items():
        if _SYMBOL.match(character):
            length += times
            counts[fold(character)] += times
    for term, times in counts.items():
        frequencies[term_id(term)] += boost * times
    return length


def _saturate(frequencies: Mapping[int, float], length: int) -> TermVector:
    ids = np.fromiter(frequencies.keys(), dtype=np.int64, count=len(frequencies))
    values = np.fromiter(frequencies.values(), dtype=np.float64, count=len(frequencies))
    order = np.argsort(ids)
    weights = values * (K1 + 1) / (values + K1 * (1 - B + B * length / AVERAGE_LENGTH))
    return TermVector(tuple(ids[order].tolist()), tuple(weights[order].astype(np.float32).astype(np.float64).tolist()))


# --- Queries ---------------------------------------------------------------------------------------------------------


def query_terms(query: str, limit: int = MAX_QUERY_TERMS) -> list[QueryTerm]:
    """Return the different terms of a query in order, at most ``limit``."""
    terms: dict[str, QueryTerm] = {}
    for found in _TOKEN.finditer(query):
        pieces = _pieces(found[0], found.lastgroup or "")
        for piece in _asked(pieces) if found.lastgroup == "run" else pieces:
            known = terms.get(piece.term)
            if known is None and len(terms) >= limit:
                return list(terms.values())
            if known is None or (known.bonus and not piece.bonus):
                terms[piece.term] = QueryTerm(piece.term, term_id(piece.term), piece.bonus)
    for _, before in earlier_terms(query):
        if len(terms) < limit:
            terms.setdefault(before, QueryTerm(before, term_id(before), bonus=True))
    return list(terms.values())


def earlier_terms(query: str) -> Iterator[tuple[str, str]]:
    """Yield the words and pairs of a query that an earlier index has as other terms: the term, and that other one."""
    if query.isascii():
        return
    words = ((_stem(fold(word)), _stem(fold_as_before(word))) for word in _FIND_WORDS.findall(query))
    runs = ((_characters(run), _characters_as_before(run)) for run in _FIND_RUNS.findall(query))
    pairs = (zip(_pairs(now), _pairs(before), strict=False) for now, before in runs)
    yield from ((now, before) for now, before in chain(words, *pairs) if now != before)


def _asked(pieces: Sequence[_Piece]) -> Sequence[_Piece]:
    """The pairs of a run, or its single character."""
    singles = (len(pieces) + 1) // 2
    return pieces[singles:] if singles > 1 else pieces
