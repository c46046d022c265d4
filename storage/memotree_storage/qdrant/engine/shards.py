"""The collections on disk: one shard each, the settings that it was created with, and the aliases."""

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import (
    CollectionExistsError,
    CollectionMissingError,
    MalformedError,
    UnsupportedError,
    only,
)
from memotree_storage.qdrant.engine.wire import qdrant

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,200}")
_SETTINGS: Final = "collection.binpb"
_SHARD: Final = "shard"
_ALIASES: Final = "aliases.json"
_DISTANCES: Final = {
    qdrant.Cosine: edge.Distance.Cosine,
    qdrant.Dot: edge.Distance.Dot,
    qdrant.Euclid: edge.Distance.Euclid,
    qdrant.Manhattan: edge.Distance.Manhattan,
}


class Collection:
    """One open shard.

    Attributes:
        settings: The request that created it.
        shard: The engine's own object; every call of it holds the GIL.
    """

    def __init__(self, folder: Path, settings: qdrant.CreateCollection, shard: edge.EdgeShard) -> None:
        self.folder = folder
        self.settings = settings
        self.shard = shard
        self._dirty = False
        self._flushing = threading.Lock()

    def update(self, operation: edge.UpdateOperation) -> None:
        """Apply one write; it is in the log when this returns, and durable after ``flush``."""
        try:
            self.shard.update(operation)
        finally:
            # Afterwards, since a flush that comes in between takes the mark away without having this write; and after
            # a failure too, which may have applied a part of it.
            self._dirty = True

    def flush(self) -> None:
        """Make every write durable whose ``update`` has returned."""
        with self._flushing:  # one that finds nothing to flush must not overtake the one that is flushing it
            if self._dirty:
                self._dirty = False
                try:
                    self.shard.flush()
                except BaseException:
                    self._dirty = True
                    raise


class Shards:
    """All collections of a data folder, by name or alias.

    A collection exists once its settings file does: that file is written last and removed first. So a kill leaves
    either a whole collection or a folder without settings, which the next start removes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._open: dict[str, Collection] = {}
        self._aliases: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._aliases = json.loads((folder / _ALIASES).read_text(encoding="utf-8"))
        for place in sorted(path for path in folder.iterdir() if path.is_dir()):
            self._load(place)

    def _load(self, place: Path) -> None:
        try:
            settings = qdrant.CreateCollection.FromString((place / _SETTINGS).read_bytes())
        except FileNotFoundError:
            shutil.rmtree(place)
            return
        self._open[settings.collection_name] = Collection(place, settings, edge.EdgeShard.load(str(place / _SHARD)))

    def get(self, name: str) -> Collection:
        """Return the collection with this name or alias.

        Raises:
            CollectionMissingError: There is none.
        """
        with self._lock:
            found = self._open.get(self._aliases.get(name, name))
        if found is None:
            raise CollectionMissingError(name)
        return found

    def names(self) -> list[str]:
        """Return the names of all collections, without aliases."""
        with self._lock:
            return sorted(self._open)

    def exists(self, name: str) -> bool:
        """Whether a collection or alias has this name."""
        with self._lock:
            return self._aliases.get(name, name) in self._open

    def create(self, settings: qdrant.CreateCollection) -> None:
        """Create a collection; durable when this returns."""
        name = settings.collection_name
        if _NAME.fullmatch(name) is None:
            raise MalformedError("A collection's name has 1 to 200 letters, digits, '_', '-' or '.', no '.' first.")
        config = _config(settings)
        with self._lock:
            if name in self._open or name in self._aliases:
                raise CollectionExistsError(name)
            place = self._folder / name
            shutil.rmtree(place, ignore_errors=True)
            (place / _SHARD).mkdir(parents=True)
            shard = edge.EdgeShard.create(str(place / _SHARD), config)
            shard.flush()
            _write_synced(place / _SETTINGS, settings.SerializeToString())
            _sync_folder(self._folder)
            self._open[name] = Collection(place, settings, shard)

    def delete(self, name: str) -> bool:
        """Remove a collection and its aliases; ``False`` if no collection has this name."""
        with self._lock:
            found = self._open.pop(name, None)
            if found is None:
                return False
            (found.folder / _SETTINGS).unlink()
            _sync_folder(found.folder)
            found.shard.close()
            shutil.rmtree(found.folder)
            self._write_aliases({alias: target for alias, target in self._aliases.items() if target != name})
            return True

    def aliases(self) -> dict[str, str]:
        """Return collection names by alias."""
        with self._lock:
            return dict(self._aliases)

    def change_aliases(self, actions: Iterator[qdrant.AliasOperations]) -> None:
        """Apply all actions, or none if one is invalid."""
        with self._lock:
            aliases = dict(self._aliases)
            for action in actions:
                self._change_alias(aliases, action)
            self._write_aliases(aliases)

    def _change_alias(self, aliases: dict[str, str], action: qdrant.AliasOperations) -> None:
        only(action, "create_alias", "rename_alias", "delete_alias")
        match action.WhichOneof("action"):
            case "create_alias":
                name, target = action.create_alias.alias_name, action.create_alias.collection_name
                if target not in self._open:
                    raise CollectionMissingError(target)
                if name in self._open:
                    raise CollectionExistsError(name)
                aliases[name] = target
            case "rename_alias":
                old = action.rename_alias.old_alias_name
                if old not in aliases:
                    raise CollectionMissingError(old)
                aliases[action.rename_alias.new_alias_name] = aliases.pop(old)
            case "delete_alias":
                aliases.pop(action.delete_alias.alias_name, None)
            case _:
                raise MalformedError("An alias operation needs an action.")

    def _write_aliases(self, aliases: dict[str, str]) -> None:
        if aliases != self._aliases:
            _write_synced(self._folder / _ALIASES, json.dumps(aliases, sort_keys=True).encode())
            self._aliases = aliases

    def flush(self) -> None:
        """Make everything written to any collection durable."""
        with self._lock:
            collections = list(self._open.values())
        for collection in collections:
            collection.flush()

    def close(self) -> None:
        """Flush and close everything."""
        with self._lock:
            for collection in self._open.values():
                collection.flush()
                collection.shard.close()
            self._open.clear()


def _config(settings: qdrant.CreateCollection) -> edge.EdgeConfig:
    """The shard's configuration for a request; refuses what the shard cannot do."""
    # How a server distributes or caches a collection does not change its answers, so those fields are accepted.
    only(
        settings,
        *("collection_name", "vectors_config", "sparse_vectors_config", "on_disk_payload", "timeout"),
        *("shard_number", "replication_factor", "write_consistency_factor", "optimizers_config", "wal_config"),
    )
    if settings.vectors_config.WhichOneof("config") != "params_map":
        raise UnsupportedError("collections without named vectors")
    vectors = {}
    for name, params in settings.vectors_config.params_map.map.items():
        only(params, "size", "distance", "on_disk")
        if params.distance not in _DISTANCES:
            raise MalformedError(f"The vector {name} needs a distance.")
        vectors[name] = edge.EdgeVectorParams(params.size, _DISTANCES[params.distance])
    sparse = {}
    for name, terms in settings.sparse_vectors_config.map.items():
        only(terms)
        sparse[name] = edge.EdgeSparseVectorParams()
    return edge.EdgeConfig(vectors=vectors, sparse_vectors=sparse, wal_enabled=True)


def _write_synced(path: Path, data: bytes) -> None:
    """Replace a file so that a power cut leaves the old or the new content."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
