"""Finds the parts of a question that nothing found supports: its subject is known here, and what it asks is not.

"Which wine is served at the wedding?" resembles each note about the wedding as much as a question that one of them
answers; neither words nor vectors tell the two apart. Three signs do, each looked for in the best passages:

1. A number, a code or a name that the question has and no passage: release 2.2, where only 2.1 is known.
2. The kind of answer: a person for "who", a time for "when", a number for "how many", and so on.
3. The thing after "which" or "what", if no passage has the word or one of a similar meaning. This is for English alone.

The last two count only in passages about the subject: those with a name of the question, if any has one, and with at
least half as many of its words as the best. How often a sign is wrong is measured: docs/reference/recall.md.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from memotree_storage.index.terms import fold, term_id, words_of

from memotree.forest.recall.scoring.query_words import MOST_CONCEPTS, STOP_WORDS, Related, concepts
from memotree.forest.recall.scoring.stemming import stem
from memotree.models.languages import LANGUAGES, MONTHS, language_of, unspaced_words

BEST: Final = 4
"""The number of best passages that are looked at."""

_MOST_CHARS: Final = 20_000
"""How much of a question or passage is looked at."""

_ABOUT: Final = 0.5
"""A passage is about the subject if it has this share of the most words of the question that a passage has."""

_LEAST_RELATED: Final = 5
"""Of a shorter word no similar ones may be known, so that its absence says nothing."""

_WORD: Final = re.compile(r"[^\W\d_]\w*(?:[-'\u2019][^\W\d_]\w*)*")
_POSSESSIVE: Final = re.compile(r"['\u2019]s$")
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+|\n")
_CODE: Final = re.compile(r"(?<![A-Za-z\d_])[A-Za-z]*+[\d_](?>(?:[.,:/#-]?[A-Za-z\d_])*)")
_PART: Final = re.compile(r"[^-:/_]+")
_ORDINAL: Final = re.compile(r"(?<=\d)(?:st|nd|rd|th|s|er|ern)$")
_YEAR: Final = re.compile(r"(?<![\d.])(?:1\d|20)\d\d(?![\d.])")
_DIGIT: Final = re.compile(r"\d")
_PHONE: Final = re.compile(r"\d[\d \-()/]{4,}\d")
_ADDRESS: Final = re.compile(r"https?:|/\w|\w\.\w{2,}|@|#\w")
_NUMBERED_NAME: Final = re.compile(r"(?<![#\w])\d+[a-z]{4,}")
"""A name such as 37signals; shorter ones are units."""

_PLACE: Final = re.compile(
    r"\b(?:in|at|near|to|from|under|behind|into|by|on|of)\s+(?:(?:the|an?|her|his|my|our|their)\s+)?(\w+)"
)
_AUXILIARY: Final = "(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)"
_THING: Final = re.compile(
    rf"\b(?:which|what) (?!{_AUXILIARY}\b)(?:[\w-]+ ){{0,2}}?([\w-]+)(?= {_AUXILIARY}\b|\W*$)"
    rf"|\b(?:what|which) {_AUXILIARY} (?:[\w-]+ ){{0,2}}?[\w-]+'s (?:[\w-]+ ){{0,2}}?([\w-]+)\W*$"
)


def unsupported(question: str, passages: Iterable[str], related: Related) -> list[str]:
    """Return the parts of a question that no passage supports, in words for a reader.

    Args:
        question: The question.
        passages: The best passages with their headings, at most `BEST`.
        related: Returns words of a similar meaning.
    """
    texts = [_Text(passage[:_MOST_CHARS]) for passage in passages]
    if not texts:
        return []
    asked = _Text(question[:_MOST_CHARS])
    names = list(dict.fromkeys(islice(_names_in_question(asked), MOST_CONCEPTS)))
    missing = [code for code in _codes_in_question(asked, texts) if not any(text.has_code(code) for text in texts)]
    missing += [name for name in names if not any(text.has_name(name) for text in texts)]
    about = _about(asked, names, texts)
    thing = _thing(asked.folded)
    if thing and (words := _similar(thing, related)) and all(words.isdisjoint(text.stems) for text in about):
        missing.append(thing)
    told = [f"{part!r}" for part in {part.casefold(): part for part in reversed(missing)}.values()][::-1]
    kind = next((kind for kind in _KINDS if kind.asked.match(asked.folded)), None)
    if kind is not None and not any(kind.is_in(text, asked.words) for text in about):
        told.append(kind.name)
    return told


class _Text:
    """A text and what it is looked at for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> str:
        """It in lower case and without accents."""
        return fold(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its folded words, without a possessive ending."""
        return frozenset(_POSSESSIVE.sub("", word) for word in _WORD.findall(self.folded))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The English stems of its words, and of the parts of its compounds."""
        return frozenset(stem(part) for word in self.words for part in {word, *word.split("-")})

    @cached_property
    def terms(self) -> frozenset[int]:
        """The ids of its terms."""
        return frozenset(map(term_id, words_of(self.text)))

    @cached_property
    def codes(self) -> frozenset[str]:
        """Its words with digits, and the parts of them."""
        found = _codes(self.folded)
        return frozenset(found) | {part for code in found for part in _PART.findall(code)}

    def has_code(self, code: str) -> bool:
        """Whether it has a code, a longer version number that begins with it, or each of its parts that has a digit."""
        parts = [part for part in _PART.findall(code) if _DIGIT.search(part)]
        return (
            code in self.codes
            or any(each.startswith(f"{code}.") for each in self.codes)
            or (parts not in ([], [code]) and self.codes.issuperset(parts))
        )

    def has_name(self, name: str) -> bool:
        """Whether it has a name, maybe inflected."""
        folded = fold(name)
        start = folded[: max(4, len(folded) - 2)]
        return folded in self.folded or any(word.startswith(start) for word in self.words)

    def has_any(self, words: AbstractSet[str]) -> bool:
        """Whether it has one of some folded words; those of unspaced scripts may be anywhere."""
        return not words.isdisjoint(self.words) or any(word in self.folded for word in words & _UNSPACED)


# --- Codes and names -------------------------------------------------------------------------------------------------


def _codes(folded: str) -> list[str]:
    """Return the words with digits or underscores of a folded text, without endings of ordinals and decades."""
    return [_ORDINAL.sub("", code.replace(",", "")) for code in _CODE.findall(folded)]


def _codes_in_question(asked: _Text, texts: Sequence[_Text]) -> list[str]:
    """Return the numbers and codes that a text about the subject should have.

    A single digit is more often a wish for the answer, such as its length. A text seldom repeats its own date, so a day
    of a month never counts, and a year only if the texts have years.
    """
    has_years = any(_YEAR.search(text.text) for text in texts)
    found = _codes(_DATE.sub(_year_of, asked.folded))[:MOST_CONCEPTS]
    return [code for code in found if len(code) > 1 and (has_years or not _YEAR.fullmatch(code))]


def _year_of(date: re.Match[str]) -> str:
    year = _YEAR.search(date[0])
    return f" {year[0]} " if year else " "


def _names_in_question(asked: _Text) -> Iterator[str]:
    """Yield the words with a capital that are not the first of a sentence."""
    if language_of(asked.text).nouns_have_capitals:
        return
    for words in _sentences(asked.text):
        yield from (word for word in words[1:] if _is_name(word))


def _new_names(text: _Text, asked: AbstractSet[str]) -> Iterator[str]:
    """Yield the words with a capital that are no words of the question, nor stand beside a name that is one."""
    for words in _sentences(text.text):
        known = [fold(word) in asked and word[0].isupper() for word in words]
        for place, word in enumerate(words):
            if _is_name(word) and fold(word) not in asked and not any(known[max(0, place - 1) : place + 2]):
                yield word


def _sentences(text: str) -> Iterator[list[str]]:
    for sentence in _SENTENCE.split(text):
        yield [_POSSESSIVE.sub("", word) for word in _WORD.findall(sentence)]


def _is_name(word: str) -> bool:
    return word[0].isupper() and (folded := fold(word)) not in _TIMES and folded not in STOP_WORDS


# --- Subject and thing -----------------------------------------------------------------------------------------------


def _about(asked: _Text, names: Sequence[str], texts: Sequence[_Text]) -> list[_Text]:
    """Return the texts that are about the subject of a question."""
    named = [text for text in texts if any(text.has_name(name) for name in names)] or list(texts)
    wanted = concepts(asked.text)
    counts = [sum(not text.terms.isdisjoint(concept.terms) for concept in wanted) for text in named]
    return [text for text, count in zip(named, counts, strict=True) if count >= _ABOUT * max(counts)]


def _thing(question: str) -> str:
    """Return the noun that an English question asks for; empty if it asks for none, or for one that needs no word."""
    found = _THING.search(question)
    word = "" if found is None else found[1] or found[2]
    return "" if word in STOP_WORDS or stem(word) in _VAGUE else word


def _similar(word: str, related: Related) -> frozenset[str]:
    """Return the stems of a word and of similar ones; nothing if too little is known about it."""
    similar = {stem(other) for form in {word, stem(word)} for other, _ in related(form)}
    if not similar and len(word) < _LEAST_RELATED:
        return frozenset()
    return frozenset({stem(word), *similar})


# --- Kinds of answers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of answer.

    Attributes:
        asked: Matches the beginning of a folded question that asks for it.
        name: What the reader is told to be missing.
        is_in: Whether a text has such an answer, beside the words of the question.
    """

    asked: re.Pattern[str]
    name: str
    is_in: Callable[[_Text, AbstractSet[str]], bool]


def _has_person(text: _Text, asked: AbstractSet[str]) -> bool:
    return (
        text.has_any(_PEOPLE - asked)
        or any(not name.isupper() for name in _new_names(text, asked))
        or _NUMBERED_NAME.search(text.folded) is not None
    )


def _has_place(text: _Text, asked: AbstractSet[str]) -> bool:
    return (
        text.has_any(_PLACES)
        or _ADDRESS.search(text.text) is not None
        or any(not (word in _TIMES or word in STOP_WORDS or word[0].isdigit()) for word in _PLACE.findall(text.folded))
        or any(True for _ in _new_names(text, asked))
    )


def _has_time(text: _Text, _: AbstractSet[str]) -> bool:
    return _DIGIT.search(text.text) is not None or text.has_any(_TIMES)


def _has_count(text: _Text, _: AbstractSet[str]) -> bool:
    return _DIGIT.search(_DATE.sub(" ", text.folded)) is not None or text.has_any(_COUNTS)


def _has_age(text: _Text, asked: AbstractSet[str]) -> bool:
    return _has_count(text, asked) or text.has_any({"born", "birthday", "birth"})


def _has_phone(text: _Text, _: AbstractSet[str]) -> bool:
    return _PHONE.search(text.text) is not None


def _has_mail(text: _Text, _: AbstractSet[str]) -> bool:
    return "@" in text.text


def _has_colour(text: _Text, _: AbstractSet[str]) -> bool:
    return "#" in text.text or text.has_any(_COLOURS)


def _words(name: str) -> frozenset[str]:
    return frozenset(word for language in LANGUAGES.values() for word in language.get(name, "").split())


def _asked(name: str) -> re.Pattern[str]:
    patterns = "|".join(language[name] for language in LANGUAGES.values() if name in language)
    return re.compile(rf"\W*(?:\w{{1,6}} )?(?:{patterns})")


_TIMES: Final = _words("times")
_COUNTS: Final = _words("counts")
_COLOURS: Final = _words("colours")
_PEOPLE: Final = _words("people")
_PLACES: Final = _words("places")
_VAGUE: Final = frozenset(map(stem, _words("vague")))
_UNSPACED: Final = unspaced_words("times") | unspaced_words("counts") | unspaced_words("colours")
_MONTHS: Final = f"(?:{'|'.join(MONTHS)})"
_DATE: Final = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTHS}\b|\b{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?\b"
    r"|\b(?:1\d|20)\d\d\b|\b\d{1,2}:\d\d\b"
)
_KINDS: Final = (
    _Kind(_asked("age"), "an age", _has_age),
    _Kind(_asked("phone"), "a phone number", _has_phone),
    _Kind(_asked("mail"), "a mail address", _has_mail),
    _Kind(_asked("colour"), "a colour", _has_colour),
    _Kind(_asked("count"), "a number", _has_count),
    _Kind(_asked("when"), "a time", _has_time),
    _Kind(_asked("where"), "a place", _has_place),
    _Kind(_asked("who"), "a person", _has_person),
)
