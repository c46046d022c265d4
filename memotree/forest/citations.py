"""Citations: where a passage stands, so that anybody can check it.

A citation names a node and a commit. Who reads that node at that commit and hashes its content gets the hash of the
citation, or the citation is wrong. Of a node that was cut from a document, `source` says where in it.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.canvas.derived_content import texts as derived_texts
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

_MOST_DERIVED: Final = 1 << 17
"""Bytes of contents that are made from leaves in order to be hashed, for all citations of one answer."""

_FEW_CHARS: Final = 1 << 18
"""More characters are hashed in a thread, so that other calls go on meanwhile."""


def content_hash(content: str) -> str:
    """SHA-256 of a content in hexadecimal, of its UTF-8 bytes."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def citation(version: Version, sha256: str, commit_id: str, archive_name: str) -> pb.Citation:
    """The citation of a node whose content has this hash at a commit."""
    return pb.Citation(
        node_id=version.entry_id,
        commit_id=commit_id,
        source=types_pb2.Source(**version.source) if version.source else None,
        content_sha256=sha256,
        title=version.title,
        archive_id=version.archive_id,
        archive_name=archive_name,
    )


async def cite(
    snapshot: Snapshot,
    store: Store,
    versions: Sequence[Version],
    *,
    texts: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> dict[str, pb.Citation]:
    """The citations of alive nodes by id.

    Args:
        store: An open store.
        snapshot: What was read; a session is cited by the base of its changes.
        versions: The nodes as that state shows them.
        texts: Contents that the caller has read already, by node.
        names: Names of archives that the caller has read already, by id.

    A content that is nowhere any more (of a staged change that was taken back meanwhile) has no citation. A node whose
    content is that of its leaves has no hash when those are long: cite the leaves.
    """
    known = dict(texts or {})
    own = [one for one in versions if one.entry_id not in known and one.type != SUMMARY_TYPE]
    nodes = await read_nodes(snapshot, store.entries, own)
    known.update({entry_id: node.content for entry_id, node in nodes.items()})
    inner = [one for one in versions if one.entry_id not in known and one.type == SUMMARY_TYPE]
    derived = await derived_texts(snapshot, store, inner, _MOST_DERIVED)
    hashes = {one.entry_id: "" for one in inner}
    hashes.update({entry_id: content_hash(text.content) for entry_id, text in derived.items() if not text.cut})
    archives = dict(names or {})
    missing = {one.archive_id for one in versions} - archives.keys()
    archives.update({key: found.title for key, found in (await tree.versions(snapshot, missing)).items()})

    def cited() -> dict[str, pb.Citation]:
        found = hashes | {entry_id: content_hash(text) for entry_id, text in known.items()}
        return {
            one.entry_id: citation(one, found[one.entry_id], snapshot.state.commit_id, archives.get(one.archive_id, ""))
            for one in versions
            if one.entry_id in found
        }

    is_much = sum(len(known.get(one.entry_id, "")) for one in versions) > _FEW_CHARS
    return await asyncio.to_thread(cited) if is_much else cited()


def is_right(cited: pb.Citation, node: Node | types_pb2.Node) -> bool:
    """Whether a node, read whole at the commit that a citation names, is what the citation says."""
    return node.id == cited.node_id and content_hash(node.content) == cited.content_sha256
