"""Where a summary comes from: which model wrote it, from what, and whether it stands in for another.

Three attributes of a node say so. `SUMMARY_OF` is a hash of what the summary was made from; when the hash of the
present inputs differs, the summary is stale. So staleness is nowhere stored beside the text: an edit of a leaf touches
no file of its ancestors, and a merge or a revert leaves nothing to be corrected. A summary without these attributes was
written by hand, and is never renewed by itself.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from memotree_storage.model.attributes import RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING

PENDING_MODEL: Final = "model"
"""A value of `SUMMARY_PENDING`: the chat model failed, and a built-in summary stands in."""

PENDING_CONTENT: Final = "content"
"""Another one: the content was changed by a call that left the summary as it was."""

_HEX_DIGITS: Final = 16


def hash_of_content(content: str) -> str:
    """What `SUMMARY_OF` is for a node with content of its own: 16 hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()[:_HEX_DIGITS]


def hash_of_children(children: Iterable[tuple[str, str]]) -> str:
    """What `SUMMARY_OF` is for a node that is summed up from its children: (id, summary) of each, in their order."""
    digest = hashlib.sha256()
    for node_id, summary in children:
        digest.update(f"{node_id} {hashlib.sha256(summary.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()[:_HEX_DIGITS]


def with_provenance(attributes: Mapping[str, str], made_by: str, made_of: str, pending: str = "") -> dict[str, str]:
    """The attributes of a node whose summary was just made."""
    kept = without_provenance(attributes)
    told = {SUMMARY_BY: made_by, SUMMARY_OF: made_of}
    return {**kept, **told, **({SUMMARY_PENDING: pending} if pending else {})}


def without_provenance(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a node whose summary is somebody's own words."""
    return {name: value for name, value in attributes.items() if name not in RESERVED}
