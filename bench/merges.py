"""Measures a merge of two branches that changed the same nodes, and its revert, beside git on the same commits."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.model.position import many_between
from memotree_storage.ports import CommitDraft, FileContent, Signature

from bench.table import Row
from bench.worlds import World
from memotree.v1 import history_service_pb2 as history

_WORDS = 300
_MOST_MS = 100


async def run(place: World, *, nodes: int, changed: int, rounds: int) -> list[Row]:
    """Measure a merge of ``nodes`` nodes, ``changed`` of which have a new title here and a new text there."""
    archive = Archive(new_id(), "merges")
    positions = many_between(None, None, nodes)
    texts = [" ".join(f"word{number % 97}x{at}" for at in range(_WORDS)) for number in range(nodes)]
    base = [
        Node(new_id(), archive.id, None, position, title=f"Node {number}", content=texts[number])
        for number, position in enumerate(positions)
    ]
    first = _commit(place, place.store.repositories.get(place.workspace_id).refs()["refs/heads/main"], [archive, *base])
    some = base[:: max(1, nodes // changed)][:changed]
    ours = _commit(place, first, [replace(node, title=f"{node.title}, as we call it") for node in some], some)
    theirs = _commit(place, first, [replace(node, content=f"{node.content}\n\nAnd more.") for node in some])
    repository = place.store.repositories.get(place.workspace_id)
    for name, commit in (("main", ours), ("theirs", theirs), *((f"ours-{number}", ours) for number in range(rounds))):
        ref = f"refs/heads/{name}"
        repository.move_ref(ref, repository.refs().get(ref), commit)
    await place.store.catch_up(place.workspace_id)
    await place.store.indexer.drain(place.workspace_id)
    samples, previews, reverts = [], [], []
    for number in range(rounds):
        branch = f"ours-{number}"
        begun = time.perf_counter()
        asked = history.PreviewMergeRequest(workspace="bench", source="theirs", branch=branch)
        told = await place.history.preview_merge(asked)
        previews.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        request = history.MergeBranchRequest(workspace="bench", source="theirs", branch=branch)
        made = await place.history.merge_branch(request)
        samples.append(time.perf_counter() - begun)
        if not told.change_count == made.change_count == len(some):
            message = f"{made.change_count} of {len(some)} nodes were merged"
            raise RuntimeError(message)
        begun = time.perf_counter()
        await place.history.revert_commit(
            history.RevertCommitRequest(workspace="bench", revision=branch, branch=branch, parent_number=1)
        )
        reverts.append(time.perf_counter() - begun)
        await place.store.indexer.drain(place.workspace_id)
    git = _by_git(str(repository.path), ours, theirs, rounds)
    peer = "git merge-tree + commit-tree + update-ref"
    work = f"of {nodes:,} nodes with {len(some)} changed on both sides"
    return [
        Row.of_times(f"preview of a merge {work}", previews),
        Row.of_times(f"merge {work}", samples, peer, git, most=1),
        Row.of_times(f"merge {work}, in milliseconds", samples, most=_MOST_MS, where="with 290 of 2,000"),
        Row.of_times(f"revert of a merge {work}", reverts),
    ]


def _commit(place: World, parent: str, entries: Sequence[Entry], before: Sequence[Entry] = ()) -> str:
    repository = place.store.repositories.get(place.workspace_id)
    who = Signature("bench", "", datetime.now(UTC).replace(microsecond=0))
    changes: dict[str, FileContent | None] = dict.fromkeys(map(entry_path, before))
    changes |= {entry_path(entry): encode_entry(entry) for entry in entries}
    return repository.write_commit(CommitDraft(parent, changes, "Change nodes\n", who, who)).commit_id


def _by_git(repository: str, ours: str, theirs: str, rounds: int) -> list[float]:
    """The seconds of the same merge by the git program, which is asked to sync as MemoTree does."""
    git = ["git", "-C", repository, "-c", "core.fsync=all", "-c", "user.name=Bench", "-c", "user.email=b@example.org"]
    samples = []
    for _ in range(rounds):
        begun = time.perf_counter()
        tree = _output([*git, "merge-tree", "--write-tree", ours, theirs]).split()[0]
        commit = _output([*git, "commit-tree", tree, "-p", ours, "-p", theirs, "-m", "Merge"]).strip()
        _output([*git, "update-ref", "refs/bench/merged", commit])
        samples.append(time.perf_counter() - begun)
    return samples


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
