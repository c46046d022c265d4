r"""The escapes of roff, such as ``\fB`` and ``\(bu``, and the arguments of its macros."""

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\(?:"
    r"(?P<comment>[\"#].*)"
    r"|\*(?:\[(?P<long>[^\]\s]{1,80})\]|\((?P<two>..)|(?P<one>[^\s\[(]))"
    r"|\[(?P<named>[^\]\s]{1,40})\]|\((?P<glyph>..)"
    r"|C'(?P<quoted>[^']{1,40})'"
    r"|[fFgkmMVYn][+-]?(?:\[[^\]]{0,80}\]|\(..|[^\s\[(])?"
    r"|s(?:[+-]?\(?\d{1,2}|[+-]?\[[^\]]{0,20}\]|[+-]?'[^']{0,20}'|[+-])"
    r"|(?P<right>h'\+?[0-9.][^'\n]{0,200}')"
    r"|[bDhHlLNoRSvwxXZAB]'[^'\n]{0,200}'"
    r"|(?P<plain>.)"
    r"|$)"
)
_PLAIN: Final = {
    **dict.fromkeys("&|^,/%:)cz{}dur!pta?", ""),
    **dict.fromkeys(" ~0", " "),
    "-": "-",
    "e": "\\",
    "\\": "\\",
    "'": "'",
    "`": "`",
    ".": ".",
    "t": "\t",
    "_": "_",
}
_GLYPH_TABLE: Final = """
    aq '  dq \"  cq ’  oq ‘  lq “  rq ”  Fo «  Fc »  bq ‚  Bq „  em —  en –  hy -  mi −  bu •  co ©  rg ®
    tm ™  de °  rs \\  ha ^  ti ~  ga `  lB [  rB ]  lC {  rC }  la ⟨  ra ⟩  -> →  <- ←  ua ↑  da ↓  <> ↔
    rA ⇒  lA ⇐  mu ×  di ÷  pl +  eq =  <= ≤  >= ≥  != ≠  +- ±  sl /  ba |  or |  bv |  br │  sc §  ps ¶
    dg †  dd ‡  ct ¢  Eu €  Po £  Ye ¥  12 ½  14 ¼  34 ¾  ss ß  at @  sh #  Do $  OK ✓  sq □  ci ○  pc ·
    md ⋅  ae æ  AE Æ  oe œ  OE Œ  /o ø  /O Ø  oa å  oA Å  ,c ç  ,C Ç
""".split()  # noqa: RUF001, SIM905 - the signs of typesetting; a list of them would take a hundred lines
_GLYPHS: Final = dict(zip(_GLYPH_TABLE[::2], _GLYPH_TABLE[1::2], strict=True))
_ACCENTS: Final = {"'": "\u0301", "`": "\u0300", "^": "\u0302", ":": "\u0308", "~": "\u0303", "v": "\u030c"}
_UNICODE: Final = re.compile(r"u([0-9A-Fa-f]{4,6})(?:_[0-9A-Fa-f_]+)?")
_NUMBERED: Final = re.compile(r"char(\d{1,3})")
_ARGUMENT: Final = re.compile(r"\"((?>(?:[^\"]++|\"\")*))\"?|((?>(?:[^\s\\]++|\\.)+))")
_VALUE_CHARS: Final = 60
_MOST_VALUES: Final = 1000


class Escapes:
    """Resolves escapes, and the strings that a page defines with ``.ds``.

    A string is resolved when it is defined and holds at most 60 characters, so that strings of strings stay small.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {"Aq": "'", "R": "®", "Tm": "™", "lq": "“", "rq": "”"}

    def define(self, name: str, value: str) -> None:
        """Defines a string."""
        if len(self._values) < _MOST_VALUES:
            self._values[name[:80]] = self.resolve(value[: 4 * _VALUE_CHARS])[:_VALUE_CHARS]

    def resolve(self, text: str) -> str:
        """Returns the text as it is printed, without fonts, sizes and movements."""
        return _ESCAPE.sub(self._shown, text) if "\\" in text else text

    def _shown(self, found: re.Match[str]) -> str:
        if (plain := found["plain"]) is not None:
            return _PLAIN.get(plain, plain)
        if found["right"]:
            return " "
        value = found["long"] or found["two"] or found["one"]
        if value:
            return self._values.get(value, "")
        name = found["named"] or found["glyph"] or found["quoted"]
        return _glyph(name) if name else ""


def _glyph(name: str) -> str:
    if name in _GLYPHS:
        return _GLYPHS[name]
    if len(name) == 2 and name[0] in _ACCENTS and name[1].isalpha():  # noqa: PLR2004 - an accent and a letter
        return name[1] + _ACCENTS[name[0]]
    code = _UNICODE.fullmatch(name)
    number = int(code[1], 16) if code else 0
    if not code and (numbered := _NUMBERED.fullmatch(name)):
        number = int(numbered[1])
    return chr(number) if 0 < number < 0x110000 else ""  # noqa: PLR2004 - the end of Unicode


def arguments(rest: str) -> list[str]:
    """Returns the arguments of a macro; one in quotes may have blanks."""
    comment = re.search(r"(?:^|[ \t])\\\"", rest)
    rest = rest[: comment.start()] if comment else rest
    return [found[1].replace('""', '"') if found[1] is not None else found[2] for found in _ARGUMENT.finditer(rest)]
