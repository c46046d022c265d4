"""The files that differ between two trees, in path order; equal subtrees are not read."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from memotree_storage.cache import BoundedCache
from memotree_storage.errors import CorruptError
from memotree_storage.git.trees import Tree, TreeReader, row_blob, row_id
from memotree_storage.ports import PathChange, PathScope

MOST_NAMES: Final = 20_000_000
"""Names of files and folders that one comparison reads. A commit of a million nodes has about three million."""

_RECENT_NAMES: Final = 200_000
"""Names in the trees that a walk keeps; together about 32 MB."""

_RECENT_PAIRS: Final = 200_000
"""Folders in the pairs of trees whose comparison a walk keeps."""

_Differing = tuple[bytes, bytes | None, bytes | None]
"""Sort key in the folder, old raw entry, new raw entry."""


class TreeTooLargeError(CorruptError):
    """The folders of a commit stand for more files than are read, as a few trees that name each other can."""

    reason = "TREE_TOO_LARGE"

    def __init__(self) -> None:
        super().__init__(
            f"The folders of a commit list more than {MOST_NAMES:,} names where MemoTree keeps its files, so it is not "
            "read. Move the branches that have it back with git."
        )


def diff_trees(
    reader: TreeReader, old: bytes | None, new: bytes | None, scope: PathScope | None = None
) -> Iterator[PathChange]:
    """Compare two root trees (``None`` is the empty tree) and yield the changes in the byte order of their paths.

    Git sorts a folder as if its name ended with ``/``, so a depth-first walk in entry order gives whole paths in order.
    The walk has its own stack, since people may push trees deeper than Python can recurse. A change of only a file's
    mode, and links to other repositories, are not differences.

    Args:
        reader: Reads the trees.
        old: The id of one root tree.
        new: The id of the other.
        scope: The part to compare; all when ``None``.

    Raises:
        TreeTooLargeError: After `MOST_NAMES` names.
    """
    walk = _Walk(reader, keep=old is not None)
    stack = [(b"", walk.differing(old, new, b""))]
    while stack:
        prefix, entries = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        key, old_row, new_row = entry
        path = (prefix + key).decode("utf-8", "surrogateescape")
        if key.endswith(b"/"):
            wanted = "" if scope is None else scope.names(path)
            if wanted is not None:
                old_tree, new_tree = old_row and row_id(old_row), new_row and row_id(new_row)
                start = None if scope is None else scope.beginning_below(path)
                if start is None:
                    below = walk.differing(old_tree, new_tree, wanted.encode())
                else:
                    below = walk.differing_folders(old_tree, new_tree, start.encode())
                stack.append((prefix + key, below))
            continue
        old_blob, new_blob = row_blob(old_row), row_blob(new_row)
        if old_blob != new_blob:
            yield PathChange(
                path=path,
                old_blob=None if old_blob is None else old_blob.hex(),
                new_blob=None if new_blob is None else new_blob.hex(),
            )


class _Walk:
    """Reads the trees of one comparison, and counts their names. ``keep`` puts the trees into the reader's cache."""

    def __init__(self, reader: TreeReader, *, keep: bool) -> None:
        self._reader = reader
        self._keep = keep
        self._names = 0
        self._recent: BoundedCache[bytes, Tree] = BoundedCache(_RECENT_NAMES, lambda tree: 1 + len(tree.rows))
        """Without the reader's cache, a tree that a thousand folders share would be read a thousand times."""
        self._pairs: BoundedCache[tuple[bytes | None, bytes | None], dict[bytes, list[_Differing]]] = BoundedCache(
            _RECENT_PAIRS, lambda below: 1 + sum(map(len, below.values()))
        )

    def differing(self, old: bytes | None, new: bytes | None, beginning: bytes) -> Iterator[_Differing]:
        """Yield the entries that differ between two trees and whose names begin so, in Git's order."""
        if old == new:
            return
        if old is None or new is None:
            tree = self._load(old or new or b"")
            for place in self._places(tree, beginning):
                key, row = tree.keys[place], tree.rows[place]
                yield (key, None, row) if old is None else (key, row, None)
            return
        before, after = (self._rows(self._load(name), beginning) for name in (old, new))
        # Equal entries are equal bytes, so a set difference skips them without a Python step for each.
        changed = set(before).symmetric_difference(after)
        sides: dict[bytes, list[bytes | None]] = {}
        for row in changed.intersection(before):
            sides.setdefault(_key(row), [None, None])[0] = row
        for row in changed.intersection(after):
            sides.setdefault(_key(row), [None, None])[1] = row
        for key in sorted(sides):
            old_row, new_row = sides[key]
            yield key, old_row, new_row

    def differing_folders(self, old: bytes | None, new: bytes | None, start: bytes) -> Iterator[_Differing]:
        """Yield the differing folders of two trees with a name that begins with ``start`` and the folder's own name.

        What the names in its folders begin with is found out once for two trees, however many folders share them: a
        million folders that are a few trees stand for a million comparisons, none of which finds a file.
        """
        below = self._pairs.get((old, new))
        if below is None:
            below = self._by_start(old, new, len(start))
            self._pairs.put((old, new), below)
        self._count(1)
        yield from below.get(start, ())

    def _by_start(self, old: bytes | None, new: bytes | None, length: int) -> dict[bytes, list[_Differing]]:
        """The differing folders of two trees by what names in them begin with, if the folder's own name follows."""
        found: dict[bytes, list[_Differing]] = {}
        for differing in self.differing(old, new, b""):
            key, *rows = differing
            if key.endswith(b"/"):
                end = length + len(key) - 1
                trees = [self._load(row_id(row)) for row in rows if row is not None]
                starts = {name[:end] for tree in trees for name in tree.keys}
                for start in sorted(each[:length] for each in starts if each[length:] == key[:-1]):
                    found.setdefault(start, []).append(differing)
        return found

    def _load(self, name: bytes) -> Tree:
        tree = self._recent.get(name)
        if tree is None:
            tree = self._reader.load(name, keep=self._keep)
            self._recent.put(name, tree)
            self._count(len(tree.rows))
        return tree

    def _places(self, tree: Tree, beginning: bytes) -> range:
        places = range(len(tree.keys))
        if beginning:
            places = range(bisect_left(tree.keys, beginning), bisect_left(tree.keys, beginning + b"\xff"))
        self._count(1 + len(places))
        return places

    def _rows(self, tree: Tree, beginning: bytes) -> list[bytes]:
        places = self._places(tree, beginning)
        return tree.rows[places.start : places.stop] if beginning else tree.rows

    def _count(self, names: int) -> None:
        self._names += names
        if self._names > MOST_NAMES:
            raise TreeTooLargeError


def _key(row: bytes) -> bytes:
    mode, _, rest = row[:-21].partition(b" ")
    return rest + b"/" if mode in {b"40000", b"040000"} else rest
