"""A workspace that tests of bad input share: each test leaves it unchanged."""

from typing import Any

import grpc
from integration.wires import Wire

ROOT, CHILD, LEAF, GONE, STAGED = (f"{letter}bad{number:012d}" for number, letter in enumerate("abcde"))
AMBIGUOUS = "twyn"
TWINS = (f"{AMBIGUOUS}{'0' * 12}", f"{AMBIGUOUS}{'1' * 12}")
UNKNOWN = "zzzzzzzzzzzzzzzz"


async def prepare(channel: grpc.aio.Channel) -> Wire:
    """Committed and staged nodes, a deleted one, a tag, a branch and a view."""
    wire = await Wire.begin(channel)
    await wire.create("Root", node_id=ROOT, content="apple " * 20, tags=["a"])
    await wire.create("Child", node_id=CHILD, parent_id=ROOT)
    await wire.create("Leaf", node_id=LEAF, parent_id=CHILD)
    await wire.create("Gone", node_id=GONE)
    for twin in TWINS:
        await wire.create("Twin", node_id=twin)
    await wire.commit(create_tag=True, tag_name="v1")
    await wire("CreateBranch", name="side")
    await wire("DeleteNode", node_id=GONE)
    await wire.commit()
    await wire.create("Staged", node_id=STAGED, parent_id=ROOT)
    await wire("ExpandNode", revision=wire.session, node_id=ROOT)
    return wire


def creation(**fields: Any) -> dict[str, Any]:
    """Arguments for a root of ``notes``."""
    return {"archive_id": "notes", "title": "t", **fields}
