"""A plain model of histories in Git: what the mirror should say of each state, and what merges must give."""

import random
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memotree_storage.commit.merge_commit import Merged
from memotree_storage.git.entry_files import EntryDecoder, entry_files
from memotree_storage.git.objects import COMMIT, encode_commit, raw_id
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.state_restore import Restored
from memotree_storage.model.codec import InvalidFileError, encode_entry
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import entry_path, parse_path
from memotree_storage.model.position import many_between
from memotree_storage.model.tokens import count_tokens
from memotree_storage.ports import CommitInfo
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.merge_bases import is_ancestor, merge_bases
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import blob_id
from property.store_harness import pick
from property.trees import ancestors, archive_tree, shown, subtree

BRANCHES = ["main", "one", "two", "three"]
TAGS = ["v1", "v2"]
PLACES = many_between(None, None, 40, random.Random(7))
START = datetime(2024, 1, 1, tzinfo=UTC)

Files = dict[str, Entry | None]
"""The entry files of a commit by id; ``None`` is a file that cannot be read."""


@dataclass(frozen=True)
class Point:
    """A commit of the model: its files, and for each file the commit that wrote it, along the first parents."""

    commit_id: str
    parents: tuple[str, ...]
    when: datetime
    files: Files
    written: Mapping[str, str]

    @property
    def alive(self) -> dict[str, Entry]:
        return {entry_id: entry for entry_id, entry in self.files.items() if entry is not None}


@dataclass
class Model:
    """All commits that were ever made, and the refs that name them."""

    points: dict[str, Point] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def reachable(self, *commits: str) -> set[str]:
        """All commits that refs reach, or that the given ones do."""
        seen: set[str] = set()
        front = list(commits or self.refs.values())
        while front:
            commit_id = front.pop()
            if commit_id not in seen:
                seen.add(commit_id)
                front += self.points[commit_id].parents
        return seen

    def merge_bases(self, one: str, other: str) -> set[str]:
        """The common ancestors that are behind no other one."""
        common = self.reachable(one) & self.reachable(other)
        return common - {behind for each in common for behind in self.reachable(each) - {each}}


TEXTS = ("archive_id", "parent_id", "position", "type", "title", "brief", "summary")
"""The columns of a version that are a text of its entry."""


def row(point: Point, times: Mapping[str, datetime], entry: Entry) -> dict[str, Any]:
    """Every column of an entry's version."""
    written = point.written[entry.id]
    found: dict[str, Any] = {
        "entry_id": entry.id,
        "dead": False,
        "blob": blob_id(encode_entry(entry)),
        "commit_id": written,
        "committed_at": times[written],
        "is_archive": isinstance(entry, Archive),
        "source": None,
    }
    if isinstance(entry, Archive):
        texts = (entry.id, "", "", entry.model_id, entry.name, "", entry.description)
        found |= {"tags": [], "attributes": {}, "relations": [], "tokens": 0}
        return found | dict(zip(TEXTS, texts, strict=True))
    found |= {name: getattr(entry, name) or "" for name in TEXTS}
    found |= {"tags": list(entry.tags), "attributes": dict(entry.attributes), "tokens": count_tokens(entry.content)}
    return found | {"relations": [[each.type, each.target_id, each.description] for each in entry.relations]}


def columns(version: Version) -> dict[str, Any]:
    names = [name for name in Version.__dataclass_fields__ if name not in {"line_id", "from_seq"}]
    return {name: getattr(version, name) for name in names}


def path_of(entry_id: str, entry: Entry | None, number: int) -> str:
    """A name for an entry's file: the one that MemoTree gives, or any other that a person may give."""
    made = entry_path(entry or Node(entry_id, entry_id, None, "a0"))
    stem = made[: made.index(entry_id) + len(entry_id)]
    return pick([made, made, f"{stem}.md", f"{stem}-the-old-title.md", f"{stem}-A (copy), Über.x.md"], number)


def sorting_after(path: str, entry_id: str) -> str:
    """A path of the same entry that sorts after another one."""
    stem = path[: path.index(entry_id) + len(entry_id)]
    return f"{stem}-~.md" if path < f"{stem}-~.md" else f"{stem}.md"


def join(repository: GitRepository, info: CommitInfo, parents: tuple[str, ...]) -> str:
    """The same commit with these parents."""
    raw = tuple(parents)
    with PackWriter(repository._objects.pack_folder) as pack:
        data = encode_commit(raw_id(info.tree_id, "tree"), raw, info.author, info.committer, "Merge " + info.message)
        commit = pack.add(COMMIT, data)
        written = pack.finish()
        repository._objects.register(written.name, written.offsets)
    return commit.hex()


class shuffled:  # noqa: N801 - reads as a clause of a with statement
    """Within the block, a repository lists its refs and the missing commits in another order."""

    def __init__(self, repository: GitRepository, order: random.Random) -> None:
        self._repository = repository
        self._order = order

    def __enter__(self) -> None:
        refs, history = self._repository.refs, self._repository.history

        def other_refs(*folders: str) -> dict[str, str]:
            found = list(refs(*folders).items())
            self._order.shuffle(found)
            return dict(found)

        def other_history(tips: list[str], known: Callable[[str], bool]) -> list[CommitInfo]:
            waiting = {info.commit_id: info for info in history(tips, known)}
            ordered: list[CommitInfo] = []
            while waiting:
                ready = sorted(key for key, info in waiting.items() if not set(info.parents) & waiting.keys())
                ordered.append(waiting.pop(self._order.choice(ready)))
            return ordered

        self._repository.refs = other_refs  # type: ignore[method-assign]
        self._repository.history = other_history  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        del self._repository.refs, self._repository.history


# --- Merges -----------------------------------------------------------------------------------------------------------


def merged_entries(base: Point, ours: Point, theirs: Point) -> tuple[Files, list[str]]:
    """What a merge from one base gives if our side is chosen in each conflict, and the entries that conflict."""
    files = dict(ours.files)
    conflicts: list[str] = []
    for key in {*base.files, *theirs.files}:
        start, our, their = (point.files.get(key) for point in (base, ours, theirs))
        if their in (start, our):
            continue
        result = merge_entries(start, our, their)
        if result.conflicts:
            conflicts.append(key)
        files[key] = result.entry
        if result.entry is None:
            del files[key]
    return files, conflicts


def merged_files(base: Point, ours: Point, theirs: Point) -> tuple[Files | None, list[str]]:
    """What a merge from one base must give, or ``None`` and the entries that conflict."""
    files, conflicts = merged_entries(base, ours, theirs)
    return (None if conflicts else files), conflicts


def restored_files(source: Point, ours: Point, restored: Restored) -> Files:
    """What restoring entries of a commit must give."""
    there, here = source.alive, ours.alive
    wanted = _with_below(there, restored.ids) if restored.below else set(restored.ids)
    gone = _with_below(here, restored.ids) - wanted if restored.removes_others else set[str]()
    above = {each for one in wanted for each in ancestors(there, one)}
    above |= {entry.archive_id for one in {*wanted, *above} if isinstance(entry := there.get(one), Node)}
    wanted |= {each for each in above if each in there and each not in here}
    files = {key: entry for key, entry in ours.files.items() if key not in gone}
    return files | {one: there[one] for one in wanted}


def _with_below(alive: dict[str, Entry], ids: Collection[str]) -> set[str]:
    placed, _ = shown(alive)
    found = {one for one in ids if one in alive}
    for one in sorted(found):
        below = archive_tree(placed, one) if isinstance(alive[one], Archive) else subtree(placed, [one])
        found |= {entry_id for entry_id, _ in below}
    return found


def read_commit(repository: GitRepository, commit_id: str, ours: Point, theirs: Point) -> Files:
    """What a merge commit has, as Git has it; other entries than those of the two sides are not looked for."""
    files: Files = {}
    decoder = EntryDecoder(repository)
    every = sorted({*ours.files, *theirs.files})
    for entry_id, found in entry_files(repository, commit_id, every).items():
        if found:
            try:
                files[entry_id] = decoder.decode(found[0])
            except InvalidFileError:
                files[entry_id] = None
    return files


def git_merges(repository: GitRepository, ours: Point, theirs: Point) -> bool:
    """Whether git merges the two, and not by keeping two files of one entry beside each other."""
    command = ["git", "-C", str(repository.path)]
    merging = [*command, "merge-tree", "--write-tree", ours.commit_id, theirs.commit_id]
    ended = subprocess.run(merging, capture_output=True, text=True, check=False)  # noqa: S603 - git, our own ids
    if ended.returncode != 0:
        return False
    listing = [*command, "ls-tree", "-r", "--name-only", ended.stdout.split()[0]]
    files = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603
    ids = [parsed[1] for path in files if (parsed := parse_path(path)) is not None]
    return len(set(ids)) == len(ids)


def read_merge(repository: GitRepository, merged: Merged, ours: Point) -> Files:
    """What a merge from several bases gave, as Git has it; it keeps what their side has not changed."""
    files = dict(ours.files)
    decoder = EntryDecoder(repository)
    for change in merged.changes:
        found = entry_files(repository, merged.commit_id, [change.entry_id])[change.entry_id]
        files.pop(change.entry_id, None)
        if found:
            files[change.entry_id] = decoder.decode(found[0])
        assert files.get(change.entry_id) == change.entry
    return files


async def check_merge_bases(conn: Connection, workspace: str, model: Model, known: list[str], seed: int) -> None:
    """Some pairs of commits have the merge bases that follow from the plain definition."""
    for step in range(3, 8 if known else 3):
        one, other = pick(known, seed * step), pick(known, seed + step)
        found = await merge_bases(conn, workspace, one, other)
        assert sorted(found) == sorted(model.merge_bases(one, other))
        assert await is_ancestor(conn, workspace, one, other) == (one in model.reachable(other))
