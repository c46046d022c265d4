"""Measures the history of one node after many commits and reads of old commits, beside the git program and the head."""

import shutil
import subprocess
import time
from datetime import UTC, datetime
from functools import partial

from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from bench.table import Row, paired, timed
from bench.worlds import World
from memotree.v1 import history_service_pb2


async def run(place: World, *, commits: int, rounds: int) -> list[Row]:
    """Measure one node that has a version per commit, among a hundred siblings."""
    store, workspace_id = place.store, place.workspace_id
    repository = store.repositories.get(workspace_id)
    archive = Archive(new_id(), "history")
    parent = Node(new_id(), archive.id, None, "a0", title="Parent")
    siblings = [Node(new_id(), archive.id, parent.id, f"a{i:02}", title=f"Sibling {i}") for i in range(10, 99)]
    hot = Node(new_id(), archive.id, parent.id, "a0", title="Hot")
    changes: dict[str, bytes | None] = {entry_path(node): encode_entry(node) for node in [parent, *siblings, hot]}
    changes[entry_path(archive)] = encode_entry(archive)
    head = repository.refs()["refs/heads/main"]
    history = []
    for number in range(commits):
        who = Signature("bench", "", datetime.now(UTC).replace(microsecond=0))
        node = Node(hot.id, archive.id, parent.id, "a0", title="Hot", content=f"Version {number}")
        changes[entry_path(hot)] = encode_entry(node)
        written = repository.write_commit(CommitDraft(head, changes, f"Version {number}\n", who, who))
        repository.move_ref("refs/heads/main", head, written.commit_id)
        head, changes = written.commit_id, {}
        history.append(head)
    begun = time.perf_counter()
    await store.catch_up(workspace_id)
    rows = [Row(f"mirror {commits:,} commits from Git", time.perf_counter() - begun, "s")]
    now, then = State(workspace_id, head), State(workspace_id, history[len(history) // 2])
    async with store.database.connection() as conn:
        for name, read in (
            ("read", lambda state: tree.versions(Snapshot(conn, state), [hot.id])),
            ("children", lambda state: tree.children(Snapshot(conn, state), parent.id)),
            ("subtree", lambda state: tree.subtree(Snapshot(conn, state), [parent.id])),
        ):
            old, new = await paired(partial(read, then), partial(read, now), rounds)
            rows.append(Row.of_times(f"{name} at an old commit", old, "at the head", new, most=1.5))
    ours = await timed(
        lambda: place.history.list_node_revisions(
            history_service_pb2.ListNodeRevisionsRequest(workspace="bench", node_id=hot.id)
        ),
        rounds,
    )
    git = _git_log(str(store.repositories.path(workspace_id)), entry_path(hot))
    work = f"revisions of a node after {commits:,} commits"
    return [*rows, Row.of_times(work, ours, "git log -- path, changed-path filters", git, most=0.25)]


def _git_log(repository: str, path: str) -> list[float]:
    """Return the seconds of calls of ``git log -- path`` with changed-path filters; none without git."""
    if shutil.which("git") is None:
        return []
    git = ["git", "-C", repository]
    subprocess.run([*git, "repack", "-q", "--geometric=2", "-d"], check=True, capture_output=True)
    subprocess.run([*git, "commit-graph", "write", "--reachable", "--changed-paths"], check=True, capture_output=True)
    samples = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([*git, "log", "--format=%H", "main", "--", path], check=True, capture_output=True)
        samples.append(time.perf_counter() - begun)
    return samples
