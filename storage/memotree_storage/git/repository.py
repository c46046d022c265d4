"""The Git repository of one workspace: implements the port `CommitStore`, and a little more."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from memotree_storage.cache import BoundedCache
from memotree_storage.errors import UnavailableError
from memotree_storage.faults import point
from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.diff import diff_trees
from memotree_storage.git.disk import disk_errors
from memotree_storage.git.history import walk_history
from memotree_storage.git.layout import check_layout, create_layout
from memotree_storage.git.locks import LockJournal, RepositoryLock
from memotree_storage.git.objects import (
    BLOB,
    COMMIT,
    TAG,
    ObjectMissingError,
    is_hex_id,
    parse_commit,
    parse_tag,
    raw_id,
)
from memotree_storage.git.open_pack import GitOpenPack, signed_tag
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.recovery import LEFTOVER_AGE, recover
from memotree_storage.git.refs import RefStore, check_ref_name
from memotree_storage.git.signing import Signer
from memotree_storage.git.trees import TreeReader
from memotree_storage.ports import (
    CommitDraft,
    CommitInfo,
    CommitParents,
    PathChange,
    PathScope,
    TagDraft,
    WrittenCommit,
)

_BLOB_CACHE_BYTES: Final = 32 << 20
_REMEMBERED: Final = 20_000
"""Objects whose commit is remembered, and commits whose tree is: their bytes may be many, and are read once."""

_NO_COMMIT: Final = ""
_PACKED_FOLDERS: Final = ("refs/heads", "refs/tags")
_SLICE: Final = 50
"""Refs whose files are removed while the write lock is held."""


class RepositoryReplacedError(UnavailableError):
    """An erasure has put a new generation of the repository in its place while a call worked on the old one."""

    reason = "REPOSITORY_REPLACED"

    def __init__(self) -> None:
        super().__init__("An erasure has just rewritten the history of the workspace; send the call again.")


class GitRepository:
    """One bare repository; every method may be called from any thread.

    Objects are written without a lock, since a pack has a unique name and nothing refers to it yet. Refs move under the
    repository's write lock. The git program is not used, but it may read, push and repack at the same time.
    """

    def __init__(self, path: Path, *, lock_timeout: float = 10.0, signer: Signer | None = None) -> None:
        """Open the repository at ``path``; call `open` or `create` instead.

        Args:
            path: The folder of the bare repository.
            lock_timeout: Seconds to wait for another writer, or for a ref that git has locked.
            signer: Signs the commits and tags that are written; nobody if it is ``None``.
        """
        check_layout(path)
        self.path = path
        self._is_replaced = False
        self._signer = signer
        self._lock_timeout = lock_timeout
        self._lock = RepositoryLock(path)
        self._journal = LockJournal(path)
        self._refs = RefStore(path, self._journal)
        self._objects = ObjectDatabase(path / "objects")
        self._trees = TreeReader(self._objects)
        self._blobs: BoundedCache[str, bytes] = BoundedCache(_BLOB_CACHE_BYTES, lambda data: len(data) + 150)
        self._commits: BoundedCache[str, str] = BoundedCache(_REMEMBERED)
        self._roots: BoundedCache[str, bytes] = BoundedCache(_REMEMBERED)

    @classmethod
    def create(cls, path: Path, *, description: str = "", signer: Signer | None = None) -> "GitRepository":
        """Create a bare repository whose ``HEAD`` is ``refs/heads/main``. Atomic: it is created whole or not at all.

        Raises:
            RepositoryExistsError: There is already something at ``path``.
        """
        create_layout(path, description)
        return cls(path, signer=signer)

    @classmethod
    def open(cls, path: Path, *, lock_timeout: float = 10.0, signer: Signer | None = None) -> "GitRepository":
        """Open an existing repository.

        Raises:
            RepositoryMissingError: There is no repository at ``path``.
            RepositoryFormatError: It stores objects or refs in a way that this version does not support.
        """
        return cls(path, lock_timeout=lock_timeout, signer=signer)

    def close(self) -> None:
        """Release files and caches."""
        self._objects.close()
        for cache in (self._trees, self._blobs, self._commits, self._roots):
            cache.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the port ----------------------------------------------------------------------------------------------------

    def write_commit(self, draft: CommitDraft) -> WrittenCommit:
        """Write blobs, trees, commit and tag object as one synced pack. No ref moves, so the commit is not visible yet.

        Raises:
            ObjectMissingError: The parent is not a commit of this repository.
            InvalidPathError, InvalidSignatureError, InvalidMessageError, InvalidRefNameError: Git cannot store a value.
            PathTakenError: The parent has a file where a folder is needed, or the other way round.
            RepositoryUnavailableError: The disk refused; nothing is left behind.
        """
        with GitOpenPack(self._objects, self._trees, is_read=False, signer=self._signer) as pack:
            written = pack.write_commit(draft)
            pack.finish()
        return written

    def open_pack(self) -> GitOpenPack:
        """Begin a pack of several commits. What is written into it is kept in memory until it is finished or left."""
        return GitOpenPack(self._objects, self._trees, is_read=True, signer=self._signer)

    def write_tag(self, draft: TagDraft, commit_id: str) -> str:
        """Write an annotated tag object for a commit and return its id. No ref moves.

        Raises:
            ObjectMissingError: There is no such commit.
            InvalidRefNameError, InvalidSignatureError, InvalidMessageError: Git cannot store a value.
            RepositoryUnavailableError: The disk refused; nothing is left behind.
        """
        check_ref_name(f"refs/tags/{draft.name}")
        commit = raw_id(commit_id, "commit")
        self._objects.read_kind(commit, COMMIT, "commit")
        with disk_errors("write a tag"), PackWriter(self._objects.pack_folder) as pack:
            tag = pack.add(TAG, signed_tag(commit, draft, self._signer))
            written = pack.finish()
            self._objects.register(written.name, written.offsets)
        return tag.hex()

    def move_ref(self, ref: str, old: str | None, new: str | None) -> bool:
        """Compare and swap: set ``ref`` to ``new`` if it is at ``old`` (``None``: absent); return whether it was.

        Raises:
            InvalidRefNameError: Git refuses the name.
            RefNameTakenError: The name would be both a file and a folder, because of another ref.
            ObjectMissingError: ``new`` is not in the repository, or a branch would not point to a commit.
            RepositoryBusyError, RefLockedError: Another process or git held a lock for too long.
            RepositoryUnavailableError: The disk refused; the ref is then at ``old`` or at ``new``.
        """
        check_ref_name(ref)
        if self._is_replaced:
            raise RepositoryReplacedError
        if new is not None:
            if ref.startswith("refs/heads/"):
                self._objects.read_kind(raw_id(new, "commit"), COMMIT, "commit")
            elif not self.exists(new):
                raise ObjectMissingError(new)
        point("git.before-ref")
        with self._lock.hold(self._lock_timeout), disk_errors(f"move {ref}"):
            if self._is_replaced:
                raise RepositoryReplacedError
            return self._refs.compare_and_swap(ref, old, new, self._lock_timeout)

    def refs(self, *folders: str) -> dict[str, str]:
        """Return every ref except ``HEAD`` with the object id that it holds, or only those below some folders."""
        with disk_errors("list its refs"):
            return self._refs.below(folders or ("refs",))

    def ref(self, name: str) -> str | None:
        """Return the object id that a ref holds, given its full name; ``None`` if there is none."""
        with disk_errors("read a ref"):
            return self._refs.one(name)

    def commit_info(self, commit_id: str) -> CommitInfo:
        """Return a commit; the id of a tag object is peeled to its commit."""
        found = parse_commit(*self._objects.commit(raw_id(commit_id, "commit")))
        self._roots.put(found.commit_id, raw_id(found.tree_id, "tree"))
        return found

    def diff(self, old: str | None, new: str, scope: PathScope | None = None) -> Iterator[PathChange]:
        """Yield the files that differ between two commits, by path; ``old=None`` yields all files of ``new``."""
        before = None if old is None else self._root(old)
        return diff_trees(self._trees, before, self._root(new), scope)

    def read_blob(self, blob_id: str) -> bytes:
        """Return the bytes of a blob."""
        data = self._blobs.get(blob_id)
        if data is None:
            data = self._objects.read_kind(raw_id(blob_id, "blob"), BLOB, "blob")
            self._blobs.put(blob_id, data)
        return data

    def read_path(self, commit_id: str, path: str) -> bytes | None:
        """Return the file at ``path`` in a commit; ``None`` if there is none."""
        blob = self._trees.find(self._root(commit_id), path)
        return None if blob is None else self.read_blob(blob.hex())

    def files_beginning(self, commit_id: str, beginnings: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield each text with the files of a commit whose paths begin with it: path and blob id, by path.

        Reads only the trees on the way to the last name of each text, and each of them once if the texts come in the
        order of paths.
        """
        return self._trees.find_beginning(self._root(commit_id), beginnings)

    # --- beyond the port ---------------------------------------------------------------------------------------------

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Hold the write lock while another generation takes the place of this one; then no ref of this one moves.

        If the block raises, this one stays in use.

        Raises:
            RepositoryBusyError: Another process held the repository's lock for too long.
        """
        with self._lock.hold(self._lock_timeout):
            yield
            self._is_replaced = True

    def pack_refs(self, limit: int = 0) -> int:
        """Write branches and tags into one file if more than ``limit`` have a file each; return how many.

        Listing refs then reads the files of those alone that have moved since. A session's ref stays a file, since
        deleting a packed ref writes the whole file again. Between the slices, other writers can move refs. What git has
        locked is left for the next time.

        Raises:
            RepositoryBusyError: Another process held the repository's lock for too long.
            RepositoryUnavailableError: The disk refused; every ref is as it was.
        """
        with disk_errors("pack its refs"):
            if self._refs.count_loose(_PACKED_FOLDERS) <= limit:
                return 0
            with self._lock.hold(self._lock_timeout):
                if self._is_replaced:
                    raise RepositoryReplacedError
                packed = list(self._refs.pack(_PACKED_FOLDERS, self._peeled).items())
            point("git.refs-packed")
            for start in range(0, len(packed), _SLICE):
                with self._lock.hold(self._lock_timeout):
                    self._refs.drop_packed(dict(packed[start : start + _SLICE]))
        return len(packed)

    def _peeled(self, object_id: str) -> str | None:
        try:
            return self.peel(object_id)
        except ObjectMissingError:
            return None

    def exists(self, object_id: str) -> bool:
        """Whether the repository has this object."""
        return is_hex_id(object_id) and self._objects.contains(raw_id(object_id))

    def read_tag(self, object_id: str) -> TagDraft | None:
        """Return the annotated tag with this id; ``None`` if the id names another kind of object.

        Raises:
            ObjectMissingError: The repository has no such object.
        """
        kind, data = self._objects.read(raw_id(object_id, "tag"))
        return parse_tag(data) if kind == TAG else None

    def peel(self, object_id: str) -> str | None:
        """Return the id of the commit that an object leads to through at most ten tags; ``None`` if it leads to none.

        It is remembered, also that there is none.
        """
        found = self._commits.get(object_id)
        if found is None:
            name, kind, _ = self._objects.peel(raw_id(object_id, "commit"))
            found = name.hex() if kind == COMMIT else _NO_COMMIT
            self._commits.put(object_id, found)
        return found or None

    def history(self, tips: Sequence[str], known: Callable[[str], bool]) -> list[CommitParents]:
        """Return all commits that ``tips`` reach and that are not known, each once, parents before children.

        The walk does not go past a known commit; a tip that does not lead to a commit is skipped. Takes about half a
        kilobyte of memory and 30 microseconds per commit.
        """
        return walk_history(self._objects, tips, known)

    def recover(self, *, exclusive: bool = False) -> list[str]:
        """Remove what crashed writers left behind; return one sentence for each thing done.

        Without ``exclusive``, only remove what provably belongs to dead MemoTree processes, which is safe at any time.
        With it, the caller guarantees that no other program works on the repository, and lock files and temporary
        files of git older than `LEFTOVER_AGE`, or than the machine's start, are removed too.
        """
        with self._lock.hold(self._lock_timeout), disk_errors("be recovered"):
            return recover(self.path, self._journal, self._refs, LEFTOVER_AGE if exclusive else None)

    def _root(self, commit_id: str) -> bytes:
        root = self._roots.get(commit_id)
        return raw_id(self.commit_info(commit_id).tree_id, "tree") if root is None else root
