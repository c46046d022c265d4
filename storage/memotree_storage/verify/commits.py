"""Compares every commit with its rows: the changes in Git, decoded, and the versions and placements in the mirror."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import CorruptError
from memotree_storage.git.entry_files import (
    EntryDecoder,
    EntryDifference,
    EntryFile,
    SecondFile,
    diff_entries,
    entry_files,
)
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.mirror.catch_up import mirrored_refs
from memotree_storage.model.codec import InvalidFileError
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.paths import parse_path, shown_path
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.ports import CommitInfo, CommitParents, CommitReader
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.rows import FIELDS, Version, commit_facts, row_of, targets_of, tombstone_of
from memotree_storage.verify.report import Difference, Step, in_git, in_postgres

_ROWS: Final = 500
"""Rows that one statement compares."""

_COMMITS: Final = 200
"""Commits whose rows one statement compares."""

_COLUMNS: Final = (*FIELDS, "targets")
_PLACE: Final = ("dead", "archive_id", "parent_id", "position", "fault")

_Key = tuple[int, int, str]
"""Line, seq and entry."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """The rows that an entry should have at a commit: its version, and its placement if it was moved there."""

    entry_id: str
    version: tuple[Any, ...]
    placement: tuple[Any, ...] | None


@dataclass(slots=True)
class _Part:
    """A part of the changes of one commit; a big commit has several. ``commit`` is ``None`` if it cannot be read."""

    commit_id: str
    commit: CommitInfo | None = None
    rows: list[_Expected] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    damage: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class _Mirrored:
    """The place and the facts of a commit in the mirror."""

    line_id: int
    seq: int
    facts: tuple[Any, ...]


class CommitCheck:
    """Compares all commits that refs reach, and all others in the mirror.

    ``meet`` is called in a thread with each node that a mirrored commit writes.
    """

    def __init__(
        self,
        conn: Connection,
        workspace_id: str,
        repository: CommitReader,
        refs: Mapping[str, str],
        meet: Callable[[str, Node], None] = lambda *_: None,
    ) -> None:
        self._conn = conn
        self._workspace_id = workspace_id
        self._repository = repository
        self._refs = refs
        self._meet = meet
        self._known: set[str] = set()
        self._seen: dict[str, set[str]] = {}
        self._faults: dict[str, dict[str, str]] = {}

    async def run(self) -> AsyncIterator[Difference | Step]:
        """Yield every difference, with progress by commits."""
        known = self._known = await self._commits()
        commits, damage = await in_store_thread(self._history, known)
        for found in damage:
            yield found
        for commit_id in sorted(known - {commit.commit_id for commit in commits}):
            yield in_postgres("commit", f"Commit {commit_id} is mirrored but not in Git.", commit_id=commit_id)
        done = 0
        yield Step("commits", done, len(commits))
        parts = self._parts(commits)
        while batch := await in_store_thread(_take, parts):
            for found in await self._compare(batch):
                yield found
            done += sum(part.last for part in batch)
            yield Step("commits", done, len(commits))
        for found in await in_store_thread(self._standing_faults):
            yield found

    async def _commits(self) -> set[str]:
        cursor = await self._conn.execute(
            "select commit_id from mirror.commit where workspace_id = %s", (self._workspace_id,)
        )
        return {row[0] for row in await cursor.fetchall()}

    def _history(self, known: set[str]) -> tuple[list[CommitParents], list[Difference]]:
        """Return the commits that refs and open sessions reach, then those that only the mirror still has."""
        tips = [
            *mirrored_refs(self._refs).values(),
            *(target for name, target in self._refs.items() if name.startswith(KEEP_PREFIX)),
        ]
        try:
            tips = [tip for tip in dict.fromkeys(tips) if self._repository.exists(tip)]
            reached = self._repository.history(tips, lambda _: False)
            ids = {commit.commit_id for commit in reached}
            rest = sorted(commit_id for commit_id in known - ids if self._repository.exists(commit_id))
            return reached + self._repository.history(rest, ids.__contains__), []
        except (ObjectMissingError, CorruptError) as error:
            return [], [in_git("object", f"The history cannot be walked. {error.message}")]

    # --- what Git says -----------------------------------------------------------------------------------------------

    def _parts(self, commits: Sequence[CommitParents]) -> Iterator[_Part]:
        for commit_id in (commit.commit_id for commit in commits):
            part = _Part(commit_id)
            decoder = EntryDecoder(self._repository)
            try:
                part.commit = commit = self._repository.commit_info(commit_id)
                parent = commit.parents[0] if commit.parents else None
                for found in diff_entries(self._repository, parent, commit_id):
                    if len(part.rows) == _ROWS:
                        yield part
                        part = _Part(commit_id, commit)
                    if isinstance(found, SecondFile):
                        part.faults[found.path] = found.fault
                    elif found.old != found.new:
                        self._expect(found, part, decoder)
            except (ObjectMissingError, CorruptError) as error:
                part.damage = error.message
            part.last = True
            yield part

    def _expect(self, found: EntryDifference, part: _Part, decoder: EntryDecoder) -> None:
        before = after = None
        if found.old is not None:
            before, _ = self._decode(found.old)
        if found.new is not None:
            after, fault = self._decode(found.new, decoder)
            if fault:
                part.faults[found.new.path] = fault
        if found.same_entry:
            return
        last = None if before is None or found.old is None else Version(*_plain(row_of(before, found.old.blob)))
        if after is not None and found.new is not None:
            if isinstance(after, Node) and part.commit_id in self._known:
                self._meet(part.commit_id, after)
            version = (*_plain(row_of(after, found.new.blob)), targets_of(after))
        elif last is not None:
            version = (*_plain(tombstone_of(last)), [])
        else:
            return  # it was not alive before and is not alive now
        part.rows.append(_Expected(found.entry_id, version, _placement(version, last)))

    def _decode(self, file: EntryFile, decoder: EntryDecoder | None = None) -> tuple[Entry | None, str]:
        try:
            return (decoder or EntryDecoder(self._repository)).decode(file), ""
        except InvalidFileError as error:
            return None, error.message

    def _standing_faults(self) -> list[Difference]:
        """Report files that are no entries, or cannot be read as such, and still exist at the head of a branch."""
        paths = {path for faults in self._faults.values() for path in faults}
        ids = sorted({parsed[1] for path in paths if (parsed := parse_path(path)) is not None})
        found = []
        for name, head in self._refs.items():
            try:
                wrong = self._wrong_files(head, ids) if name.startswith("refs/heads/") else {}
            except (ObjectMissingError, CorruptError):
                continue  # the ref, or the commit that has the object, is a difference already
            for commit_id, faults in self._faults.items():
                for path in filter(wrong.__contains__, faults):
                    sentence = f"On {name}, {wrong[path]} A rebuild cannot repair it."
                    found.append(in_git("file", sentence, commit_id=commit_id))
        return list(dict.fromkeys(found))

    def _wrong_files(self, head: str, ids: Sequence[str]) -> dict[str, str]:
        """What is wrong with the files of these ids at the head of a branch, by path."""
        wrong = {}
        for entry_id, files in entry_files(self._repository, head, ids).items():
            for file in files:
                surplus = SecondFile(file.path, files[0].path, entry_id)
                wrong[file.path] = self._decode(file)[1] if file is files[0] else surplus.fault
        return {path: sentence for path, sentence in wrong.items() if sentence}

    # --- what the mirror says ----------------------------------------------------------------------------------------

    async def _compare(self, batch: Sequence[_Part]) -> list[Difference]:
        found: list[Difference] = []
        mirrored = await self._mirrored({part.commit_id for part in batch})
        present = []
        for part in batch:
            commit_id = part.commit_id
            if part.damage:
                found.append(
                    in_git(
                        "object", f"Commit {commit_id} cannot be read completely. {part.damage}", commit_id=commit_id
                    )
                )
            if commit_id in mirrored:
                present.append((part, mirrored[commit_id]))
                self._seen.setdefault(commit_id, set()).update(row.entry_id for row in part.rows)
                self._faults.setdefault(commit_id, {}).update(part.faults)
                if part.last and part.commit is not None:
                    found += _facts_differ(part.commit, mirrored[commit_id])
            elif part.last:
                found.append(
                    in_postgres("commit", f"Commit {commit_id} is in Git but not mirrored.", commit_id=commit_id)
                )
        keys = [(at.line_id, at.seq, row.entry_id) for part, at in present for row in part.rows]
        versions = await self._at(keys, "version", _COLUMNS)
        placements = await self._at(keys, "placement", _PLACE)
        for part, at in present:
            for row in part.rows:
                key = (at.line_id, at.seq, row.entry_id)
                found += _row_differs(part.commit_id, row, versions.get(key), placements.get(key))
        whole = [(part.commit_id, at) for part, at in present if part.last]
        found += await self._surplus(whole, {part.commit_id for part in batch if part.damage})
        found += await self._faults_differ([commit_id for commit_id, _ in whole])
        return found

    async def _mirrored(self, ids: set[str]) -> dict[str, _Mirrored]:
        cursor = await self._conn.execute(
            "select commit_id, line_id, seq, parents, author_name, author_email, authored_at, committed_at, message,"
            " session_id, request_id from mirror.commit where workspace_id = %s and commit_id = any(%s)",
            (self._workspace_id, list(ids)),
        )
        return {row[0]: _Mirrored(row[1], row[2], tuple(row[3:])) for row in await cursor.fetchall()}

    async def _at(self, keys: Sequence[_Key], table: str, columns: Sequence[str]) -> dict[_Key, tuple[Any, ...]]:
        cursor = await self._conn.execute(
            f"select k.line, k.seq, k.entry, {', '.join(f't.{name}' for name in columns)}"  # noqa: S608 - our own names
            f" from unnest(%s::bigint[], %s::bigint[], %s::text[]) as k (line, seq, entry) join mirror.{table} t"
            " on t.line_id = k.line and t.entry_id = k.entry and t.from_seq = k.seq",
            ([key[0] for key in keys], [key[1] for key in keys], [key[2] for key in keys]),
        )
        return {(row[0], row[1], row[2]): tuple(row[3:]) for row in await cursor.fetchall()}

    async def _surplus(self, whole: Sequence[tuple[str, _Mirrored]], damaged: set[str]) -> list[Difference]:
        """Report rows at a commit's place for which there is no change in Git."""
        cursor = await self._conn.execute(
            "select k.line, k.seq, count(v.entry_id) from unnest(%s::bigint[], %s::bigint[]) as k (line, seq)"
            " left join mirror.version v on v.line_id = k.line and v.from_seq = k.seq and v.from_seq > 0"
            " group by k.line, k.seq",
            ([at.line_id for _, at in whole], [at.seq for _, at in whole]),
        )
        counted = {(row[0], row[1]): row[2] for row in await cursor.fetchall()}
        found = []
        for commit_id, at in whole:
            expected = self._seen.pop(commit_id, set())
            if commit_id in damaged or counted[at.line_id, at.seq] == len(expected):
                continue
            cursor = await self._conn.execute(
                "select entry_id from mirror.version"
                " where line_id = %s and from_seq = %s and from_seq > 0 and entry_id <> all(%s)",
                (at.line_id, at.seq, list(expected)),
            )
            found += [
                in_postgres(
                    "row",
                    f"Commit {commit_id} has a row for {entry}, which it does not change in Git.",
                    commit_id=commit_id,
                    node_id=entry,
                )
                for (entry,) in await cursor.fetchall()
            ]
        return found

    async def _faults_differ(self, ids: Sequence[str]) -> list[Difference]:
        cursor = await self._conn.execute(
            "select commit_id, path from mirror.fault where workspace_id = %s and commit_id = any(%s)",
            (self._workspace_id, list(ids)),
        )
        there = {(row[0], row[1]) for row in await fetched(cursor)}
        should = {(commit_id, path) for commit_id in ids for path in map(shown_path, self._faults.get(commit_id, {}))}
        for commit_id in ids:
            if not self._faults.get(commit_id):
                self._faults.pop(commit_id, None)
        return [
            in_postgres(
                "fault",
                f"The mirror {'says' if (commit_id, path) in there else 'does not say'} that {path} of commit "
                f"{commit_id} cannot be read, but Git says otherwise.",
                commit_id=commit_id,
            )
            for commit_id, path in sorted(there ^ should)
        ]


def _take(parts: Iterator[_Part]) -> list[_Part]:
    """Take the next parts: few commits with many rows, or many with few."""
    taken: list[_Part] = []
    rows = 0
    for part in islice(parts, _COMMITS):
        taken.append(part)
        rows += len(part.rows)
        if rows >= _ROWS:
            break
    return taken


def _plain(values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as PostgreSQL returns them."""
    return tuple(getattr(value, "obj", value) for value in values)


def _placement(version: tuple[Any, ...], last: Version | None) -> tuple[Any, ...] | None:
    """The placement row of a version: where the node is now, or that it is gone; ``None`` if nothing changed."""
    now = Version(*version[: len(FIELDS)])
    if now.is_archive:
        return None
    place = (now.dead, now.archive_id, now.parent_id, now.position)
    stays = last is not None and (False, last.archive_id, last.parent_id, last.position) == place
    return None if stays else place


def _facts_differ(commit: CommitInfo, mirrored: _Mirrored) -> list[Difference]:
    names = ("parents", "author_name", "author_email", "authored_at", "committed_at", "message", "session", "request")
    should = commit_facts(commit)
    wrong = [name for name, one, other in zip(names, mirrored.facts, should, strict=True) if one != other]
    if not wrong:
        return []
    sentence = f"The row of commit {commit.commit_id} has a different {' and '.join(wrong)} than Git."
    return [in_postgres("commit", sentence, commit_id=commit.commit_id)]


def _row_differs(
    commit_id: str, row: _Expected, version: tuple[Any, ...] | None, placement: tuple[Any, ...] | None
) -> list[Difference]:
    found = []
    if version is None:
        sentence = f"Commit {commit_id} changes {row.entry_id} in Git but has no row for it."
        found.append(in_postgres("row", sentence, commit_id=commit_id, node_id=row.entry_id))
    elif version != row.version:
        pairs = zip(_COLUMNS, version, row.version, strict=True)
        differences = "; ".join(
            f"{name} is {_short(one)}, but Git says {_short(other)}" for name, one, other in pairs if one != other
        )
        sentence = f"The row of {row.entry_id} at commit {commit_id} is wrong: {differences}."
        found.append(in_postgres("row", sentence, commit_id=commit_id, node_id=row.entry_id))
    if not _is_placed(row, placement):
        is_at, belongs = (_where(place) for place in (placement, row.placement))
        sentence = f"At commit {commit_id} the placement of {row.entry_id} is {is_at}, but should be {belongs}."
        found.append(in_postgres("placement", sentence, commit_id=commit_id, node_id=row.entry_id))
    return found


def _is_placed(row: _Expected, there: tuple[Any, ...] | None) -> bool:
    """Whether a placement is right, as far as a commit tells.

    A node that stands nowhere is shown elsewhere, and has a row without a move when it stands again. Whether that is
    right is a matter of whole trees: see `memotree_storage.verify.trees`.
    """
    if there is None:
        return row.placement is None
    now = Version(*row.version[: len(FIELDS)])
    *place, fault = there
    return fault is not None or tuple(place) == (now.dead, now.archive_id, now.parent_id, now.position)


def _where(place: tuple[Any, ...] | None) -> str:
    if place is None:
        return "unchanged"
    dead, archive_id, parent_id, position, *_ = place
    return "gone" if dead else f"below {parent_id or archive_id} at {position}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - what reads well in a line
