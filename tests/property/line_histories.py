"""A plain model of histories in Git, what the mirror should say of each state, and histories in unusual forms."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memotree_storage.git.objects import COMMIT, encode_commit, raw_id
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import entry_path
from memotree_storage.model.position import many_between
from memotree_storage.model.tokens import count_tokens
from memotree_storage.ports import CommitInfo
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import blob_id
from property.store_harness import pick

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


def row(point: Point, times: Mapping[str, datetime], entry: Entry) -> dict[str, Any]:
    """Every column of an entry's version."""
    written = point.written[entry.id]
    common = {
        "entry_id": entry.id,
        "dead": False,
        "blob": blob_id(encode_entry(entry)),
        "commit_id": written,
        "committed_at": times[written],
    }
    if isinstance(entry, Archive):
        return common | {
            "is_archive": True,
            "archive_id": entry.id,
            "parent_id": "",
            "position": "",
            "type": entry.model_id,
            "title": entry.name,
            "brief": "",
            "summary": entry.description,
            "tags": [],
            "attributes": {},
            "relations": [],
            "source": None,
            "tokens": 0,
        }
    return common | {
        "is_archive": False,
        "archive_id": entry.archive_id,
        "parent_id": entry.parent_id or "",
        "position": entry.position,
        "type": entry.type,
        "title": entry.title,
        "brief": entry.brief,
        "summary": entry.summary,
        "tags": list(entry.tags),
        "attributes": dict(entry.attributes),
        "relations": [[relation.type, relation.target_id, relation.description] for relation in entry.relations],
        "source": None,
        "tokens": count_tokens(entry.content),
    }


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
