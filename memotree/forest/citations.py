"""Makes citations, which say where a passage comes from, so that anybody can check it.

A citation names a node and a commit, and has a hash. The hash of the node's content at that commit must be the same, or
the citation is wrong. For a node that was cut from a document, `source` has its place in the document.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.canvas.derived_content import texts as derived_texts
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

_MOST_DERIVED: Final = 1 << 17
"""The most bytes of contents that are derived from leaves to be hashed, for all citations of one answer."""

_FEW_CHARS: Final = 1 << 18
"""More characters than this are hashed in a thread, so that they don't block other calls."""


def content_hash(content: str) -> str:
    """Returns the SHA-256 of a content's UTF-8 bytes in hexadecimal."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def citation(version: Version, sha256: str, commit_id: str, archive_name: str) -> pb.Citation:
    """Returns the citation of a node whose content has this hash at a commit."""
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
    """Returns the citations of alive nodes by id.

    A node whose content no longer exists (a staged change that was undone meanwhile) has no citation. The citation of a
    node whose content is derived from its leaves has no hash if the leaves are long: cite the leaves instead.

    Args:
        snapshot: The snapshot that the nodes were read from; a session is cited by its base commit.
        store: An open store.
        versions: The versions of the nodes in the snapshot.
        texts: Contents that the caller has read already, by node id.
        names: Names of archives that the caller has read already, by archive id.
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
