"""Which of the changes of their side a merge brings: those of some nodes, subtrees, tags or agents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memotree_storage.errors import NotFoundError
from memotree_storage.model import trailers
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

    Raises:
        NoSuchChangeError: A node or archive was named that has no change.
    """
    their_versions = await tree.versions(Snapshot(conn, theirs), changed, dead=True)
    our_versions = await tree.versions(Snapshot(conn, ours), changed)
    versions = {one: _shown(their_versions.get(one), our_versions.get(one)) for one in changed}
    chosen = set(changed)
    if selection.ids or selection.subtrees:
        ways = await _ways(conn, ours, theirs, versions)
        chosen = _named(changed, selection.ids, {one: [one] for one in changed}, "change")
        chosen |= _named(changed, selection.subtrees, ways, "change below or of")
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


def _named(changed: Sequence[str], names: Sequence[str], ways: Mapping[str, Sequence[str]], what: str) -> set[str]:
    found: set[str] = set()
    for name in names:
        some = {one for one in changed if any(each.startswith(name) for each in ways[one])}
        if not some:
            raise NoSuchChangeError(
                f"The other side has no {what} {name}. PreviewMerge lists its changes.", "node", name
            )
        found |= some
    return found


async def _agents(conn: Connection, workspace_id: str, versions: Sequence[Version]) -> dict[str, set[str]]:
    """Who has committed each version: the agent of the session and the author."""
    commits = {version.commit_id for version in versions if version.commit_id is not None}
    rows = await history.read_commits(conn, workspace_id, sorted(commits))
    agents = {
        row.commit_id: {row.author_name, trailers.trailers_of(row.message).get(trailers.AGENT, row.author_name)}
        for row in rows
    }
    return {version.entry_id: agents.get(version.commit_id or "", set()) for version in versions}
