"""Reads whole entries from Git by blob id, with a cache. A blob never changes, so a cached entry never gets stale."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from memotree_storage.cache import BoundedCache
from memotree_storage.concurrency.threads import in_store_thread, in_store_thread_if
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import archive_path, node_path
from memotree_storage.postgres.rows import Version

_CACHE_BYTES: Final = 64 << 20
_OVERHEAD: Final = 600
_AT_ONCE: Final = 500


def _weight(entry: Entry) -> int:
    text = entry.description if isinstance(entry, Archive) else entry.content + entry.summary
    return _OVERHEAD + 2 * len(text)


def _paths_of(versions: Iterable[Version]) -> dict[str, str]:
    """The path of each version's file by the id of its blob."""
    return {
        version.blob: archive_path(version.entry_id) if version.is_archive else node_path(version.entry_id)
        for version in versions
    }


class EntryReader:
    """Reads entries of any workspace; the cache is shared and bounded by memory."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self._cache: BoundedCache[str, Entry] = BoundedCache(_CACHE_BYTES, _weight)

    def repository_path(self, workspace_id: str) -> Path:
        """The folder of a workspace's repository, for another process that reads entries."""
        return self._repositories.path(workspace_id)

    def remember(self, blobs: Mapping[str, Entry]) -> None:
        """Put entries that were just written into the cache; the key is the blob id."""
        for blob, entry in blobs.items():
            self._cache.put(blob, entry)

    def forget(self) -> None:
        """Forget every entry, since some of them were erased."""
        self._cache.clear()

    async def node(self, workspace_id: str, version: Version) -> Node:
        """The node of a committed version, with its content."""
        cached = self._cache.get(version.blob)
        if isinstance(cached, Node):
            return cached
        entry = (await self.load(workspace_id, [version]))[version.blob]
        if not isinstance(entry, Node):
            message = f"{version.entry_id} is an archive and not a node"
            raise TypeError(message)
        return entry

    async def load(self, workspace_id: str, versions: Iterable[Version]) -> dict[str, Entry]:
        """The entries of committed versions, by blob id."""
        chosen = list(versions)
        return await self.read(workspace_id, await in_store_thread_if(len(chosen) > _AT_ONCE, _paths_of, chosen))

    async def read(self, workspace_id: str, paths: Mapping[str, str]) -> dict[str, Entry]:
        """The entries of blobs, by blob id; ``paths`` gives the file path of each, which the decoder needs."""
        found: dict[str, Entry] = {}
        missing: dict[str, str] = {}
        for blob, path in paths.items():
            cached = self._cache.get(blob)
            if cached is None:
                missing[blob] = path
            else:
                found[blob] = cached
        pending = list(missing.items())
        for start in range(0, len(pending), _AT_ONCE):
            found.update(await in_store_thread(self._read, workspace_id, pending[start : start + _AT_ONCE]))
        return found

    def _read(self, workspace_id: str, blobs: list[tuple[str, str]]) -> dict[str, Entry]:
        repository = self._repositories.get(workspace_id)
        found = {}
        for blob, path in blobs:
            entry = decode_entry(path, repository.read_blob(blob))
            self._cache.put(blob, entry)
            found[blob] = entry
        return found
