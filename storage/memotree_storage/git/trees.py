"""Trees: read, searched, and rewritten only along the changed paths.

A commit of ten nodes among a million touches about thirty trees. A parsed tree is two lists in Git's order (sort keys
and raw entries), so that changing one entry of a thousand is a binary search, and encoding the tree is one join.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

from dulwich.index import validate_path_element_hfs, validate_path_element_ntfs

from memotree_storage.cache import BoundedCache
from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.objects import BLOB, TREE, ObjectDamagedError, object_id
from memotree_storage.ports import FileContent

MAX_DEPTH: Final = 64
"""The maximum number of folders in a path that is written, so that building a tree can recurse."""

_MAX_NAME: Final = 255
"""The maximum length of a name in bytes that file systems accept, for people who check the repository out."""

_TREE_CACHE_BYTES: Final = 64 << 20
_ENTRY_COST: Final = 160
"""Memory of one parsed entry in bytes: two bytes objects and their slots in two lists."""

_PLAIN_NAME: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*")
"""Names that no file system takes for ``.git``; they need no further check."""

_NO_NAME: Final = b"\0"
"""A name that no tree can have."""

_FOLDER_MODE: Final = b"40000 "
_FILE_MODE: Final = b"100644 "
_GITLINK_MODE: Final = b"160000"


class InvalidPathError(InvalidInputError):
    """A path that a Git tree cannot store, or that collides with another path."""

    reason = "INVALID_PATH"


class PathTakenError(FailedPreconditionError):
    """A folder that MemoTree writes into is a file in the repository, or the other way round: a push made it so."""

    reason = "PATH_TAKEN"

    def __init__(self, path: str) -> None:
        sentence = f"{path!r} is a file where a folder is needed, or the other way round; rename it with git."
        super().__init__(f"The commit cannot be written: {sentence}", [FieldViolation(path, sentence)])


@dataclass(slots=True)
class Tree:
    """A parsed tree: ``keys`` in ascending order (a folder's key ends with ``/``), ``rows`` are their raw entries.

    A tree in the cache is shared and never changed; a writer works on a `copy`.
    """

    keys: list[bytes] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)

    @classmethod
    def parse(cls, data: bytes) -> "Tree":
        """Parse the bytes of a tree object; ``ValueError`` if they are malformed."""
        tree = cls()
        position = 0
        while position < len(data):
            space = data.index(b" ", position)
            end = data.index(b"\0", space)
            name = data[space + 1 : end]
            is_folder = data[position:space] in {b"40000", b"040000"}
            tree.keys.append(name + b"/" if is_folder else name)
            tree.rows.append(data[position : end + 21])
            position = end + 21
        if position != len(data):
            raise ValueError("truncated tree")
        return tree

    def copy(self) -> "Tree":
        """Return an independent tree with the same entries."""
        return Tree(self.keys.copy(), self.rows.copy())

    def encode(self) -> bytes:
        """Return the bytes of the tree object."""
        return b"".join(self.rows)

    def row(self, key: bytes) -> bytes | None:
        """Return the raw entry of a key; ``None`` if there is none."""
        place = bisect_left(self.keys, key)
        return self.rows[place] if place < len(self.keys) and self.keys[place] == key else None

    def put(self, key: bytes, row: bytes | None) -> None:
        """Set the entry of a key; ``None`` removes it."""
        place = bisect_left(self.keys, key)
        present = place < len(self.keys) and self.keys[place] == key
        if row is None:
            if present:
                del self.keys[place], self.rows[place]
        elif present:
            self.rows[place] = row
        else:
            self.keys.insert(place, key)
            self.rows.insert(place, row)


EMPTY_TREE: Final = object_id(TREE, b"")


def row_id(row: bytes) -> bytes:
    """Return the object id (20 bytes) in a raw entry."""
    return row[-20:]


def row_blob(row: bytes | None) -> bytes | None:
    """Return the blob id in a file's raw entry; ``None`` for no entry and for a link to another repository."""
    return None if row is None or row.startswith(_GITLINK_MODE) else row[-20:]


class TreeReader:
    """Reads trees of one repository through a cache of parsed trees."""

    def __init__(self, database: ObjectDatabase) -> None:
        self._database = database
        self._cache: BoundedCache[bytes, Tree] = BoundedCache(
            _TREE_CACHE_BYTES, lambda tree: 200 + _ENTRY_COST * len(tree.rows)
        )

    def load(self, name: bytes, *, keep: bool = True) -> Tree:
        """Return the parsed tree; ``keep=False`` does not add it to the cache, for walks over everything."""
        tree = self._cache.get(name)
        if tree is None:
            data = b"" if name == EMPTY_TREE else self._database.read_kind(name, TREE, "tree")
            try:
                tree = Tree.parse(data)
            except ValueError as error:
                raise ObjectDamagedError(name.hex(), "it is not a well-formed tree") from error
            if keep:
                self._cache.put(name, tree)
        return tree

    def remember(self, name: bytes, tree: Tree) -> None:
        """Cache a tree that was just built; its id is the hash of its content, so the entry cannot be wrong."""
        self._cache.put(name, tree)

    def clear(self) -> None:
        """Empty the cache."""
        self._cache.clear()

    def find(self, root: bytes, path: str) -> bytes | None:
        """Return the blob id of the file at ``path`` below ``root``; ``None`` if there is none."""
        folders, name = _split_for_reading(path)
        tree = _Folders(self, root).at(folders)
        return None if tree is None else row_blob(tree.row(name))

    def find_beginning(self, root: bytes, beginnings: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield each text with path and blob id (hex) of the files whose paths begin with it, up to their last name.

        Texts in the order of paths read each folder once, also one that is too large for the cache.
        """
        way = _Folders(self, root)
        for beginning in beginnings:
            folders, name = _split_for_reading(beginning)
            tree = way.at(folders)
            yield beginning, [] if tree is None else _files_in(tree, beginning[: beginning.rfind("/") + 1], name)


class _Folders:
    """Loads folders below a root by their paths, and keeps the trees on the way to the latest one."""

    def __init__(self, reader: TreeReader, root: bytes) -> None:
        self._reader = reader
        self._names: list[bytes] = []
        self._trees = [reader.load(root)]

    def at(self, names: list[bytes]) -> Tree | None:
        """Return the folder at a path, given by its names; ``None`` if there is none."""
        while self._names != names[: len(self._names)]:
            self._names.pop()
            self._trees.pop()
        for name in names[len(self._names) :]:
            row = self._trees[-1].row(name + b"/")
            if row is None:
                return None
            self._names.append(name)
            self._trees.append(self._reader.load(row_id(row)))
        return self._trees[-1]


def _split_for_reading(path: str) -> tuple[list[bytes], bytes]:
    """Return the folders of a path and its last name, encoded as in trees."""
    try:
        *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
    except UnicodeEncodeError:
        return [_NO_NAME], b""
    return folders, name


def _files_in(tree: Tree, folder: str, beginning: bytes) -> list[tuple[str, str]]:
    """Path and blob id (hex) of the files of a folder whose names begin so."""
    found: list[tuple[str, str]] = []
    for place in range(bisect_left(tree.keys, beginning), len(tree.keys)):
        key = tree.keys[place]
        if not key.startswith(beginning):
            break
        blob = None if key.endswith(b"/") else row_blob(tree.rows[place])
        if blob is not None:
            found.append((folder + key.decode("utf-8", "surrogateescape"), blob.hex()))
    return found


class ObjectSink(Protocol):
    """Accepts new objects; `PackWriter` is one."""

    def add(self, kind: int, data: bytes) -> bytes:
        """Store an object and return its id (20 bytes)."""
        ...


@dataclass(slots=True)
class _FolderChange:
    """The changes inside one folder: files by name (``None`` removes one), and the subfolders with changes."""

    files: dict[bytes, FileContent | None] = field(default_factory=dict)
    folders: dict[bytes, "_FolderChange"] = field(default_factory=dict)


class TreeWriter:
    """Applies path changes to a root tree and writes the new blobs and trees to a sink."""

    def __init__(self, reader: TreeReader, sink: ObjectSink) -> None:
        self._reader = reader
        self._sink = sink
        self._blobs: dict[str, str] = {}

    def apply(self, root: bytes | None, changes: Mapping[str, FileContent | None]) -> tuple[bytes, dict[str, str]]:
        """Return the id of the root tree with the changes applied, and the blob ids (hex) of all paths that were set.

        Reads and writes only trees along changed paths. A folder that becomes empty is removed; removing a file that
        does not exist changes nothing.

        Raises:
            InvalidPathError: Git cannot store a path, or two of them need a file and a folder of one name.
            PathTakenError: A file is needed where the tree has a folder, or the other way round.
        """
        self._blobs = {}
        new = self._folder(_plan(changes), root, "")
        if new is None:
            new = self._sink.add(TREE, b"")
        return new, self._blobs

    def _folder(self, change: _FolderChange, base: bytes | None, prefix: str) -> bytes | None:
        """Apply the changes of a folder; return the new tree's id, or ``None`` if the folder is now empty."""
        before = Tree() if base is None else self._reader.load(base)
        tree = before.copy()
        for name, below in change.folders.items():
            key = name + b"/"
            row = tree.row(key)
            path = f"{prefix}{name.decode('utf-8', 'surrogateescape')}/"
            new = self._folder(below, None if row is None else row_id(row), path)
            tree.put(key, None if new is None else _FOLDER_MODE + name + b"\0" + new)
        for name, content in change.files.items():
            if content is None:
                tree.put(name, None)
            else:
                data = content if isinstance(content, bytes) else content()
                tree.put(name, self._file(name, data, tree.row(name), prefix))
        self._refuse_doubles(change, before, tree, prefix)
        if tree.rows == before.rows:
            return base
        if not tree.rows:
            return None
        created = self._sink.add(TREE, tree.encode())
        self._reader.remember(created, tree)
        return created

    def _file(self, name: bytes, data: bytes, row: bytes | None, prefix: str) -> bytes:
        """Return the entry of a file with new bytes; a blob that the parent commit has is not written again."""
        blob = object_id(BLOB, data)
        if row is None or row_blob(row) != blob:
            self._sink.add(BLOB, data)
        self._blobs[prefix + name.decode()] = blob.hex()
        return _FILE_MODE + name + b"\0" + blob

    @staticmethod
    def _refuse_doubles(change: _FolderChange, before: Tree, tree: Tree, prefix: str) -> None:
        for name in (*change.folders, *change.files):
            if tree.row(name) is not None and tree.row(name + b"/") is not None:
                path = prefix + name.decode("utf-8", "surrogateescape")
                if before.row(name) is not None or before.row(name + b"/") is not None:
                    raise PathTakenError(path)
                raise _invalid_path(path, "is a file and a folder at once; remove or rename one of them")


def _plan(changes: Mapping[str, FileContent | None]) -> _FolderChange:
    """Arrange the changes as a tree of folders and check every path that is written."""
    root = _FolderChange()
    for path, data in changes.items():
        *folders, name = split_path(path, written=data is not None)
        place = root
        for folder in folders:
            place = place.folders.setdefault(folder, _FolderChange())
        place.files[name] = data
    return root


def split_path(path: str, *, written: bool = True) -> list[bytes]:
    """Split a path into encoded names.

    Args:
        path: The path of a file that is to be written or removed.
        written: Whether it is written. A file that people pushed under a name that is not UTF-8, or too long, can still
            be removed.

    Raises:
        InvalidPathError: Git cannot store the path.
    """
    names = path.split("/")
    if len(names) > MAX_DEPTH:
        raise _invalid_path(path, f"has more than {MAX_DEPTH} parts; put the file higher")
    checked = []
    for name in names:
        encoded = _encode_name(name) if written else _encode_present_name(name)
        if encoded is None:
            problem = (
                f"has the part {name!r}, which Git can't store: parts are 1 to {_MAX_NAME} bytes of valid Unicode "
                "without NUL, and not '.', '..' or a spelling of '.git'"
            )
            raise _invalid_path(path, problem)
        checked.append(encoded)
    return checked


@lru_cache(maxsize=8192)
def _encode_name(name: str) -> bytes | None:
    if len(name) <= _MAX_NAME and _PLAIN_NAME.fullmatch(name):
        return name.encode()
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return None
    if not 0 < len(encoded) <= _MAX_NAME or b"\0" in encoded or name in {".", ".."}:
        return None
    if not (validate_path_element_ntfs(encoded) and validate_path_element_hfs(encoded)):
        return None
    return encoded


def _encode_present_name(name: str) -> bytes | None:
    """Encode a name as it was decoded from a tree; ``None`` if no tree can have it."""
    try:
        return name.encode("utf-8", "surrogateescape") or None
    except UnicodeEncodeError:
        return None


def _invalid_path(path: str, problem: str) -> InvalidPathError:
    return InvalidPathError(f"Path {path!r} {problem}.", [FieldViolation("path", f"{path!r} {problem}")])
