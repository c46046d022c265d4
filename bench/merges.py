"""Measures merges of two branches that changed the same nodes, beside git, their conflicts, reverts and restores."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.model.position import many_between
from memotree_storage.ports import CommitDraft, FileContent, Signature

from bench.table import Row
from bench.worlds import World
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2

_WORDS = 300
_MOST_MS = 100
_RESTORED = 1000


async def run(place: World, *, nodes: int, changed: int, rounds: int) -> list[Row]:
    """Measure a merge of ``nodes`` nodes, ``changed`` of which have a new title here and a new text there."""
    archive = Archive(new_id(), "merges")
    positions = many_between(None, None, nodes)
    texts = [" ".join(f"word{number % 97}x{at}" for at in range(_WORDS)) for number in range(nodes)]
    base = [
        Node(new_id(), archive.id, None, position, title=f"Node {number}", content=texts[number])
        for number, position in enumerate(positions)
    ]
    repository = place.store.repositories.get(place.workspace_id)
    first = commit_entries(place, repository.refs()["refs/heads/main"], [archive, *base])
    some = base[:: max(1, nodes // changed)][:changed]
    ours = commit_entries(place, first, [replace(node, title=f"{node.title}, as we call it") for node in some], some)
    theirs = commit_entries(place, first, [replace(node, content=f"{node.content}\n\nAnd more.") for node in some])
    named = commit_entries(place, first, [replace(node, title=f"{node.title}, as they call it") for node in some], some)
    lost = base[:_RESTORED]
    gone = commit_entries(place, first, [], lost)
    commits = {"main": ours, "theirs": theirs, "named": named, "first": first}
    commits |= {f"{name}-{number}": at for number in range(rounds) for name, at in (("ours", ours), ("gone", gone))}
    for name, commit in commits.items():
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
    resolved = [await _resolved(place, len(some)) for _ in range(rounds)]
    restored = [await _restored(place, archive.id, f"gone-{number}", len(lost)) for number in range(rounds)]
    git = _by_git(str(repository.path), ours, theirs, rounds)
    peer = "git merge-tree + commit-tree + update-ref"
    work = f"of {nodes:,} nodes with {len(some)} changed on both sides"
    return [
        Row.of_times(f"preview of a merge {work}", previews),
        Row.of_times(f"merge {work}", samples, peer, git, most=1),
        Row.of_times(f"merge {work}, in milliseconds", samples, most=_MOST_MS, where="with 290 of 2,000"),
        Row.of_times(f"revert of a merge {work}", reverts),
        Row.of_times(f"staging a merge with {len(some)} conflicts in a session", [times[0] for times in resolved]),
        Row.of_times(f"listing {len(some)} conflicts", [times[1] for times in resolved]),
        Row.of_times(f"resolving {len(some)} conflicts by their side", [times[2] for times in resolved]),
        Row.of_times("committing that merge", [times[3] for times in resolved]),
        Row.of_times(f"restore of an archive of which {len(lost):,} nodes were deleted", restored),
    ]


async def _resolved(place: World, conflicts: int) -> list[float]:
    """The seconds of staging a merge with conflicts, listing them, resolving all by one call, and the commit."""
    opened = await place.sessions.open_session(sessions.OpenSessionRequest(workspace="bench"))
    session_id = opened.session.id
    times = [time.perf_counter()]
    staged = await place.history.merge_branch(
        history.MergeBranchRequest(workspace="bench", session_id=session_id, source="named")
    )
    times.append(time.perf_counter())
    listed = await place.sessions.list_conflicts(
        sessions.ListConflictsRequest(workspace="bench", session_id=session_id, page_size=1000)
    )
    times.append(time.perf_counter())
    request = sessions.ResolveConflictsRequest(
        workspace="bench", session_id=session_id, others=types_pb2.CONFLICT_SIDE_THEIRS
    )
    left = (await place.sessions.resolve_conflicts(request)).session.conflict_count
    times.append(time.perf_counter())
    made = await place.sessions.commit_changes(
        sessions.CommitChangesRequest(workspace="bench", session_id=session_id, message="Merge")
    )
    times.append(time.perf_counter())
    if not (staged.conflict_count == len(listed.conflicts) == made.change_count == conflicts and left == 0):
        message = f"{made.change_count} of {conflicts} conflicts were resolved"
        raise RuntimeError(message)
    head = await place.history.get_commit(history.GetCommitRequest(workspace="bench"))
    await place.history.create_branch(
        history.CreateBranchRequest(workspace="bench", name=f"kept-{made.commit_id}", revision=head.commit.id)
    )
    repository = place.store.repositories.get(place.workspace_id)
    repository.move_ref("refs/heads/main", made.commit_id, head.commit.parent_ids[0])
    await place.store.catch_up(place.workspace_id)
    await place.store.indexer.drain(place.workspace_id)
    return [after - before for before, after in pairwise(times)]


async def _restored(place: World, archive_id: str, branch: str, nodes: int) -> float:
    begun = time.perf_counter()
    made = await place.history.restore_nodes(
        history.RestoreNodesRequest(
            workspace="bench", node_ids=[archive_id], revision="first", recursive=True, branch=branch
        )
    )
    taken = time.perf_counter() - begun
    if made.change_count != nodes:
        message = f"{made.change_count} of {nodes} nodes were restored"
        raise RuntimeError(message)
    await place.store.indexer.drain(place.workspace_id)
    return taken


def commit_entries(place: World, parent: str, entries: Sequence[Entry], before: Sequence[Entry] = ()) -> str:
    """Writes a commit past the service: entries in place of those that were ``before``; returns its id."""
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
