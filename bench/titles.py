"""How many titles of a folder's trees name nothing: numbers, markup, rows of figures, lone signs of code.

Run it as ``python -m bench.titles FOLDER...``; files that cannot be read are counted and left out. It needs no server.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document, UnreadableDocumentError, read_document
from memotree.forest.tree_building.merging import merge_now
from memotree.forest.tree_building.options import CHUNK_SIZE, MERGE_FACTOR, TEXT_CHUNK_SIZE
from memotree.forest.tree_building.plan import group_pieces, plan_tree

_LETTERS: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_BAD: Final = (
    ("markup", re.compile(r"</?[a-zA-Z][\w-]*[^<>]*>|<!--.*|```.*|~~~.*|\[!\[.*|!\[.*")),
    ("a request of roff", re.compile(r"[.'][A-Za-z\\]{1,3}\b.*|.*\\f[BIRP].*")),
    (
        "a decorator or a sign of code",
        re.compile(r"@[\w.]+(\(.*)?|[{}()\[\];,'\"*/#!-]+( … .*)?|.* … [{}()\[\];,'\"*/#!-]+"),
    ),
    ("a part without a name", re.compile(r"Parts? \d+|Section \d+|Page \d+")),
)


@dataclass(slots=True)
class Tally:
    """The titles of one kind of file."""

    files: int = 0
    titles: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


def main() -> int:
    """Print a table of the titles by the suffix of the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    tallies, unread = tally(path for folder in parser.parse_args().folder for path in sorted(folder.rglob("*")))
    print("| files | number | titles | name nothing | percent | most of them |")
    print("|---|---:|---:|---:|---:|---|")
    for suffix, found in sorted(tallies.items()):
        bad = found.bad.total()
        most = ", ".join(f"{what} ({count})" for what, count in found.bad.most_common(2))
        print(
            f"| {suffix} | {found.files} | {found.titles} | {bad} | {100 * bad / max(1, found.titles):.1f} | {most} |"
        )
        print(f"{suffix}: {found.examples[:8]}", file=sys.stderr)
    print(f"{unread} files could not be read.", file=sys.stderr)
    return 0


def tally(paths: Iterable[Path]) -> tuple[dict[str, Tally], int]:
    """Return the tallies by suffix, and the number of files that could not be read."""
    tallies: dict[str, Tally] = {}
    unread = 0
    for path in paths:
        if not path.is_file():
            continue
        try:
            document = read_document(path.read_bytes(), name=path.name)
        except UnreadableDocumentError:
            unread += 1
            continue
        suffix = re.sub(r"\.\d\w*\.gz$", ".N.gz", path.name)[-5:] if path.suffix == ".gz" else path.suffix
        found = tallies.setdefault(suffix, Tally())
        found.files += 1
        for title in titles(document):
            found.titles += 1
            if fault := fault_of(title):
                found.bad[fault] += 1
                found.examples.append(title)
    return tallies, unread


def titles(document: Document) -> Iterator[str]:
    """Yield the titles of the nodes of a document; which neighbours are merged hardly matters, so all that fit are."""
    size = CHUNK_SIZE if document.turns or document.language else TEXT_CHUNK_SIZE
    pieces = split(document, size)
    same = np.ones(2)
    mergings = [
        merge_now(
            [same] * group.count,
            [piece.end - piece.start for piece in pieces[group.first : group.first + group.count]],
            lambda _left, _right: same,
            threshold=0.5,
            limit=size * MERGE_FACTOR,
        )
        for group in group_pieces(pieces)
    ]
    return (node.title for node in plan_tree(document, pieces, mergings).nodes)


def fault_of(title: str) -> str:
    """Return what is wrong with a title, or ``""``. The rules are not those that make the titles."""
    for what, pattern in _BAD:
        if pattern.fullmatch(title):
            return what
    letters, others = len(_LETTERS.findall(title)), len(re.findall(r"\d", title))
    if letters == 0:
        return "a number or a sign"
    if others > letters and len(_WORD.findall(title)) < 2:
        return "a row of figures"
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
