"""The collections on disk: one shard each, the settings that it was created with, and the aliases."""

import contextlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import qdrant_edge as edge

from memotree_storage.qdrant.engine.collection import FIRST_SHARD, SETTINGS, Collection
from memotree_storage.qdrant.engine.configuration import new_shard
from memotree_storage.qdrant.engine.errors import (
    CollectionExistsError,
    CollectionMissingError,
    MalformedError,
    only,
)
from memotree_storage.qdrant.engine.files import sync, write_synced
from memotree_storage.qdrant.engine.wire import qdrant

_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,200}")
_ALIASES: Final = "aliases.json"


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
            settings = qdrant.CreateCollection.FromString((place / SETTINGS).read_bytes())
        except FileNotFoundError:
            shutil.rmtree(place)
            return
        self._open[settings.collection_name] = Collection.load(place, settings)

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

    def collections(self) -> list[Collection]:
        """Return all collections."""
        with self._lock:
            return list(self._open.values())

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
        config = new_shard(settings)
        with self._lock:
            if name in self._open or name in self._aliases:
                raise CollectionExistsError(name)
            place = self._folder / name
            shutil.rmtree(place, ignore_errors=True)
            (place / FIRST_SHARD).mkdir(parents=True)
            shard = edge.EdgeShard.create(str(place / FIRST_SHARD), config)
            shard.flush()
            write_synced(place / SETTINGS, settings.SerializeToString())
            sync(self._folder)
            self._open[name] = Collection(place, settings, shard, place / FIRST_SHARD)

    def delete(self, name: str) -> bool:
        """Remove a collection and its aliases; ``False`` if no collection has this name."""
        with self._lock:
            found = self._open.pop(name, None)
            if found is None:
                return False
            (found.folder / SETTINGS).unlink()
            sync(found.folder)
            found.close()
            with found.copying:  # until the process that optimises the copy has ended, it writes into the folder
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
            write_synced(self._folder / _ALIASES, json.dumps(aliases, sort_keys=True).encode())
            self._aliases = aliases

    def flush(self) -> None:
        """Make everything written to any collection durable."""
        for collection in self.collections():
            collection.flush()

    def close(self) -> None:
        """Flush and close everything."""
        with self._lock:
            for collection in self._open.values():
                collection.close()
            self._open.clear()
