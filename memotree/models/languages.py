"""What is known of languages (`languages.toml`), and which one a question is written in."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from memotree_storage.index.han_variants import SIMPLIFIED
from memotree_storage.index.terms import fold, tokens

LANGUAGES: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "languages.toml").read_text(encoding="utf-8").translate(SIMPLIFIED)
)
"""The tables of the file by language, in simplified characters as folded texts are; the file says what each key means.
"""

MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
"""The English months in their order."""

ENGLISH: Final = "english"
OTHER: Final = "other"
"""The name of a language in a script that no language here has."""

_UNSTEMMED: Final = frozenset({"chinese", "japanese", OTHER})
_LETTER: Final = re.compile(r"[^\W\d_]")
_MOST_CHARS: Final = 2000
"""How much of a question tells its language."""


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """A language.

    Attributes:
        name: Its name in `languages.toml`, and in Snowball.
        stop_words: Folded words that are left out of a question.
        function_words: Folded words that tell the language, the stop words among them.
        asking: What is cut out of a question in an unspaced script.
        prefixes: What may stand before the stem of a word, "" included.
        endings: What may stand after it, "" included.
        stems_accents: Whether stems need the accents that folding takes away.
        nouns_have_capitals: Whether capitals show no names, since each noun has one.
    """

    name: str
    stop_words: frozenset[str]
    function_words: frozenset[str]
    asking: re.Pattern[str] | None
    prefixes: tuple[str, ...]
    endings: tuple[str, ...]
    stems_accents: bool
    nouns_have_capitals: bool

    @property
    def is_stemmed(self) -> bool:
        """Whether its words have forms."""
        return self.name not in _UNSTEMMED


def unspaced_words(name: str) -> frozenset[str]:
    """Return the words of a key of the languages without blanks, where a word may stand anywhere in a run."""
    return frozenset(word for each in ("chinese", "japanese") for word in LANGUAGES[each].get(name, "").split())


@cache
def language(name: str) -> Language:
    """Return a language by its name."""
    table = LANGUAGES.get(name, {})
    return Language(
        name,
        frozenset(map(fold, table.get("stop", "").split())),
        frozenset(map(fold, f"{table.get('stop', '')} {table.get('others', '')}".split())),
        re.compile(table["asking"]) if "asking" in table else None,
        ("", *table.get("prefixes", "").split()),
        ("", *table.get("endings", "").split()),
        bool(table.get("stems_accents")),
        bool(table.get("nouns_have_capitals")),
    )


@lru_cache(maxsize=1 << 10)
def language_of(question: str) -> Language:
    """Return the language of a question: by its script, or by its function words; English in doubt."""
    text = question[:_MOST_CHARS]
    letters = len(_LETTER.findall(text))
    for name, (letter, share) in _SCRIPTS.items():
        if len(letter.findall(text)) > share * letters:
            return language(name)
    if 2 * len(_WESTERN.findall(text)) < letters:
        return language(OTHER)
    words = [fold(found[0]) for found in tokens(text)]
    counts = {name: sum(word in language(name).function_words for word in words) for name in _LATIN}
    best = max(counts, key=lambda name: counts[name])
    return language(best if counts[best] > counts[ENGLISH] else ENGLISH)


_KANA_SHARE: Final = 0.1
"""A Japanese question has more kana than this share of its letters, and maybe most of them Chinese characters."""

_SCRIPTS: Final = {
    name: (re.compile(f"[{table['letters']}]"), _KANA_SHARE if name == "japanese" else 0.5)
    for name, table in sorted(LANGUAGES.items(), key=lambda item: item[0] != "japanese")
    if "letters" in table
}
_WESTERN: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_LATIN: Final = tuple(name for name, table in LANGUAGES.items() if "letters" not in table)
