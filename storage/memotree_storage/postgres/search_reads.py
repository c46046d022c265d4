"""What a search reads of the mirror, each in one statement: before the index is asked, of its candidates, of its hits.

A statement costs a caller more than the rows that it returns do, so a search sends few of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from memotree_storage.ports import LineSpan
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import fetched
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import COLUMNS, LINE, Snapshot, version_of

_SPANS: Final = "(select array_agg(array[line_id, seq, number] order by depth) from line)"

_BASIS: Final = f"""
  with {LINE}
  select exists (select from mirror.outbox
                  where workspace_id = %(workspace)s and index_number = %(index)s
                    and not applied and outbox_id > %(after)s),
         {_SPANS},
         (select array_agg(array[t.term, t.documents]) from mirror.term t
           where t.workspace_id = %(workspace)s and t.term = any(%(terms)s::bigint[]))"""  # noqa: S608 - constants

_LINEAGE: Final = f"with {LINE} select {_SPANS}"

# The lineage is a row of its own, so that it is there without any version.
_SHOWN: Final = f"""
  with {LINE}
  select {_SPANS}, v.*
    from (select) one left join (
      select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
        from unnest(%(ids)s::text[]) as wanted(id)
        cross join lateral {version_of("wanted.id")} v
        left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
       where not v.dead) v on true"""  # noqa: S608 - constants

_PLACES: Final = f"""
  with recursive {LINE}, {tree.above("%(ids)s::text[]")}
  select entry_id, parent_id, null::bigint from up where entry_id <> ''
  union all
  select wanted.id, null, (select count(*) from {tree.children_of("wanted.id")} child)
    from unnest(%(ids)s::text[]) as wanted(id)"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class SearchBasis:
    """What a search at a state needs before it asks the index, as of one moment.

    Attributes:
        is_behind: Whether the index lacks rows of the outbox.
        lineage: The lines visible at the state, nearest first.
        counts: In how many versions of the workspace each term occurs; a term in none is left out.
    """

    is_behind: bool
    lineage: list[LineSpan]
    counts: Mapping[int, int]


class ShownVersions(NamedTuple):
    """The alive ones of some nodes by id, and the lineage of the state, as of one moment."""

    versions: dict[str, Version]
    lineage: list[LineSpan]


class NodePlaces(NamedTuple):
    """The ids of the ancestors of some nodes (root first), and how many children each has, by id."""

    ways: dict[str, list[str]]
    child_counts: dict[str, int]


async def basis(snapshot: Snapshot, *, index: int, after: int, terms: Collection[int]) -> SearchBasis:
    """Return what a search needs first.

    Args:
        snapshot: The state.
        index: The number of the index.
        after: The row of the outbox up to which the index has all that this search needs.
        terms: The terms whose counts are needed.
    """
    cursor = await snapshot.conn.execute(_BASIS, snapshot.state.arguments(index=index, after=after, terms=list(terms)))
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - the statement has no condition
    return SearchBasis(row[0], _spans(row[1]), dict(row[2] or ()))


async def lineage_of(snapshot: Snapshot) -> list[LineSpan]:
    """Return the lines visible at a state, nearest first."""
    row = await (await snapshot.conn.execute(_LINEAGE, snapshot.state.arguments())).fetchone()
    return _spans(row[0] if row else None)


async def shown_versions(snapshot: Snapshot, ids: Collection[str]) -> ShownVersions:
    """Return the alive versions of nodes, as `tree.versions` does, and the lineage."""
    cursor = await snapshot.conn.execute(_SHOWN, snapshot.state.arguments(ids=list(ids)))
    rows = await fetched(cursor)
    found = (Version(*columns) for _, *columns in rows if columns[0] is not None)
    return ShownVersions({version.entry_id: version for version in found}, _spans(rows[0][0]))


async def places(snapshot: Snapshot, ids: Sequence[str]) -> NodePlaces:
    """Return where nodes are, as `tree.ancestors` and `tree.child_counts` do."""
    if not ids:
        return NodePlaces({}, {})
    rows = await fetched(await snapshot.conn.execute(_PLACES, snapshot.state.arguments(ids=list(ids))))
    parents = {entry_id: parent_id for entry_id, parent_id, count in rows if count is None}
    counts = {entry_id: count for entry_id, _, count in rows if count is not None}
    return NodePlaces(await tree.ways_of(ids, parents), counts)


def _spans(found: Sequence[Sequence[int]] | None) -> list[LineSpan]:
    return [LineSpan(*span) for span in found or ()]
