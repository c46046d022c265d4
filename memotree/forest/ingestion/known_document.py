"""Finds a document that was ingested before, reads its trees, and aligns its leaves with a new version."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice

from memotree_storage.errors import AlreadyExistsError
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.attribute_names import DOCUMENT_ID, SPEAKER, TURN_ID
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Entry, Node
from memotree_storage.postgres import archive_versions, tree
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.documents import Document
from memotree.forest.ingestion.existing_tree import TOP, ExistingTree, is_own
from memotree.forest.ingestion.leaf_alignment import Kept, OldLeaf, align

_AT_ONCE = 2000
_NAME_CHARS = 200
_NAMES_AT_ONCE = 10


class DocumentNameTakenError(AlreadyExistsError):
    """Another archive has the requested name."""

    reason = "DOCUMENT_NAME_TAKEN"

    def __init__(self, name: str, archive_id: str) -> None:
        super().__init__(
            f"Archive {archive_id} is named {name!r} already. Give another name, or the document_id of that archive's "
            "document to update it.",
            "archive",
            name,
        )


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document that was ingested before.

    Attributes:
        document_id: The document.
        holder: Its archive; in a joined archive the node that is the parent of its roots.
    """

    document_id: str
    holder: Version

    @property
    def facts(self) -> Mapping[str, str]:
        """The stored attributes of the document: its id, its hash, and the options it was split with."""
        return self.holder.attributes

    @property
    def name(self) -> str:
        """The name of its archive; in a joined archive the title of its node."""
        return self.holder.title

    @property
    def top(self) -> str:
        """The parent of its roots: the archive (`TOP`), or its node in a joined archive."""
        return TOP if self.holder.is_archive else self.holder.entry_id

    def entry(self, facts: Mapping[str, str]) -> Entry:
        """Returns the holder with other facts."""
        if self.holder.is_archive:
            return replace(self.holder.to_archive(), attributes=dict(facts))
        return replace(self.holder.to_node(), attributes=dict(facts))


@dataclass(frozen=True, slots=True)
class DocumentIndex:
    """Looks up the archives and the documents at one commit; each question costs one statement.

    Attributes:
        store: The store.
        state: The commit.
    """

    store: Store
    state: State

    async def find(self, document_id: str) -> KnownDocument | None:
        """Returns a document, or ``None`` if the commit does not have it."""
        async with self.store.database.connection() as conn:
            found = await archive_versions.documents(Snapshot(conn, self.state), [document_id])
        # People may give any node these attributes. A document's node in a joined archive is a summary of its text.
        holder = next((one for one in found if one.is_archive or one.type == SUMMARY_TYPE), None)
        return None if holder is None else KnownDocument(document_id, holder)

    async def check_name(self, name: str, archive_id: str = "", *, document_id: str = "") -> None:
        """Checks that no archive has this name, except the given archive or the archive of the given document.

        Raises:
            DocumentNameTakenError: If another archive has the name.
        """
        for other in await self._named([name]):
            if other.entry_id == archive_id:
                continue
            if not document_id or other.archive.attributes.get(DOCUMENT_ID) != document_id:
                raise DocumentNameTakenError(name, other.entry_id)

    async def free_name(self, title: str, also_taken: Collection[str] = ()) -> str:
        """Returns a free archive name: the title of the document, with a number if another archive has that name."""
        wanted = " ".join(title.split())
        numbers = count(1)
        while True:
            names = [_numbered(wanted, number) for number in islice(numbers, _NAMES_AT_ONCE)]
            taken = {other.name for other in await self._named(names)} | set(also_taken)
            free = next((name for name in names if name not in taken), None)
            if free is not None:
                return free

    async def _named(self, names: Collection[str]) -> list[ArchiveVersion]:
        async with self.store.database.connection() as conn:
            return await archive_versions.archives_named(Snapshot(conn, self.state), names)


def _numbered(name: str, number: int) -> str:
    """A name, with a number if that is not 1, cut to the longest that an archive may have."""
    end = "" if number == 1 else f" ({number})"
    return name[: _NAME_CHARS - len(end)].rstrip() + end


async def read_versions(snapshot: Snapshot, known: KnownDocument) -> dict[str, Version]:
    """Reads the versions of the nodes of a document's trees, in pre-order, without their texts."""
    holder = known.holder
    if holder.is_archive:
        order = [item.entry_id for item in await tree.archive_tree(snapshot, holder.entry_id)]
    else:
        order = [item.entry_id for item in await tree.subtree(snapshot, [holder.entry_id])][1:]
    found: dict[str, Version] = {}
    for start in range(0, len(order), _AT_ONCE):
        found |= await tree.versions(snapshot, order[start : start + _AT_ONCE])
    return await asyncio.to_thread(lambda: {node_id: found[node_id] for node_id in order if node_id in found})


async def read_existing_tree(store: Store, snapshot: Snapshot, known: KnownDocument) -> ExistingTree:
    """Reads the trees of a document, its leaves with their texts."""
    versions = await read_versions(snapshot, known)
    leaves = await asyncio.to_thread(_own_leaves, versions, known.document_id)
    nodes = await read_nodes(snapshot, store.entries, leaves)
    return ExistingTree(known.document_id, list(versions), versions, nodes, known.top)


def _own_leaves(versions: Mapping[str, Version], document_id: str) -> list[Version]:
    return [version for version in versions.values() if version.type == LEAF_TYPE and is_own(version, document_id)]


def align_with(document: Document, existing: ExistingTree) -> list[Kept]:
    """Returns the leaves whose texts occur in the new version, in order."""
    return align([_old(existing.leaves[node_id]) for node_id in existing.order if node_id in existing.leaves], document)


def _old(leaf: Node) -> OldLeaf:
    return OldLeaf(leaf.id, leaf.content, leaf.attributes.get(SPEAKER, ""), leaf.attributes.get(TURN_ID, ""))
