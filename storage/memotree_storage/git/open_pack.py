"""Several commits in one pack: each may stand on the one before, and none is durable until all are synced together."""

from typing import Self

from memotree_storage.faults import point
from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.disk import disk_errors
from memotree_storage.git.objects import COMMIT, TAG, encode_commit, encode_tag, parse_commit, raw_id
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.refs import check_ref_name
from memotree_storage.git.signing import Signer
from memotree_storage.git.trees import TreeReader, TreeWriter
from memotree_storage.ports import CommitDraft, TagDraft, WrittenCommit


def signed_tag(commit: bytes, draft: TagDraft, signer: Signer | None) -> bytes:
    """A tag object for a commit, signed if there is somebody who signs."""
    encoded = encode_tag(commit, draft)
    return encoded if signer is None else signer.sign_tag(encoded)


class GitOpenPack:
    """Implements the port `OpenPack`; every method may be called from any thread, one at a time.

    Args:
        objects: The objects of the repository.
        trees: Reads its trees.
        is_read: Whether what was written is read before the pack is finished. It is kept in memory then, raw.
        signer: Signs commits and tags; nobody if it is ``None``.
    """

    def __init__(
        self, objects: ObjectDatabase, trees: TreeReader, *, is_read: bool, signer: Signer | None = None
    ) -> None:
        self._objects = objects
        self._trees = trees
        self._is_read = is_read
        self._signer = signer
        self._pack = PackWriter(objects.pack_folder)
        self._held: list[bytes] = []
        self._size = 0

    def __enter__(self) -> Self:
        self._pack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.release(self._held)
        self._pack.__exit__()

    @property
    def size(self) -> int:
        """Bytes of the objects written so far, before their compression."""
        return self._size

    def add(self, kind: int, data: bytes) -> bytes:
        """Add an object and return its id (20 bytes)."""
        name = self._pack.add(kind, data)
        self._size += len(data)
        if self._is_read:
            self._objects.hold(name, kind, data)
            self._held.append(name)
        return name

    def write_commit(self, draft: CommitDraft) -> WrittenCommit:
        """Write blobs, trees, commit and tag object; see `GitRepository.write_commit` for its errors."""
        root = None
        parents: tuple[str, ...] = ()
        if draft.parent is not None:
            data = self._objects.read_kind(raw_id(draft.parent, "commit"), COMMIT, "commit")
            root = raw_id(parse_commit(draft.parent, data).tree_id, "tree")
            parents = (draft.parent, *draft.merged)
        for merged in draft.merged:
            self._objects.read_kind(raw_id(merged, "commit"), COMMIT, "commit")
        if draft.tag is not None:
            check_ref_name(f"refs/tags/{draft.tag.name}")
        with disk_errors("write a commit"):
            tree, blobs = TreeWriter(self._trees, self).apply(root, draft.changes)
            encoded = encode_commit(tree, parents, draft.author, draft.committer, draft.message)
            commit = self.add(COMMIT, encoded if self._signer is None else self._signer.sign_commit(encoded))
            tag = None if draft.tag is None else self.add(TAG, signed_tag(commit, draft.tag, self._signer))
        return WrittenCommit(commit.hex(), blobs, None if tag is None else tag.hex())

    def finish(self) -> None:
        """Sync the pack and make it known to the repository.

        Raises:
            RepositoryUnavailableError: The disk refused; nothing is left behind.
        """
        point("git.before-pack")
        with disk_errors("write a commit"):
            written = self._pack.finish()
            self._objects.register(written.name, written.offsets)
