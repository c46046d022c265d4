"""Merges of commits of the model: their bases, what they must give, what they gave, and whether git makes them."""

import subprocess
from collections.abc import Collection

from memotree_storage.commit.merge_commit import Merged
from memotree_storage.git.entry_files import EntryDecoder, entry_files
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.state_restore import Restored
from memotree_storage.model.codec import InvalidFileError
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import parse_path
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.merge_bases import is_ancestor, merge_bases
from property.line_histories import Files, Model, Point
from property.store_harness import pick
from property.trees import ancestors, archive_tree, shown, subtree


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
