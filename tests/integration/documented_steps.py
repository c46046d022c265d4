"""The steps of a page of ``docs/``, and the comparison of what it shows with what there is.

In a ``console`` block each line ``$ command`` is a step, and the lines after it are its output. A ``python`` block is
one, and a ``text`` block directly after it is its output. A block with ``title="name"`` is a file. ``…`` in an output
matches anything. Ids, commits and times differ in every run: each one on a page is bound to the real one in the output,
which replaces it in later blocks and pages. ``^C`` stops the server.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from memotree_storage.model.paths import node_stem

_FENCE: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r'title="([^"]+)"')
_ID: Final = r"\b(?=[a-z]*[0-9])[0-9a-hjkmnp-tv-z]{16}\b"
_HASH: Final = r"\b(?=[a-f]*[0-9])[0-9a-f]{7,40}\b"
_TIME: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d \d{4} [+-]\d{4}"
_FILE: Final = r"nodes/[0-9a-z]{2}/[0-9a-z]{2}/[0-9a-z]{16}"
_VARIABLE: Final = re.compile(f"(?P<any>…)|(?P<time>{_TIME})|(?P<file>{_FILE})|(?P<hash>{_HASH})|(?P<id>{_ID})")
_WORD: Final = re.compile(r"\b[0-9a-z]{4,40}\b")


@dataclass(frozen=True)
class Step:
    """One action of a reader, and the output on the page (``None``: the page shows none)."""

    kind: str
    text: str
    shown: str | None
    line: int
    title: str = ""


def blocks(text: str) -> Iterator[tuple[str, str, str, int, int]]:
    """Language, title, body, first line and end offset of each fenced block."""
    for found in _FENCE.finditer(text):
        language, _, rest = found["info"].partition(" ")
        title = _TITLE.search(rest)
        yield language, title[1] if title else "", found["body"], text.count("\n", 0, found.start()) + 2, found.end()


def steps(text: str) -> list[Step]:
    """The actions of a page, in order."""
    found: list[Step] = []
    end = 0
    for language, title, body, line, behind in blocks(text):
        between = text[end : behind - len(body) - len("```\n```") - len(language)]
        if title:
            found.append(Step("file", body, None, line, title))
        elif language == "console":
            found += _commands(body, line)
        elif language == "python":
            found.append(Step("python", body, None, line))
        elif language == "text" and found and found[-1].kind == "python" and not between.strip():
            last = found[-1]
            found[-1] = Step("python", last.text, body, last.line)
        end = behind
    return found


def _commands(body: str, line: int) -> Iterator[Step]:
    """The commands of a console block; a line that ends with a backslash continues in the next."""
    for piece in re.split(r"^(?=\$ )|^(?=\^C$)", body, flags=re.MULTILINE):
        command, _, output = piece.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more.strip()}"
        if command == "^C":
            yield Step("stop", "", None, line)
        elif command:
            assert command.startswith("$ "), f"line {line}: a console block begins with a command, not {command!r}"
            yield Step("command", command[2:], output if output.strip() else None, line)
        line += piece.count("\n")


@dataclass
class Bindings:
    """Maps each id, commit and time on the pages to the real one."""

    known: dict[str, str] = field(default_factory=dict)

    def real(self, text: str) -> str:
        """The text with every known value, or beginning of one, replaced by the real one."""
        text = re.sub(_FILE, lambda path: node_stem(self._meant(path[0][-16:])), text)
        return _WORD.sub(lambda word: self._meant(word[0]), text)

    def _meant(self, word: str) -> str:
        for shown, real in self.known.items():
            if shown.startswith(word):
                return real[: len(word)]
        return word

    def check(self, shown: str, actual: str) -> str:
        """Bind new values; return the pattern if the output differs from the page, else ''."""
        names: dict[str, str] = {}
        plain = _squeezed if "…" in shown else _plain
        pattern = "".join(self._part(piece, names) for piece in _pieces(plain(shown)))
        found = re.fullmatch(pattern, plain(actual), re.DOTALL)
        if found is None:
            return pattern
        self.known |= {names[group]: value for group, value in found.groupdict().items()}
        return ""

    def _part(self, piece: tuple[str, str], names: dict[str, str]) -> str:
        kind, text = piece
        fixed = {"any": ".*?", "time": f"(?:{_TIME})", "plain": re.escape(text)}
        if kind in fixed:
            return fixed[kind]
        if kind == "file":
            return "nodes/../../" + self._part(("id", text[-16:]), names)
        meant = self._meant(text)
        if meant != text or text in self.known:
            return re.escape(meant)
        if text in names.values():
            return f"(?P={next(group for group, name in names.items() if name == text)})"
        names[f"v{len(names)}"] = text
        return f"(?P<v{len(names) - 1}>[0-9a-z]{{{len(text)}}})"


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    end = 0
    for found in _VARIABLE.finditer(text):
        yield "plain", text[end : found.start()]
        yield str(found.lastgroup), found[0]
        end = found.end()
    yield "plain", text[end:]


def _plain(text: str) -> str:
    """The output without colours, trailing blanks, and empty lines at its ends."""
    return "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n")).strip("\n")


def _squeezed(text: str) -> str:
    """The plain output with columns of no width, which depends on what a page leaves out."""
    return re.sub(r"(─)+|(?<=\S)( ) +", r"\1\2", _plain(text))
