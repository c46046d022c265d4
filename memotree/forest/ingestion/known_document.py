"""A document that is known already: where it stands, and which of its leaves a new version still has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from memotree_storage.errors import AlreadyExistsError
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.attributes import DOCUMENT_ID, SHA256, SPEAKER, TURN_ID
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Entry, Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.documents import Document
from memotree.forest.ingestion.alignment import Kept, OldLeaf, align
from memotree.forest.ingestion.existing_tree import TOP, ExistingTree, is_own

_AT_ONCE = 2000
_NAME_CHARS = 200


class DocumentNameTakenError(AlreadyExistsError):
    """Another archive has the name that is asked for."""

    reason = "DOCUMENT_NAME_TAKEN"

    def __init__(self, name: str, archive_id: str) -> None:
        super().__init__(
            f"Archive {archive_id} is named {name!r} already. Give another name, or the document_id of that archive's "
            "document to bring it up to date.",
            "archive",
            name,
        )


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document that was ingested before.

    Attributes:
        document_id: The document.
        holder: Its archive; in a joined archive the node that its roots stand below.
    """

    document_id: str
    holder: Version

    @property
    def facts(self) -> Mapping[str, str]:
        """What was noted of the document and of how it was split."""
        return self.holder.attributes

    def entry(self, facts: Mapping[str, str]) -> Entry:
        """The holder with other facts."""
        if self.holder.is_archive:
            return replace(self.holder.to_archive(), attributes=dict(facts))
        return replace(self.holder.to_node(), attributes=dict(facts))


async def check_name(snapshot: Snapshot, name: str, archive_id: str = "", *, document_id: str = "") -> None:
    """Refuse a name that an archive has, other than this one or the one of this document.

    Raises:
        DocumentNameTakenError: One has it.
    """
    for other in await tree.archives(snapshot):
        own = other.entry_id == archive_id or (document_id and other.attributes.get(DOCUMENT_ID) == document_id)
        if other.title == name and not own:
            raise DocumentNameTakenError(name, other.entry_id)


async def free_name(snapshot: Snapshot, title: str) -> str:
    """The title of a document as the name of its archive, with a number behind it when others have that name."""
    taken = {archive.title for archive in await tree.archives(snapshot)}
    wanted = " ".join(title.split())
    name = wanted[:_NAME_CHARS].rstrip()
    for number in count(2):
        if name not in taken:
            break
        end = f" ({number})"
        name = wanted[: _NAME_CHARS - len(end)].rstrip() + end
    return name


async def find_document(snapshot: Snapshot, document_id: str, *, joined: bool = True) -> KnownDocument | None:
    """Where a document stands at a state; ``None`` when it is not known there.

    Args:
        snapshot: Where to look.
        document_id: The document.
        joined: Whether it may stand in a joined archive, which costs a look at all nodes.
    """
    for archive in await tree.archives(snapshot):
        if archive.attributes.get(DOCUMENT_ID) == document_id:
            return KnownDocument(document_id, archive)
    if not joined:
        return None
    # Nodes that people gave such an attribute hold nothing; one of a joined archive says how the document was cut.
    holders = [
        node
        for node in await tree.with_attribute(snapshot, DOCUMENT_ID, document_id)
        if node.type == SUMMARY_TYPE and SHA256 in node.attributes
    ]
    return KnownDocument(document_id, holders[0]) if holders else None


async def read_existing_tree(store: Store, snapshot: Snapshot, known: KnownDocument) -> ExistingTree:
    """The trees of a document as they stand, its leaves with their texts."""
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
    """The leaves whose texts stand in the new version, in order."""
    return list(
        align(
            [_old(existing.leaves[node_id]) for node_id in existing.order if node_id in existing.leaves], document
        ).kept
    )


def _old(leaf: Node) -> OldLeaf:
    return OldLeaf(leaf.id, leaf.content, leaf.attributes.get(SPEAKER, ""), leaf.attributes.get(TURN_ID, ""))
