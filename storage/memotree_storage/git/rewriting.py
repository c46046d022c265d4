"""Rewrites a history: every commit, tree, file and tag, without what an erasure takes away.

Objects are rewritten from their bytes, so that authors, dates, parents and whatever else a commit says stay as they
are, and what does not change keeps its id. Each tree and file is looked at once, however many commits have it. The
commits before the first that has what goes keep their ids; a commit that changes nothing any more stays, empty.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.history import walk_history
from memotree_storage.git.objects import BLOB, COMMIT, TAG, TREE, ObjectMissingError, object_id, raw_id, tag_target
from memotree_storage.git.trees import EMPTY_TREE, TreeReader, row_id
from memotree_storage.model.erasure import Redaction
from memotree_storage.model.workspace import KEEP_PREFIX

_RECORDS: Final = "refs/memotree/"
_HEX_ID: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_SIGNATURE: Final = b"-----BEGIN "
_REPORT: Final = 200
_DROPPED: Final = (b"gpgsig", b"gpgsig-sha256", b"mergetag")
"""Headers that sign the bytes of a commit or repeat a tag: they are wrong for other bytes."""

Told = Callable[[int, int], None]
"""Called with the number of commits that are rewritten, and of all."""


class Sink(Protocol):
    """Takes the objects of the new history."""

    @property
    def keeps(self) -> bool:
        """Whether it also wants the objects that do not change."""
        ...

    def add(self, kind: int, data: bytes) -> bytes:
        """Take an object, and return its id (20 bytes)."""
        ...


class Counting:
    """A sink that only names objects, for a preview."""

    keeps: Final = False

    def add(self, kind: int, data: bytes) -> bytes:
        """Name an object."""
        return object_id(kind, data)


class _Context(NamedTuple):
    """What the rewriting of a tree depends on besides its bytes."""

    prefix: str = ""
    later: bool = False
    is_record: bool = False


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A tree after the rewriting: its id (``None`` if nothing is left), and the files in it that are erased."""

    name: bytes | None
    erased: frozenset[tuple[str, bytes]] = frozenset()


class _Row(NamedTuple):
    """An entry of a tree after the rewriting: sort key, bytes (``None`` if it goes), and what is erased in it."""

    key: bytes
    row: bytes | None
    erased: frozenset[tuple[str, bytes]] = frozenset()


@dataclass(slots=True)
class Findings:
    """What a rewriting changed.

    Attributes:
        commits: The commits with other ids: new by old.
        blobs: The files with other bytes: new by old, "" if the file went whole.
        paths: The files that changed.
        tags: The annotated tags with other ids: new by old.
        messages: How many commits have another message.
        signatures: How many signatures went, since they are of other bytes.
    """

    commits: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    messages: int = 0
    signatures: int = 0


class HistoryRewriter:
    """Rewrites what refs reach into a sink; can be called again for what came meanwhile.

    Args:
        repository: The folder of the repository.
        redaction: What goes.
        sink: Takes the new objects; may be replaced between two calls.
    """

    def __init__(self, repository: Path, redaction: Redaction, sink: Sink) -> None:
        self.sink = sink
        self.findings = Findings()
        self._objects = ObjectDatabase(repository / "objects")
        self._trees = TreeReader(self._objects)
        self._redaction = redaction
        self._done: dict[str, str] = {}
        self._later: dict[str, bool] = {}
        self._erased: dict[str, frozenset[tuple[str, bytes]]] = {}
        self._known: dict[tuple[bytes, _Context], _Rewritten] = {}
        self._rows: dict[_Context, dict[bytes, _Row]] = {}
        self._files: dict[tuple[bytes, str, _Context], tuple[str, bytes] | None] = {}
        self._tags: dict[str, str] = {}

    def close(self) -> None:
        """Release files and caches."""
        self._objects.close()
        self._trees.clear()

    def rewrite(self, refs: Mapping[str, str], tell: Told = lambda *_: None) -> dict[str, str]:
        """Rewrite all that refs reach, and return the refs with their new ids.

        Records below ``refs/memotree`` come last: they name commits, which have their new ids by then.

        Raises:
            ObjectMissingError: The repository lacks an object.
        """
        records = {name for name in refs if name.startswith(_RECORDS) and not name.startswith(KEEP_PREFIX)}
        for chosen, is_record in ((refs.keys() - records, False), (records, True)):
            self._commits([refs[name] for name in sorted(chosen)], is_record, tell)
        return {name: self._object(target, name in records).hex() for name, target in refs.items()}

    def _commits(self, tips: Sequence[str], is_record: bool, tell: Told) -> None:
        found = walk_history(self._objects, tips, self._done.__contains__)
        for number, commit in enumerate(found):
            self._commit(commit.commit_id, commit.parents, is_record=is_record)
            if number % _REPORT == 0:
                tell(number, len(found))
        tell(len(found), len(found))

    def _commit(self, commit_id: str, parents: Sequence[str], *, is_record: bool) -> None:
        data = self._objects.read_kind(raw_id(commit_id), COMMIT, "commit")
        tree_id = raw_id(data[5:45].decode())
        later = any(self._later[parent] for parent in parents)
        result = self._tree(tree_id, _Context("", later, is_record))
        if result.erased and not later:
            later = True
            result = self._tree(tree_id, _Context("", later, is_record))
        new_tree = result.name if result.name is not None else self.sink.add(TREE, b"")
        before = self._erased[parents[0]] if parents else frozenset()
        touches = result.erased != before
        self._later[commit_id], self._erased[commit_id] = later, result.erased
        new_parents = [self._done[parent] for parent in parents]
        moved = new_tree != tree_id or new_parents != list(parents)
        new = self._rewritten_commit(data, new_tree, new_parents, touches=touches, moved=moved)
        if new == data and not self.sink.keeps:
            self._done[commit_id] = commit_id
            return
        name = self.sink.add(COMMIT, new).hex()
        self._done[commit_id] = name
        if name != commit_id:
            self.findings.commits[commit_id] = name

    def _rewritten_commit(
        self, data: bytes, tree: bytes, parents: Sequence[str], *, touches: bool, moved: bool
    ) -> bytes:
        head, blank, message = data.partition(b"\n\n")
        told = self._message(message, touches=touches, moved=moved)
        identities = self._redaction.raw(head) if self._redaction.is_of_text else head
        if not moved and told == message and identities == head:
            return data
        if told != message:
            self.findings.messages += 1
        return self._head(identities, tree, parents) + blank + told

    def _head(self, head: bytes, tree: bytes, parents: Sequence[str]) -> bytes:
        """The lines before a message, with another tree and other parents, and without signatures."""
        lines = [b"tree " + tree.hex().encode(), *(b"parent " + parent.encode() for parent in parents)]
        dropping = False
        for line in head.split(b"\n"):
            keyword = line.partition(b" ")[0]
            if line.startswith(b" "):
                if not dropping:
                    lines.append(line)
                continue
            dropping = keyword in _DROPPED
            if dropping:
                self.findings.signatures += keyword != b"mergetag"
            elif keyword not in (b"tree", b"parent"):
                lines.append(line)
        return b"\n".join(lines)

    def _message(self, message: bytes, *, touches: bool, moved: bool) -> bytes:
        """A message without what goes; in commits that are rewritten anyway, with the new ids of those it names."""
        try:
            told = self._redaction.message(message.decode(), touches=touches).encode()
        except UnicodeDecodeError:
            told = self._redaction.raw(message)
        return self._with_new_ids(told) if moved or told != message else told

    def _with_new_ids(self, data: bytes) -> bytes:
        def new(found: re.Match[bytes]) -> bytes:
            return self.findings.commits.get(found[0].decode(), found[0].decode()).encode()

        return _HEX_ID.sub(new, data)

    def _tree(self, name: bytes, context: _Context) -> _Rewritten:
        known = self._known.get((name, context))
        if known is None:
            known = self._known[name, context] = self._rewritten_tree(name, context)
        return known

    def _rewritten_tree(self, name: bytes, context: _Context) -> _Rewritten:
        tree = self._trees.load(name, keep=False)
        known = self._rows.setdefault(context, {})
        erased: set[tuple[str, bytes]] = set()
        kept: dict[bytes, bytes] = {}
        is_changed = False
        for key, row in zip(tree.keys, tree.rows, strict=True):
            found = known.get(row)
            if found is None:
                found = known[row] = self._rewritten_row(key, row, context)
            erased.update(found.erased)
            is_changed = is_changed or found.row != row
            if found.row is not None:
                kept[found.key] = found.row
        if not is_changed:
            if self.sink.keeps and name != EMPTY_TREE:
                self.sink.add(TREE, tree.encode())
            return _Rewritten(name, frozenset(erased))
        if not kept and context.prefix:
            return _Rewritten(None, frozenset(erased))
        data = b"".join(kept[key] for key in sorted(kept))
        return _Rewritten(self.sink.add(TREE, data), frozenset(erased))

    def _rewritten_row(self, key: bytes, row: bytes, context: _Context) -> _Row:
        """An entry of a tree after the rewriting; equal entries of one folder are rewritten once."""
        mode, _, rest = row.partition(b" ")
        path = context.prefix + rest[:-21].decode("utf-8", "surrogateescape")
        if key.endswith(b"/"):
            if not self.sink.keeps and not context.is_record and not self._redaction.is_below(f"{path}/"):
                return _Row(key, row)
            below = self._tree(row_id(row), context._replace(prefix=f"{path}/"))
            if below.name is None:
                return _Row(key, None, below.erased)
            folder = self._redaction.name(rest[:-21])
            return _Row(folder + b"/", _row(mode, folder, below.name), below.erased)
        if mode == b"160000":
            return _Row(key, row)
        is_erased = self._redaction.is_of_erased(path)
        erased = frozenset({(path, row_id(row))}) if is_erased else frozenset[tuple[str, bytes]]()
        found = self._file(row_id(row), path, context)
        if found is None:
            return _Row(key, None, erased)
        last = found[0].rpartition("/")[2].encode("utf-8", "surrogateescape")
        return _Row(last, _row(mode, last, found[1]), erased)

    def _file(self, blob: bytes, path: str, context: _Context) -> tuple[str, bytes] | None:
        """The new path and blob of a file; ``None`` if it goes."""
        concerned = self._redaction.concerns(path) or context.is_record
        if not concerned and not self.sink.keeps:
            return path, blob
        key = (blob, path, _Context("", context.later, context.is_record))
        if key in self._files:
            return self._files[key]
        data = self._objects.read_kind(blob, BLOB, "blob")
        found: tuple[str, bytes] | None = (path, data)
        if concerned:
            found = self._redaction.file(path, data, later=context.later)
            if found is not None and context.is_record:
                found = found[0], self._with_new_ids(found[1])
        if found is None:
            self.findings.blobs[blob.hex()] = ""
            self.findings.paths.add(path)
            self._files[key] = None
            return None
        folder, _, last = found[0].rpartition("/")
        renamed = self._redaction.name(last.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        new_path = f"{folder}/{renamed}" if folder else renamed
        new = blob if found[1] == data and not self.sink.keeps else self.sink.add(BLOB, found[1])
        if new != blob:
            self.findings.blobs[blob.hex()] = new.hex()
        if new != blob or new_path != path:
            self.findings.paths.add(path)
        self._files[key] = new_path, new
        return new_path, new

    def _object(self, object_id_: str, is_record: bool) -> bytes:
        """The new id of what a ref holds: a commit, a tag, or a tree or file."""
        if object_id_ in self._done:
            return raw_id(self._done[object_id_])
        if object_id_ in self._tags:
            return raw_id(self._tags[object_id_])
        name = raw_id(object_id_)
        kind, data = self._objects.read(name)
        if kind == TAG:
            new = self._tag(object_id_, data, is_record)
        elif kind == TREE:
            found = self._tree(name, _Context("", later=True, is_record=is_record)).name
            new = self.sink.add(TREE, b"") if found is None else found
        elif kind == BLOB:
            new = self.sink.add(BLOB, self._redaction.raw(data))
        else:
            raise ObjectMissingError(object_id_, "commit")
        self._tags[object_id_] = new.hex()
        return new

    def _tag(self, tag_id: str, data: bytes, is_record: bool) -> bytes:
        target = tag_target(tag_id, data).hex()
        new_target = self._object(target, is_record)
        head, blank, message = data.partition(b"\n\n")
        moved = new_target.hex() != target
        told = self._message(message, touches=bool(self._erased.get(target)), moved=moved)
        identities = self._redaction.raw(head) if self._redaction.is_of_text else head
        if not moved and told == message and identities == head:
            return self.sink.add(TAG, data)
        if _SIGNATURE in told:
            told = told[: told.index(_SIGNATURE)]
            self.findings.signatures += 1
        lines = [b"object " + new_target.hex().encode(), *identities.split(b"\n")[1:]]
        new = self.sink.add(TAG, b"\n".join(lines) + blank + told)
        self.findings.tags[tag_id] = new.hex()
        return new


def _row(mode: bytes, name: bytes, blob: bytes) -> bytes:
    return mode + b" " + name + b"\0" + blob


def names_with_text(redaction: Redaction, refs: Iterable[str]) -> list[str]:
    """The refs whose names have the text that goes."""
    return sorted(name for name in refs if redaction.has_text(name))
