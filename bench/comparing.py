"""Measures what tells who changed what: differences of revisions, and blame, beside git."""

import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.model.position import many_between

from bench.merges import commit_entries
from bench.table import Row
from bench.worlds import World
from memotree.v1 import history_service_pb2 as history

_WORDS: Final = 300
_LINES: Final = 200
_APART: Final = 100


async def run(place: World, *, nodes: int, commits: int, rounds: int) -> list[Row]:
    """Measure a history of ``commits`` commits, each of which changes two of ``nodes`` nodes, one always the same."""
    archive = Archive(new_id(), "compared")
    texts = [" ".join(f"word{number % 97}x{at}" for at in range(_WORDS)) for number in range(nodes)]
    base = [
        Node(new_id(), archive.id, None, position, title=f"Node {number}", content=texts[number])
        for number, position in enumerate(many_between(None, None, nodes))
    ]
    lines = [f"Line {at} says something. It says it twice." for at in range(_LINES)]
    often = replace(base[0], content="\n".join(lines))
    repository = place.store.repositories.get(place.workspace_id)
    main = repository.refs()["refs/heads/main"]
    made = [commit_entries(place, main, [archive, often, *base[1:]])]
    for number in range(commits):
        at = number * 7 % _LINES
        lines[at] = f"Line {at} says something. It says it {number} times."
        often = replace(often, content="\n".join(lines))
        other = base[1 + number % (nodes - 1)]
        other = replace(other, content=other.content.replace(f"x{number % _WORDS} ", f"y{number} "))
        made.append(commit_entries(place, made[-1], [often, other]))
    repository.move_ref("refs/heads/main", main, made[-1])
    await place.store.catch_up(place.workspace_id)
    await place.store.indexer.drain(place.workspace_id)
    old, new = made[-1 - _APART], made[-1]
    asked = history.DiffRevisionsRequest(workspace="bench", old_revision=old, new_revision=new, page_size=1000)
    by_lines = history.DiffRevisionsRequest(include_fields=True)
    by_lines.MergeFrom(asked)
    by_words = history.DiffRevisionsRequest(by_words=True)
    by_words.MergeFrom(by_lines)
    blame = history.BlameNodeRequest(workspace="bench", node_id=often.id)
    by_sentences = history.BlameNodeRequest(workspace="bench", node_id=often.id, by_sentences=True)
    git = ["git", "-C", str(repository.path)]
    diff, work = [*git, "diff", "--no-renames"], f"{_APART} commits apart, {nodes:,} nodes"
    blamed = f"of a text of {_LINES} lines and {commits:,} versions"
    path = entry_path(often)

    async def differing(request: history.DiffRevisionsRequest) -> int:
        return len((await place.history.diff_revisions(request)).changes)

    async def credited(request: history.BlameNodeRequest) -> int:
        return len((await place.history.blame_node(request)).commits)

    _check(await differing(by_lines), _APART + 1)
    _check(await credited(blame), min(commits, _LINES) + (commits < _LINES))
    return [
        Row.of_times(
            f"which nodes differ, {work}",
            await _timed(lambda: differing(asked), rounds),
            "git diff --raw",
            _by_git([*diff, "--raw", old, new], rounds),
        ),
        Row.of_times(
            f"what differs by lines, {work}",
            await _timed(lambda: differing(by_lines), rounds),
            "git diff",
            _by_git([*diff, old, new], rounds),
        ),
        Row.of_times(
            f"what differs by words, {work}",
            await _timed(lambda: differing(by_words), rounds),
            "git diff --word-diff",
            _by_git([*diff, "--word-diff", old, new], rounds),
        ),
        Row.of_times(
            f"blame by lines {blamed}",
            await _timed(lambda: credited(blame), rounds),
            "git blame",
            _by_git([*git, "blame", new, "--", path], rounds),
        ),
        Row.of_times(f"blame by sentences {blamed}", await _timed(lambda: credited(by_sentences), rounds)),
    ]


async def _timed(call: Callable[[], Awaitable[int]], rounds: int) -> list[float]:
    samples = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - begun)
    return samples


def _by_git(command: Sequence[str], rounds: int) -> list[float]:
    samples = []
    for _ in range(rounds):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        samples.append(time.perf_counter() - begun)
    return samples


def _check(found: int, expected: int) -> None:
    if found != expected:
        message = f"{found} were found, and not {expected}"
        raise RuntimeError(message)
