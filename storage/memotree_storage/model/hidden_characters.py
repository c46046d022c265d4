"""Characters of names that cannot be seen, so that a name with one looks like another name."""

from typing import Final

import regex

_HIDDEN: Final = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Zl}\p{Zp}\u2800]")
"""Format characters, fillers that count as letters, variation selectors, and the empty braille cell."""

_JOINED: Final = regex.compile(
    r"[\p{L}\p{M}\p{Extended_Pictographic}\p{Emoji_Modifier}\uFE0F]"
    r"(?<![\p{Latin}\p{Greek}\p{Cyrillic}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}])"
)
"""What a joiner changes the look of: letters of scripts that are written with it, and emoji."""

_EMOJI: Final = regex.compile(r"\p{Extended_Pictographic}")
_JOINERS: Final = "\u200c\u200d"
_LOOKS: Final = "\ufe0e\ufe0f"


def hidden_character(name: str) -> str | None:
    """Return the first character of a name that cannot be seen; ``None`` without one.

    Characters that change how their neighbours look are seen: the two joiners between letters of scripts that are
    written with them or between emoji, and the two selectors after an emoji.
    """
    for found in _HIDDEN.finditer(name):
        before, after = name[: found.start()][-1:], name[found.end() :][:1]
        is_joining = found[0] in _JOINERS and _JOINED.match(before) and _JOINED.match(after)
        is_look = found[0] in _LOOKS and _EMOJI.match(before)
        if not is_joining and not is_look:
            return str(found[0])
    return None
