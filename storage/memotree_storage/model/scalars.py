"""Strings as one-line YAML scalars.

A string is written plain if no YAML reader can take it for anything else. Otherwise it is double-quoted, with the
escapes that YAML 1.1, YAML 1.2 and JSON share.
"""

import json
import re
from typing import Final

# The words that YAML resolves to something else than a string, besides numbers and dates. All begin with a letter here,
# since a text that begins with another special character (~ . = < and so on) is always quoted.
_WORDS: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
_LONGEST_WORD: Final = 5

# First a letter, a digit or a sign without a meaning in YAML; then anything printable, where a colon must be followed
# by a visible character and a hash preceded by one. What matched is never given back, so that a long text cannot
# backtrack.
_SPECIAL: Final = "\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff"
_PLAIN: Final = re.compile(rf"(?:[0-9A-Za-z_(/$]|[^\x00-\x7f{_SPECIAL}])(?>(?:[^:#{_SPECIAL}]++|:(?! |\Z)|(?<! )#)*)")

# A text that starts with a digit and has only these characters could be read as a number, a date or a time.
_NUMERIC: Final = re.compile(r"[0-9][0-9a-fA-FxXoOtTzZ_.,:+\- ]*+")

# JSON leaves these characters as they are; YAML treats them as unprintable or as line breaks.
_UNPRINTED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def is_plain(text: str) -> bool:
    """Whether a text can be written without quotes."""
    return (
        _is_one_token(text)
        and not _NUMERIC.fullmatch(text)
        and (len(text) > _LONGEST_WORD or text.lower() not in _WORDS)
    )


def _is_one_token(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and not text[0].isspace() and not text[-1].isspace()


def write_scalar(text: str) -> str:
    """Return the text as a one-line scalar, quoted if necessary."""
    return text if is_plain(text) else quote(text)


def quote(text: str) -> str:
    """Return the text as a double-quoted one-line scalar."""
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def read_scalar(token: str) -> str | None:
    """Return the text of a scalar that this module writes, or of a bare number or word; ``None`` for other forms."""
    if token[:1] != '"':
        return token if _is_one_token(token) else None
    inner = token[1:-1]
    try:
        text = inner if "\\" not in inner and '"' not in inner else json.loads(token)
    except ValueError:
        return None
    return text if isinstance(text, str) and quote(text) == token else None
