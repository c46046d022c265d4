"""English word forms: the stem of a word, and the other forms that share it.

The index keeps words as they stand in the text, so that it serves every reader. A question therefore brings the forms
of its words with it: ``painted`` asks for ``paint``, ``paints`` and ``painting`` too. Forms are made by rule and kept
when they have the same stem, which no list of words is needed for; one that is no English word is simply found nowhere.
"""

import re
from functools import lru_cache
from typing import Final

_VOWELS: Final = "aeiou"
_SHORTEST: Final = 3
_CLUSTERS: Final = re.compile("v+c+")

# The suffix rules of steps 2 to 4 of the algorithm, in its order of trial: longest first within a step.
_STEP_2: Final = {
    "ational": "ate", "ization": "ize", "iveness": "ive", "fulness": "ful", "ousness": "ous", "tional": "tion",
    "biliti": "ble", "entli": "ent", "ousli": "ous", "ation": "ate", "alism": "al", "aliti": "al", "iviti": "ive",
    "enci": "ence", "anci": "ance", "izer": "ize", "alli": "al", "ator": "ate", "logi": "log", "bli": "ble",
    "eli": "e",
}  # fmt: skip
_STEP_3: Final = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ness": "", "ful": "",
}  # fmt: skip
_STEP_4: Final = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic", "ou",
)  # fmt: skip

_IRREGULAR: Final = """
go went gone|buy bought|bring brought|think thought|catch caught|teach taught|fight fought|seek sought|get got gotten
give gave given|take took taken|make made|come came|become became|see saw seen|say said|tell told|find found|feel felt
leave left|keep kept|sleep slept|meet met|lead led|ride rode ridden|drive drove driven|rise rose risen
speak spoke spoken|break broke broken|choose chose chosen|wake woke woken|wear wore worn|tear tore torn|bear bore born
swim swam swum|sing sang sung|ring rang rung|run ran|begin began begun|drink drank drunk|eat ate eaten|fall fell fallen
fly flew flown|grow grew grown|know knew known|throw threw thrown|draw drew drawn|blow blew blown|show shown|win won
lose lost|spend spent|send sent|build built|lend lent|bend bent|hold held|stand stood|understand understood|sell sold
pay paid|hear heard|sit sat|shoot shot|forget forgot forgotten|hide hid hidden|bite bit bitten|mean meant|dream dreamt
learn learnt|deal dealt|light lit|stick stuck|strike struck|hang hung|dig dug|feed fed|breed bred|speed sped|bleed bled
steal stole stolen|freeze froze frozen|shake shook shaken|sink sank sunk|spring sprang sprung|swear swore sworn
weep wept|sweep swept|wind wound|write wrote written|child children|man men|woman women|person people|foot feet
tooth teeth|mouse mice|goose geese|life lives|wife wives|knife knives|leaf leaves|shelf shelves|wolf wolves|half halves
good better best|bad worse worst|mother mom mum mommy|father dad daddy|photo photograph|television tv|bicycle bike
"""

_FAMILIES: Final = tuple(tuple(family.split()) for family in _IRREGULAR.replace("\n", "|").split("|") if family)
_BASE: Final = {form: family[0] for family in _FAMILIES for form in family[1:]}
_FAMILY: Final = {family[0]: family for family in _FAMILIES}

_ENDINGS: Final = (
    "", "s", "es", "ed", "d", "ing", "e", "er", "ers", "or", "ors", "ion", "ions", "ation", "ations", "ment", "ments",
    "y", "ies", "ied", "ily", "ly", "ness", "al", "able", "ive", "ful", "ance", "ence",
)  # fmt: skip


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """What the forms of an English word have in common; another word, or one of up to two letters, is its own.

    The suffixes are those of Porter, "An algorithm for suffix stripping" (1980), with the author's later corrections;
    irregular forms are brought back to their base first.

    Args:
        word: A folded word.
    """
    word = _BASE.get(word, word)
    if len(word) < _SHORTEST or not (word.isascii() and word.isalpha()):
        return word
    word = _endings(_plural(word))
    word = _replaced(_replaced(word, _STEP_2), _STEP_3)
    return _tidied(_dropped(word))


@lru_cache(maxsize=1 << 13)
def forms(word: str) -> tuple[str, ...]:
    """The forms of a word, itself first; irregular ones among them, and maybe some that no one writes."""
    found = {word: None}
    root = stem(word)
    base = _BASE.get(word, word)
    for other in _FAMILY.get(base, ()):
        found[other] = None
    if len(word) >= _SHORTEST and word.isascii() and word.isalpha():
        for start in dict.fromkeys((base, root, root[:-1], root + root[-1:])):
            for ending in _ENDINGS:
                made = start + ending
                if made not in found and stem(made) == root:
                    found[made] = None
    return tuple(found)


# --- The parts of a word ---------------------------------------------------------------------------------------------


def _shape(word: str) -> str:
    """The word with each letter as ``c`` or ``v``; a y behind a consonant is a vowel."""
    marks = ""
    for letter in word:
        is_vowel = letter in _VOWELS or (letter == "y" and marks.endswith("c"))
        marks += "v" if is_vowel else "c"
    return marks


def _measure(word: str) -> int:
    """How many times vowels are followed by consonants."""
    return len(_CLUSTERS.findall(_shape(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _is_short(word: str) -> bool:
    """Whether it ends with consonant, vowel and a consonant other than w, x and y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


# --- The steps -------------------------------------------------------------------------------------------------------


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-2] if len(word) > len("ties") else word[:-1]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _endings(word: str) -> str:
    """Take away ``ed`` and ``ing``, and turn a last y into i."""
    if word.endswith("eed"):
        word = word[:-1] if _measure(word[:-3]) else word
    else:
        for ending in ("ed", "ing"):
            if word.endswith(ending) and _has_vowel(word[: -len(ending)]):
                word = _mended(word[: -len(ending)])
                break
    return f"{word[:-1]}i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _mended(word: str) -> str:
    """What stood before ``ed`` or ``ing``: its last e given back, a doubled consonant made single."""
    if word.endswith(("at", "bl", "iz")):
        return f"{word}e"
    if len(word) > 1 and word[-1] == word[-2] and word[-1] not in "aeioulsz":
        return word[:-1]
    return f"{word}e" if _measure(word) == 1 and _is_short(word) else word


def _replaced(word: str, rules: dict[str, str]) -> str:
    for ending, other in rules.items():
        if word.endswith(ending):
            start = word[: -len(ending)]
            return start + other if _measure(start) else word
    return word


def _dropped(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            start = word[: -len(ending)]
            fits = ending != "ion" or start.endswith(("s", "t"))
            return start if fits and _measure(start) > 1 else word
    return word


def _tidied(word: str) -> str:
    """Without a last e and without the second of two l, when enough is left."""
    if word.endswith("e"):
        start = word[:-1]
        measure = _measure(start)
        if measure > 1 or (measure == 1 and not _is_short(start)):
            word = start
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
