"""Which of the changes of their side a merge brings: those of some nodes, subtrees, tags or agents."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State


class NoSuchChangeError(NotFoundError):
    """Their side has not changed a chosen node."""

    reason = "NO_SUCH_CHANGE"


@dataclass(frozen=True, slots=True)
class Selection:
    """Chooses changes; one is chosen if it meets every criterion that is given.

    Attributes:
        ids: Nodes and archives, by id or by the beginning of one.
        subtrees: Nodes and archives with all that stands below them, likewise.
        tags: Nodes that have one of these tags on their side (a deleted one: on ours).
        agents: Entries whose version on their side one of these agents has committed.
    """

    ids: Sequence[str] = ()
    subtrees: Sequence[str] = ()
    tags: Sequence[str] = ()
    agents: Sequence[str] = ()

    def __bool__(self) -> bool:
        return any((self.ids, self.subtrees, self.tags, self.agents))


async def select(
    conn: Connection, ours: State, theirs: State, changed: Sequence[str], selection: Selection
) -> list[str]:
    """The chosen ones of the entries that differ between a base and their side.

    Args:
        conn: Reads the mirror.
        ours: The state that gets the changes.
        theirs: The commit whose versions have the tags and agents: their side, or a commit that is reverted.
        changed: The entries that differ.
        selection: What is chosen.

    Raises:
        NoSuchChangeError: A node or archive was named that has no change.
        InvalidInputError: A beginning of an id is that of several.
    """
    their_versions = await tree.versions(Snapshot(conn, theirs), changed, dead=True)
    our_versions = await tree.versions(Snapshot(conn, ours), changed)
    versions = {one: _shown(their_versions.get(one), our_versions.get(one)) for one in changed}
    chosen = set(changed)
    if selection.ids or selection.subtrees:
        ways = await _ways(conn, ours, theirs, versions)
        chosen = await in_store_thread(_named, selection.ids, {one: [one] for one in changed}, "change of")
        chosen |= await in_store_thread(_named, selection.subtrees, ways, "change of or below")
    if selection.tags:
        wanted = set(selection.tags)
        chosen = {one for one in chosen if (version := versions[one]) is not None and wanted.intersection(version.tags)}
    if selection.agents:
        agents = await _agents(
            conn, theirs.workspace_id, [their_versions[one] for one in chosen & their_versions.keys()]
        )
        chosen = {one for one in chosen if agents.get(one, set()).intersection(selection.agents)}
    return [one for one in changed if one in chosen]


def _shown(theirs: Version | None, ours: Version | None) -> Version | None:
    return ours if theirs is None or theirs.dead else theirs


async def _ways(
    conn: Connection, ours: State, theirs: State, versions: Mapping[str, Version | None]
) -> dict[str, list[str]]:
    """Each entry with all that stands above it: on their side, and on ours, from where a deleted one is gone."""
    found: dict[str, list[str]] = {}
    for state in (theirs, ours):
        ways = await tree.ancestors(Snapshot(conn, state), versions)
        for one, version in versions.items():
            above = ways.get(one, [])
            archive = [version.archive_id] if version is not None and not version.is_archive else []
            found.setdefault(one, [one]).extend([*above, *archive])
    return found


def _named(names: Sequence[str], ways: Mapping[str, Sequence[str]], what: str) -> set[str]:
    """The entries that stand below a named one, or are it; ``ways`` has for each what stands above it. Blocks."""
    below: dict[str, set[str]] = {}
    for one, way in ways.items():
        for above in way:
            below.setdefault(above, set()).add(one)
    ids = sorted(below)
    found: set[str] = set()
    for name in names:
        begin = bisect_left(ids, name)
        if begin == len(ids) or not ids[begin].startswith(name):
            raise NoSuchChangeError(
                f"The other side has no {what} {name}. PreviewMerge lists its changes.", "node", name
            )
        if ids[begin] != name and begin + 1 < len(ids) and ids[begin + 1].startswith(name):
            raise InvalidInputError.at("only", f"{name} is the beginning of several ids; give more of it.")
        found |= below[ids[begin]]
    return found


async def _agents(conn: Connection, workspace_id: str, versions: Sequence[Version]) -> dict[str, set[str]]:
    """Who has committed each version: the agent of the session and the author."""
    commits = {version.commit_id for version in versions if version.commit_id is not None}
    rows = await history.read_commits(conn, workspace_id, sorted(commits))
    agents = {row.commit_id: {row.author_name, row.agent} for row in rows}
    return {version.entry_id: agents.get(version.commit_id or "", set()) for version in versions}
