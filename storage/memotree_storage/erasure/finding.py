"""Finds what an erasure would take away, before it does; changes nothing."""

import hashlib
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import NotFoundError
from memotree_storage.git.generations import all_refs
from memotree_storage.git.rewriting import Counting, HistoryRewriter, names_with_text
from memotree_storage.model.erasure import ErasureTarget, NameHasTextError, Redaction, check_target, titles_for
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import parse_path
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres import erasures, sessions, staging
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.staging import Staged
from memotree_storage.store import Store

_PAGE: Final = 200
_BACKUP_LIST: Final = "backup.json"


class ErasedNothingError(NotFoundError):
    """The workspace never had such a node or archive."""

    reason = "NOTHING_TO_ERASE"


@dataclass(frozen=True, slots=True)
class Preview:
    """What an erasure would take away.

    Attributes:
        commits: Commits that get another id.
        messages: Commits whose message changes.
        entries: Nodes and archives with a version that changes or goes.
        versions: Such versions.
        files: Files that change or go and are no nodes and no archives.
        branches: Branches that move to other commits.
        tags: Tags that move.
        signatures: Signatures of commits and tags that go, since they are of other bytes.
        staged: Staged changes that change or go.
        sessions: Sessions with such changes, or with a base that gets another id.
        requests: Kept results of request ids that go.
        jobs: Jobs that go, with what they were given and what came of them.
        unfinished_jobs: Jobs that must end before.
        discarded: Copies of the workspace in the trash folder, and backups in the data folder, that go.
        phrase: What confirms exactly this.
    """

    commits: int
    messages: int
    entries: int
    versions: int
    files: int
    branches: int
    tags: int
    signatures: int
    staged: int
    sessions: int
    requests: int
    jobs: int
    unfinished_jobs: tuple[str, ...]
    discarded: tuple[str, ...]
    phrase: str = ""


async def redaction_of(conn: Connection, workspace_id: str, target: ErasureTarget) -> Redaction:
    """What a target means in the history of a workspace, which the mirror follows.

    Raises:
        InvalidErasureError: The target does not name one thing.
        ErasedNothingError: The workspace never had such a node or archive.
    """
    check_target(target)
    if target.text:
        return Redaction(target)
    named = target.node_id or target.archive_id
    if not await erasures.is_known(conn, workspace_id, named, is_archive=bool(target.archive_id)):
        called = "archive" if target.archive_id else "node"
        raise ErasedNothingError(
            f"The workspace has and had no {called} {named!r}; give the whole id, as its history shows it.",
            called,
            named,
        )
    nodes = frozenset({target.node_id})
    if target.archive_id:
        nodes = await erasures.nodes_ever_in(conn, workspace_id, target.archive_id)
    above = frozenset[str]()
    if not target.fields or {"content", "summary", "title"} & set(target.fields):
        above = await erasures.nodes_ever_above(conn, workspace_id, nodes)
    titles = frozenset[str]()
    if not target.fields or {"content", "title"} & set(target.fields):
        titles = await erasures.titles_ever(conn, workspace_id, [*nodes, *filter(None, [target.archive_id])])
    return Redaction(target, nodes, above - nodes, titles_for(titles))


async def preview(store: Store, workspace_id: str, target: ErasureTarget) -> Preview:
    """What an erasure would take away; the phrase holds until a branch or tag moves.

    Raises:
        InvalidErasureError: The target does not name one thing.
        ErasedNothingError: The workspace never had such a node or archive.
        NameHasTextError: A branch or tag has the text in its name.
        ObjectMissingError, ObjectDamagedError: The history cannot be read.
    """
    await store.catch_up(workspace_id)
    place = store.repositories.path(workspace_id)
    async with store.database.connection() as conn:
        redaction = await redaction_of(conn, workspace_id, target)
        refs = await in_store_thread(all_refs, place)
        refuse_names(redaction, refs)
        affected = await erasures.affected_rows(conn, workspace_id, redaction, "")
        open_sessions = await sessions.list_sessions(conn, workspace_id, closed=False)
        touched: dict[str, int] = {}
        for session in open_sessions:
            async for _ in staged_with(conn, session.session_id, redaction):
                touched[session.session_id] = touched.get(session.session_id, 0) + 1
    counted = await in_store_thread(_count, place, redaction, refs)
    bases = {one.session_id for one in open_sessions if one.base_commit in counted.moved}
    discarded = await in_store_thread(list, discarded_files(store, workspace_id))
    found = Preview(
        commits=len(counted.moved),
        messages=counted.messages,
        entries=len({each for path in counted.paths if (each := parse_path(path)) is not None}),
        versions=counted.versions,
        files=sum(parse_path(path) is None for path in counted.paths),
        branches=sum(name.startswith("refs/heads/") for name in counted.refs),
        tags=sum(name.startswith("refs/tags/") for name in counted.refs),
        signatures=counted.signatures,
        staged=sum(touched.values()),
        sessions=len(bases | touched.keys()),
        requests=len(affected.requests),
        jobs=len(affected.jobs),
        unfinished_jobs=affected.unfinished_jobs,
        discarded=tuple(path.name for path in discarded),
    )
    return replace(found, phrase=phrase_of(workspace_id, target, refs))


def phrase_of(workspace_id: str, target: ErasureTarget, refs: dict[str, str]) -> str:
    """The phrase that confirms an erasure of a target in a history with these branches and tags."""
    followed = sorted(item for item in refs.items() if not item[0].startswith(KEEP_PREFIX))
    digest = hashlib.sha256(json.dumps([workspace_id, followed]).encode() + target.encode()).hexdigest()
    return f"erase {target.kind} {digest[:12]}"


@dataclass(frozen=True, slots=True)
class _Counted:
    moved: frozenset[str]
    messages: int
    paths: frozenset[str]
    versions: int
    refs: tuple[str, ...]
    signatures: int


def _count(place: Path, redaction: Redaction, refs: dict[str, str]) -> _Counted:
    rewriter = HistoryRewriter(place, redaction, Counting())
    try:
        new = rewriter.rewrite(refs)
    finally:
        rewriter.close()
    found = rewriter.findings
    moved = tuple(name for name, target in refs.items() if new[name] != target)
    return _Counted(
        frozenset(found.commits), found.messages, frozenset(found.paths), len(found.blobs), moved, found.signatures
    )


def refuse_names(redaction: Redaction, refs: dict[str, str]) -> None:
    """Refuse to erase a text that names of refs have: other programs know those names.

    Raises:
        NameHasTextError: One has it.
    """
    named = names_with_text(redaction, refs)
    if named:
        raise NameHasTextError(
            f"{len(named)} branches or tags have the text in their names, which an erasure does not change. Make them "
            "again under other names, and delete these; then ask again."
        )


async def staged_with(
    conn: Connection, session_id: str, redaction: Redaction
) -> AsyncIterator[tuple[Staged, Entry | None]]:
    """Yield the staged changes of a session that have what goes, each with what stays of it."""
    after = ""
    while rows := await staging.staged(conn, session_id, after=after, limit=_PAGE):
        found = await in_store_thread(_with, rows, redaction)
        for one in found:
            yield one
        after = rows[-1].entry_id


def _with(rows: list[Staged], redaction: Redaction) -> list[tuple[Staged, Entry | None]]:
    found: list[tuple[Staged, Entry | None]] = []
    for row in rows:
        entry = row.entry
        kept = None if entry is None else redaction.entry(entry)
        is_named = row.entry_id in redaction.nodes or row.entry_id == redaction.target.archive_id
        told = any(redaction.has_text(message) for message in row.messages) or redaction.has_text(row.version.title)
        if kept != entry or told or (is_named and (row.messages or entry is None)):
            found.append((row, kept))
    return found


def discarded_files(store: Store, workspace_id: str) -> Iterator[Path]:
    """The copies of a workspace that an erasure discards: in the trash folder, and backups in the data folder."""
    folder = store.data_folder
    if (folder / "trash").is_dir():
        yield from sorted((folder / "trash").glob(f"{workspace_id}-*"))
    for parent in (folder, folder / "backups"):
        for file in sorted(parent.iterdir()) if parent.is_dir() else ():
            if file.is_file() and not file.is_symlink() and _is_backup_of(file, workspace_id):
                yield file


def _is_backup_of(file: Path, workspace_id: str) -> bool:
    try:
        with tarfile.open(file, "r:") as archive:
            names = archive.getnames()
    except (tarfile.TarError, OSError, EOFError):
        return False
    return _BACKUP_LIST in names and any(workspace_id in name for name in names)
