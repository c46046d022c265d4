"""Where a summary comes from: which model wrote it, from which input, and whether it is only a stopgap.

Three attributes of a node record this. `SUMMARY_OF` is a hash of the input of the summary; if the hash of the current
input differs, the summary is stale. Staleness itself is not stored anywhere: editing a leaf touches no file of its
ancestors, and a merge or revert leaves nothing to correct. A summary without these attributes was written by a person
and is never regenerated automatically.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from memotree_storage.model.attribute_names import RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING

PENDING_MODEL: Final = "model"
"""A value of `SUMMARY_PENDING`: the chat model failed, so the node has a built-in summary for now."""

PENDING_CONTENT: Final = "content"
"""A value of `SUMMARY_PENDING`: the content was changed after a person had given the summary."""

_HEX_DIGITS: Final = 16


def hash_of_content(content: str) -> str:
    """Return the `SUMMARY_OF` hash of a node that has content of its own: 16 hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()[:_HEX_DIGITS]


def hash_of_children(children: Iterable[tuple[str, str]]) -> str:
    """Return the `SUMMARY_OF` hash of a node summarised from its children, given the (id, summary) of each in order."""
    digest = hashlib.sha256()
    for node_id, summary in children:
        digest.update(f"{node_id} {hashlib.sha256(summary.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()[:_HEX_DIGITS]


def is_older(attributes: Mapping[str, str]) -> bool:
    """Whether the summary of a node was given by a person before the content was last changed."""
    return attributes.get(SUMMARY_PENDING) == PENDING_CONTENT and SUMMARY_OF not in attributes


def with_provenance(attributes: Mapping[str, str], made_by: str, made_of: str, pending: str = "") -> dict[str, str]:
    """Return the attributes of a node whose summary has just been generated."""
    kept = without_provenance(attributes)
    provenance = {SUMMARY_BY: made_by, SUMMARY_OF: made_of}
    return {**kept, **provenance, **({SUMMARY_PENDING: pending} if pending else {})}


def without_provenance(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a node whose summary was written by a person."""
    return {name: value for name, value in attributes.items() if name not in RESERVED}
