"""Files of other programs that have no place in the tree, or that are no entries: what is wrong, where, what to do."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError
from memotree_storage.git.entry_files import entry_files
from memotree_storage.model.paths import archive_path, node_path, parse_path
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import misplaced, tree
from memotree_storage.postgres.database import fetched
from memotree_storage.postgres.misplaced import CYCLE, NO_ARCHIVE, ORPHAN, OTHER_ARCHIVE
from memotree_storage.postgres.tree import LINE, Snapshot

NAME_TAKEN: Final = "name_taken"
"""The kind of fault of archives that share a name."""

TOO_DEEP: Final = "too_deep"
"""The kind of fault of a node that a push would put deeper than the limit."""

UNREADABLE: Final = "unreadable"
"""The kind of fault of a file that is no entry."""

_AT_ONCE: Final = 500
"""Files that one statement returns."""

MEND_FILE: Final = "Mend or remove the file with git, and commit that."
"""What to do about a file that is no entry."""

# The window reads the archives once. A subquery for the titles is a loop within a loop until somebody runs ANALYZE.
_DOUBLES: Final = f"""
  with {LINE},
  open as (
    select distinct v.entry_id, v.title from line join mirror.version v on v.line_id = line.line_id
     where v.is_archive and not v.dead and v.from_seq <= line.seq and (v.to_seq is null or v.to_seq > line.seq))
  select distinct entry_id from (
    select entry_id, count(*) over (partition by title) as number from open) named where number > 1"""  # noqa: S608

_FILES: Final = f"""
  with {LINE}
  select distinct on (f.path collate "C") f.path, f.description, f.commit_id
    from mirror.fault f join mirror.commit c using (workspace_id, commit_id)
    join line on line.line_id = c.line_id and c.seq <= line.seq
   where f.workspace_id = %(workspace)s and f.path collate "C" > %(after)s::text collate "C"
   order by f.path collate "C", line.depth, c.seq desc limit %(limit)s"""  # noqa: S608


class FaultRow(NamedTuple):
    """A fault of one entry; ``other`` is the node or archive that the sentence names too."""

    kind: str
    entry_id: str
    title: str
    blob: str
    other: str


@dataclass(frozen=True, slots=True)
class TreeFault:
    """A fault, told.

    Attributes:
        kind: One of the kinds of `memotree_storage.postgres.misplaced`, `NAME_TAKEN`, `TOO_DEEP` or `UNREADABLE`.
        entry_id: The node or archive.
        title: Its title or name; "" if the file cannot be read.
        path: Its file in the repository.
        line: The line of the file that is wrong, counted from 1; 0 if it is not known.
        description: What is wrong: a sentence about an unreadable file; else what follows the name of the node.
        way_out: A sentence: what to do.
    """

    kind: str
    entry_id: str
    title: str
    path: str
    line: int
    description: str
    way_out: str

    @property
    def sentence(self) -> str:
        """What is wrong, as a sentence."""
        if self.kind == UNREADABLE:
            return self.description
        return f"The {'archive' if self.kind == NAME_TAKEN else 'node'} {self.description}."

    @property
    def place(self) -> str:
        """Path and line, as compilers write them."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True)
class _Told:
    """How a kind of fault is told: the key of the file that is wrong, what is wrong, and what to do."""

    key: str
    what: str
    way_out: str


_KINDS: Final[Mapping[str, _Told]] = {
    ORPHAN: _Told(
        "parent",
        "stands below {other}, which is deleted or was never there",
        "Move it below another node or to the root of its archive (MoveNode), or delete it.",
    ),
    NO_ARCHIVE: _Told(
        "archive",
        "is in archive {other}, which is deleted or was never there",
        "Move it to another archive (MoveNode with its parent or archive), or delete it.",
    ),
    OTHER_ARCHIVE: _Told(
        "archive",
        "is in another archive than the node above it, {other}",
        "Move it below that node again (MoveNode), which takes it along.",
    ),
    CYCLE: _Told(
        "parent",
        "stands below {other} in a cycle, so no root is above it",
        "Move one node of the cycle to the root of its archive (MoveNode).",
    ),
    TOO_DEEP: _Told("parent", "stands below {other}, deeper than the limit", "Move it further up (MoveNode)."),
    NAME_TAKEN: _Told("name", "has the name of another archive", "Rename one of them (UpdateArchive)."),
}


async def tree_faults(snapshot: Snapshot, after: str, limit: int) -> list[FaultRow]:
    """Return faults of nodes and archives at a state, ordered by id, after an id.

    Costs what there is: a page of nodes by an index that has only them; for archives that share a name, all archives.
    """
    places = await misplaced.places(snapshot.conn, snapshot.state, after=after, limit=limit)
    cursor = await snapshot.conn.execute(_DOUBLES, snapshot.state.arguments())
    doubles = await tree.versions(snapshot, [row[0] for row in await fetched(cursor)])
    names: defaultdict[str, list[str]] = defaultdict(list)
    for version in doubles.values():
        names[version.title].append(version.entry_id)
    twice = {key for ids in names.values() if len(ids) > 1 for key in ids}
    page = sorted(key for key in places.keys() | twice if key > after)[:limit]
    found = []
    for entry_id, version in sorted((await tree.versions(snapshot, page)).items()):
        kind = places[entry_id].fault if entry_id in places else None
        other = min(names[version.title]) if kind is None else version.parent_id or version.archive_id
        found.append(FaultRow(kind or NAME_TAKEN, entry_id, version.title, version.blob, other))
    return found


async def unreadable_files(snapshot: Snapshot, repository: CommitReader, after: str, limit: int) -> list[TreeFault]:
    """Return the files at a commit that cannot be read as entries, ordered by path, after a path."""
    found: list[TreeFault] = []
    while len(found) < limit:
        arguments = snapshot.state.arguments(after=after, limit=_AT_ONCE)
        rows = await (await snapshot.conn.execute(_FILES, arguments)).fetchall()
        found += await in_store_thread(_still_there, repository, snapshot.state.commit_id, rows)
        if len(rows) < _AT_ONCE:
            break
        after = rows[-1][0]
    return found[:limit]


def _still_there(repository: CommitReader, commit_id: str, rows: Sequence[tuple[str, str, str]]) -> list[TreeFault]:
    """Those files that are at a commit as they were at the commit that made them unreadable."""
    now = _blobs(repository, commit_id, [path for path, _, _ in rows])
    by_commit: defaultdict[str, list[str]] = defaultdict(list)
    for path, _, made in rows:
        by_commit[made].append(path)
    then = {path: found for made, paths in by_commit.items() for path, found in _blobs(repository, made, paths).items()}
    found = []
    for path, description, _ in rows:
        parsed = parse_path(path)
        if now[path] == then[path]:
            entry_id = "" if parsed is None else parsed[1]
            found.append(TreeFault(UNREADABLE, entry_id, "", path, 0, description, MEND_FILE))
    return found


def _blobs(repository: CommitReader, commit_id: str, paths: Sequence[str]) -> dict[str, str | None]:
    return {path: dict(found).get(path) for path, found in repository.files_beginning(commit_id, paths)}


def tell_fault(repository: CommitReader, commit_id: str, fault: FaultRow) -> TreeFault:
    """Tell a fault at a commit, with the file of that commit and the line that is wrong."""
    told = _KINDS[fault.kind]
    files = entry_files(repository, commit_id, [fault.entry_id])[fault.entry_id]
    staged = (archive_path if fault.kind == NAME_TAKEN else node_path)(fault.entry_id, fault.title)
    path = files[0].path if files else staged
    line = _line(repository, fault.blob, told.key)
    what = told.what.format(other=fault.other)
    return TreeFault(fault.kind, fault.entry_id, fault.title, path, line, what, told.way_out)


def _line(repository: CommitReader, blob: str, key: str) -> int:
    """The number of the line of a file that begins with a key; 0 if there is none."""
    try:
        lines = repository.read_blob(blob).decode("utf-8", "replace").split("\n")
    except MemoTreeError:
        return 0
    return next((number for number, line in enumerate(lines, start=1) if line.startswith(f"{key}:")), 0)
