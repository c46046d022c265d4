"""Finds a document that was ingested before, reads its trees, and aligns its leaves with a new version."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Self

from memotree_storage.errors import AlreadyExistsError
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.attribute_names import DOCUMENT_ID, SHA256, SPEAKER, TURN_ID
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Entry, Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.documents import Document
from memotree.forest.ingestion.existing_tree import TOP, ExistingTree, is_own
from memotree.forest.ingestion.leaf_alignment import Kept, OldLeaf, align

_AT_ONCE = 2000
_NAME_CHARS = 200


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
    """The archives and the documents at one commit, read once for all documents of a job.

    Attributes:
        commit_id: The commit.
        names: The archives by name.
        documents: The documents by id: those with an archive, and of those in joined archives the ones asked for.
    """

    commit_id: str
    names: Mapping[str, ArchiveVersion]
    documents: Mapping[str, KnownDocument]

    @classmethod
    async def read(cls, snapshot: Snapshot, document_ids: Iterable[str] = ()) -> Self:
        """Reads the archives of a snapshot, and the nodes of documents without an archive of their own.

        Args:
            snapshot: The snapshot.
            document_ids: The documents to look for in joined archives, which has to search all nodes if one is missing.
        """
        archives = await tree.archives(snapshot)
        found: dict[str, Version] = {}
        for archive in archives:
            if document_id := archive.archive.attributes.get(DOCUMENT_ID):
                found.setdefault(document_id, archive.version)
        missing = [document_id for document_id in document_ids if document_id not in found]
        # People may give any node this attribute. A document's node in a joined archive has the hash of the text too.
        for node in await tree.with_attribute(snapshot, DOCUMENT_ID, missing) if missing else ():
            if node.type == SUMMARY_TYPE and SHA256 in node.attributes:
                found.setdefault(node.attributes[DOCUMENT_ID], node)
        return cls(
            snapshot.state.commit_id,
            {archive.name: archive for archive in archives},
            {document_id: KnownDocument(document_id, holder) for document_id, holder in found.items()},
        )

    def find(self, document_id: str) -> KnownDocument | None:
        """Returns a document, or ``None`` if the snapshot does not have it."""
        return self.documents.get(document_id)

    def check_name(self, name: str, archive_id: str = "", *, document_id: str = "") -> None:
        """Checks that no archive has this name, except the given archive or the archive of the given document.

        Raises:
            DocumentNameTakenError: If another archive has the name.
        """
        other = self.names.get(name)
        if other is None or other.entry_id == archive_id:
            return
        if not document_id or other.archive.attributes.get(DOCUMENT_ID) != document_id:
            raise DocumentNameTakenError(name, other.entry_id)

    def free_name(self, title: str, also_taken: Collection[str] = ()) -> str:
        """Returns a free archive name: the title of the document, with a number if another archive has that name."""
        taken = self.names.keys() | set(also_taken)
        wanted = " ".join(title.split())
        name = wanted[:_NAME_CHARS].rstrip()
        for number in count(2):
            if name not in taken:
                break
            end = f" ({number})"
            name = wanted[: _NAME_CHARS - len(end)].rstrip() + end
        return name


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
    return {node_id: found[node_id] for node_id in order if node_id in found}


async def read_existing_tree(store: Store, snapshot: Snapshot, known: KnownDocument) -> ExistingTree:
    """Reads the trees of a document, its leaves with their texts."""
    versions = await read_versions(snapshot, known)
    leaves = [
        version for version in versions.values() if version.type == LEAF_TYPE and is_own(version, known.document_id)
    ]
    nodes = await read_nodes(snapshot, store.entries, leaves)
    return ExistingTree(known.document_id, list(versions), versions, nodes, known.top)


def align_with(document: Document, existing: ExistingTree) -> list[Kept]:
    """Returns the leaves whose texts occur in the new version, in order."""
    return align([_old(existing.leaves[node_id]) for node_id in existing.order if node_id in existing.leaves], document)


def _old(leaf: Node) -> OldLeaf:
    return OldLeaf(leaf.id, leaf.content, leaf.attributes.get(SPEAKER, ""), leaf.attributes.get(TURN_ID, ""))
