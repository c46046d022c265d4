"""GIT-5: the changes of a commit are read a few entries at a time."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from memotree_storage.model.node import Entry, Node, new_id
from memotree_storage.postgres.rows import Version, staged_version

from memotree.history.log import Log


class _Entries:
    """Entries by blob, and the number of entries in each read."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self.asked: list[int] = []

    async def load(self, workspace_id: str, versions: Sequence[Version]) -> dict[str, Entry]:
        assert workspace_id == "w"
        self.asked.append(len(versions))
        return {version.blob: self.entries[version.blob] for version in versions}


@pytest.mark.requirement("GIT-5")
async def test_a_commit_of_many_changes_is_compared_in_parts() -> None:
    nodes = [Node(new_id(), new_id(), None, "a0", title=f"Node {number}") for number in range(230)]
    after = [staged_version(node, f"new {node.id}") for node in nodes]
    before = {version.entry_id: version for version in (staged_version(node, f"old {node.id}") for node in nodes[:60])}
    entries = _Entries({f"new {node.id}": node for node in nodes} | {f"old {node.id}": node for node in nodes})
    store: Any = SimpleNamespace(entries=entries)
    pages: Any = None
    changes = await Log(store, pages)._changes("w", before, after)
    assert [change.node_id for change in changes] == [node.id for node in nodes]
    assert sum(entries.asked) == 290
    assert max(entries.asked) <= 100
