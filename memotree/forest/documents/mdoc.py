"""The macros of mdoc, in which the man pages of BSD and OpenSSH are written: they name what a word is."""

from typing import Final, Protocol

_WRAPPED: Final = {
    "Op": "[]",
    "Dq": "“”",
    "Qq": '""',
    "Sq": "‘’",  # noqa: RUF001 - the quotes of typesetting
    "Pq": "()",
    "Bq": "[]",
    "Brq": "{}",
    "Aq": "<>",
    "Ql": "‘’",  # noqa: RUF001 - the same
}
_OPENS: Final = {"Oo": "[", "Po": "(", "Bo": "[", "Bro": "{", "Do": "“", "So": "‘", "Qo": '"', "Ao": "<", "Fo": ""}  # noqa: RUF001
_CLOSES: Final = {"Oc": "]", "Pc": ")", "Bc": "]", "Brc": "}", "Dc": "”", "Sc": "’", "Qc": '"', "Ac": ">", "Fc": ")"}  # noqa: RUF001
_WORDS: Final = frozenset(
    {
        *("Ad", "An", "Ar", "Cd", "Cm", "Dv", "Em", "Er", "Ev", "Fa", "Fd", "Fl", "Fn", "Ft", "Fr", "Ic", "In", "Lb"),
        *("Li", "Lk", "Ms", "Mt", "Nd", "Nm", "No", "Ns", "Pa", "Pf", "Rv", "Sm", "St", "Sx", "Sy", "Tn", "Ux", "Va"),
        *("Vt", "Xr", "Xo", "Xc", "Ap", "Bx", "Fx", "Nx", "Ox", "At", "D1", "Dl", "Ql", "Eo", "Ec", "Ta"),
    }
)
_SYSTEMS: Final = {"Ux": "UNIX", "Bx": "BSD", "Fx": "FreeBSD", "Nx": "NetBSD", "Ox": "OpenBSD", "At": "AT&T UNIX"}
_CALLED: Final = _WORDS | _WRAPPED.keys() | _OPENS.keys() | _CLOSES.keys()
_ENDS: Final = frozenset({".", ",", ";", ":", ")", "]", "?", "!"})
_NO_TEXT: Final = frozenset({"Os", "Bk", "Ek", "Bf", "Ef", "Rs", "Re", "Ex", "Xo", "Xc", "Sm", "Ec", "Eo"})
_REFERENCES: Final = {"%A", "%T", "%B", "%J", "%D", "%N", "%V", "%P", "%I", "%R", "%O", "%Q", "%U"}


class Writes(Protocol):
    """Where the words of a page go."""

    def words(self, text: str, *, joins: bool = False) -> None:
        """Adds words."""

    def line(self) -> None:
        """Ends the line."""

    def paragraph(self) -> None:
        """Ends the paragraph."""

    def mark(self, mark: str) -> None:
        """Sets what stands before the next words."""

    def set_verbatim(self, *, on: bool) -> None:
        """Begins or ends a text whose lines are kept."""

    def heading(self, level: int, title: str) -> None:
        """Adds a heading."""


class Pages:
    """Writes the text of a page from its macros, one line at a time."""

    def __init__(self, layout: Writes) -> None:
        self.title = ""
        self._layout = layout
        self._name = ""
        self._lists: list[tuple[str, bool]] = []  # the kind, and whether there are no empty lines between the items

    def macro(self, name: str, words: list[str]) -> None:
        """Writes what a line that begins with a macro shows."""
        layout = self._layout
        if name == "Dt":
            self.title = f"{words[0]}({words[1]})" if len(words) > 1 else "".join(words)
        elif name in {"Sh", "Ss"}:
            layout.set_verbatim(on=False)
            layout.heading(2 if name == "Sh" else 3, self._inline(words))
        elif name in {"Pp", "Lp", "Bd", "Ed", "El", "D1", "Dl"}:
            self._block(name, words)
        elif name == "Bl":
            layout.paragraph()
            self._lists.append((words[0] if words else "", "-compact" in words))
        elif name == "It":
            self._item(words)
        elif name == "Nd":
            layout.words(f"- {self._inline(words)}")
        elif name in _REFERENCES:
            layout.words(" ".join(words))
        elif name in _CALLED and name not in _NO_TEXT:
            if name == "Nm" and words and not self._name:
                self._name = words[0]
            layout.words(self._inline([name, *words]))

    def _block(self, name: str, words: list[str]) -> None:
        layout = self._layout
        layout.paragraph()
        if name == "El" and self._lists:
            self._lists.pop()
        elif name == "Bd":
            layout.set_verbatim(on=any(word in {"-literal", "-unfilled"} for word in words))
        elif name == "Ed":
            layout.set_verbatim(on=False)
            layout.paragraph()
        elif name in {"D1", "Dl"}:
            layout.words(self._inline(words))
            layout.paragraph()

    def _item(self, words: list[str]) -> None:
        layout = self._layout
        kind, compact = self._lists[-1] if self._lists else ("", False)
        if compact:
            layout.line()
        else:
            layout.paragraph()
        if kind in {"-bullet", "-dash", "-hyphen", "-enum", "-item"}:
            layout.mark("" if kind == "-item" else "- ")
            return
        if words:
            layout.words(self._inline(words))
            layout.line()

    def _inline(self, words: list[str]) -> str:
        return _Line(self._name, words).text()


class _Line:
    """A line of words, some of which are macros for the words after them."""

    def __init__(self, name: str, words: list[str]) -> None:
        self._name = name
        self._words = words
        self._next = 0
        self._out: list[str] = []
        self._closing: list[str] = []
        self._joins = False
        self._macro = ""

    def text(self) -> str:
        while self._next < len(self._words):
            word = self._words[self._next]
            self._next += 1
            if word in _CALLED:
                self._macro = word
                self._call(word)
            else:
                self._word(word)
        ends: list[str] = []
        while self._closing and len(self._out) > 1 and self._out[-1] in _ENDS:
            ends.append(self._out.pop())
        return "".join([*self._out, *reversed(self._closing), *reversed(ends)])

    def _put(self, text: str, *, joins: bool = False) -> None:
        if self._out and not self._joins and text not in _ENDS:
            self._out.append(" ")
        self._out.append(text)
        self._joins = joins or text in {"(", "["}

    def _is_bare(self) -> bool:
        """Whether the macro has no words of its own."""
        following = self._words[self._next] if self._next < len(self._words) else ""
        return not following or following in _CALLED or following in _ENDS

    def _word(self, word: str) -> None:
        is_sign = word in _ENDS or word in {"(", "[", "|"}
        if self._macro == "Fl" and not is_sign:
            word = f"-{word}"
        elif self._macro == "Xr" and not self._is_bare():
            word = f"{word}({self._words[self._next]})"
            self._next += 1
            self._macro = ""
        elif self._macro == "Fn" and not is_sign:
            parameters = []
            while not self._is_bare():
                parameters.append(self._words[self._next])
                self._next += 1
            word = f"{word}({', '.join(parameters)})"
        self._put(word)

    def _call(self, word: str) -> None:
        if word in _WRAPPED:
            self._put(_WRAPPED[word][0], joins=True)
            self._closing.append(_WRAPPED[word][1])
        elif word in _OPENS:
            self._put(_OPENS[word], joins=True)
        elif word in _CLOSES:
            self._out.append(_CLOSES[word])
        elif word in {"Ns", "Ap", "Pf"}:
            self._out.append("'" if word == "Ap" else "")
            self._joins = True
        elif word in _SYSTEMS:
            self._put(_SYSTEMS[word])
        elif word in {"Nm", "Fl", "Ar"} and self._is_bare():
            self._put({"Nm": self._name, "Fl": "-", "Ar": "file ..."}[word])
