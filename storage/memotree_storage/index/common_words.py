"""Words that are frequent in every text, so they say nothing about one."""

from typing import Final

# Terms are folded: no plural endings.
_WORDS: Final = (
    "a about after all also an and any are as at be been but by can could did do does doe for from had has have he "
    "her his how i if in into is it its just like may more most must my no not of on one only or other our out "
    "over she should so some such than that the their them then there these they thi this to up us use used was "
    "wa we were what when where which who will with would you your"
)
_COMMON: Final = frozenset(_WORDS.split())
_COMMON_UNSPACED: Final = frozenset("的了是在和有不这也就人都一个上中大为以到说们与及或其而于之")


def is_common(term: str) -> bool:
    """Whether a folded term is such a word, or consists of such characters of an unspaced script."""
    return term in _COMMON or _COMMON_UNSPACED.issuperset(term)
