"""The files that differ between two trees, in path order; equal subtrees are not read."""

from collections.abc import Iterator

from memotree_storage.git.trees import TreeReader, row_blob, row_id
from memotree_storage.ports import PathChange

_Differing = tuple[bytes, bytes | None, bytes | None]
"""Sort key in the folder, old raw entry, new raw entry."""


def diff_trees(reader: TreeReader, old: bytes | None, new: bytes | None) -> Iterator[PathChange]:
    """Compare two root trees (``None`` is the empty tree) and yield the changes in the byte order of their paths.

    Git sorts a folder as if its name ended with ``/``, so a depth-first walk in entry order gives whole paths in order.
    The walk has its own stack, since people may push trees deeper than Python can recurse. A change of only a file's
    mode, and links to other repositories, are not differences.
    """
    keep = old is not None
    stack = [(b"", _differing(reader, old, new, keep=keep))]
    while stack:
        prefix, entries = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        key, old_row, new_row = entry
        if key.endswith(b"/"):
            below = _differing(reader, old_row and row_id(old_row), new_row and row_id(new_row), keep=keep)
            stack.append((prefix + key, below))
            continue
        old_blob, new_blob = row_blob(old_row), row_blob(new_row)
        if old_blob != new_blob:
            yield PathChange(
                path=(prefix + key).decode("utf-8", "surrogateescape"),
                old_blob=None if old_blob is None else old_blob.hex(),
                new_blob=None if new_blob is None else new_blob.hex(),
            )


def _differing(reader: TreeReader, old: bytes | None, new: bytes | None, *, keep: bool) -> Iterator[_Differing]:
    """Yield the entries that differ between two trees, in Git's order."""
    if old == new:
        return
    if old is None or new is None:
        tree = reader.load(old or new or b"", keep=keep)
        for key, row in zip(tree.keys, tree.rows, strict=True):
            yield (key, None, row) if old is None else (key, row, None)
        return
    before, after = reader.load(old, keep=keep), reader.load(new, keep=keep)
    # Equal entries are equal bytes, so a set difference skips them without a Python step for each.
    changed = set(before.rows).symmetric_difference(after.rows)
    sides: dict[bytes, list[bytes | None]] = {}
    for row in changed.intersection(before.rows):
        sides.setdefault(_key(row), [None, None])[0] = row
    for row in changed.intersection(after.rows):
        sides.setdefault(_key(row), [None, None])[1] = row
    for key in sorted(sides):
        old_row, new_row = sides[key]
        yield key, old_row, new_row


def _key(row: bytes) -> bytes:
    mode, _, rest = row[:-21].partition(b" ")
    return rest + b"/" if mode in {b"40000", b"040000"} else rest
