"""Finds a document that was ingested before, reads its trees, and aligns its leaves with a new version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from memotree_storage.errors import AlreadyExistsError
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.attribute_names import DOCUMENT_ID, SHA256, SPEAKER, TURN_ID
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Entry, Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
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

    def entry(self, facts: Mapping[str, str]) -> Entry:
        """Returns the holder with other facts."""
        if self.holder.is_archive:
            return replace(self.holder.to_archive(), attributes=dict(facts))
        return replace(self.holder.to_node(), attributes=dict(facts))


async def check_name(snapshot: Snapshot, name: str, archive_id: str = "", *, document_id: str = "") -> None:
    """Checks that no archive has this name, except the given archive or the archive of the given document.

    Raises:
        DocumentNameTakenError: If another archive has the name.
    """
    for other in await tree.archives(snapshot):
        own = other.entry_id == archive_id or (document_id and other.archive.attributes.get(DOCUMENT_ID) == document_id)
        if other.name == name and not own:
            raise DocumentNameTakenError(name, other.entry_id)


async def free_name(snapshot: Snapshot, title: str) -> str:
    """Returns a free archive name: the title of the document, with a number if another archive has that name."""
    taken = {archive.name for archive in await tree.archives(snapshot)}
    wanted = " ".join(title.split())
    name = wanted[:_NAME_CHARS].rstrip()
    for number in count(2):
        if name not in taken:
            break
        end = f" ({number})"
        name = wanted[: _NAME_CHARS - len(end)].rstrip() + end
    return name


async def find_document(snapshot: Snapshot, document_id: str, *, joined: bool = True) -> KnownDocument | None:
    """Returns a document as it is in a snapshot, or ``None`` if the snapshot does not have it.

    Args:
        snapshot: The snapshot.
        document_id: The document.
        joined: Whether to look in joined archives, too, which has to search all nodes.
    """
    for found in await tree.archives(snapshot):
        if found.archive.attributes.get(DOCUMENT_ID) == document_id:
            return KnownDocument(document_id, found.version)
    if not joined:
        return None
    # People may give any node this attribute. The document's node in a joined archive has the hash of the text as well.
    holders = [
        node
        for node in await tree.with_attribute(snapshot, DOCUMENT_ID, document_id)
        if node.type == SUMMARY_TYPE and SHA256 in node.attributes
    ]
    return KnownDocument(document_id, holders[0]) if holders else None


async def read_existing_tree(store: Store, snapshot: Snapshot, known: KnownDocument) -> ExistingTree:
    """Reads the trees of a document, its leaves with their texts."""
    holder = known.holder
    if holder.is_archive:
        order = [item.entry_id for item in await tree.archive_tree(snapshot, holder.entry_id)]
    else:
        order = [item.entry_id for item in await tree.subtree(snapshot, [holder.entry_id])][1:]
    versions: dict[str, Version] = {}
    for start in range(0, len(order), _AT_ONCE):
        versions |= await tree.versions(snapshot, order[start : start + _AT_ONCE])
    leaves = [
        version for version in versions.values() if version.type == LEAF_TYPE and is_own(version, known.document_id)
    ]
    nodes = await read_nodes(snapshot, store.entries, leaves)
    return ExistingTree(known.document_id, order, versions, nodes, TOP if holder.is_archive else holder.entry_id)


def align_with(document: Document, existing: ExistingTree) -> list[Kept]:
    """Returns the leaves whose texts occur in the new version, in order."""
    return align([_old(existing.leaves[node_id]) for node_id in existing.order if node_id in existing.leaves], document)


def _old(leaf: Node) -> OldLeaf:
    return OldLeaf(leaf.id, leaf.content, leaf.attributes.get(SPEAKER, ""), leaf.attributes.get(TURN_ID, ""))
