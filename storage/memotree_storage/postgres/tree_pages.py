"""Pages of a tree, parents before children: a page reads what it shows, not the whole tree.

A page is a walk over a list of nodes and gaps in the order of the tree. A gap stands for siblings that were not read
yet: the children of a node, or what follows a node below the same parent. Each round reads into the gaps before the
last node of the page, with one statement and at most as many rows as the page has nodes, and forgets what stands behind
that node. So a page takes at most one round for each level of the tree, whatever the size of the tree is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from memotree_storage.errors import AbortedError
from memotree_storage.postgres.tree import LINE, Snapshot, in_order, placement_of

_ALL_LEVELS: Final = 1_000_000


class PlaceRemovedError(AbortedError):
    """The place where a page of a tree begins was removed between two pages."""

    reason = "PAGE_PLACE_REMOVED"

    def __init__(self) -> None:
        super().__init__(
            "The nodes where this page begins were removed or moved since the page before; read the tree again from "
            "its first page."
        )


@dataclass(frozen=True, slots=True)
class Top:
    """What is listed: a node and what is below it, or the nodes of an archive.

    ``max_depth`` is the depth of the deepest nodes that are listed: the top node, or a root of the archive, has 0.
    """

    entry_id: str
    is_archive: bool
    max_depth: int | None = None


class Place(NamedTuple):
    """Where a node stands: among the nodes of its home, which is its parent, or the archive of a root."""

    entry_id: str
    home_id: str
    position: str


@dataclass(frozen=True, slots=True)
class PagedNode:
    """A node of a page.

    Attributes:
        place: Its id, and where it stands.
        depth: How far it is below the top.
        is_last: Whether no sibling follows it.
        way: The ids from the top, or from its root in an archive, to its parent.
    """

    place: Place
    depth: int
    is_last: bool
    way: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Some nodes of a tree in its order, and whether others follow."""

    nodes: Sequence[PagedNode]
    has_more: bool


class _Listed(NamedTuple):
    """A node in the list of a walk."""

    place: Place
    depth: int


class _Gap(NamedTuple):
    """Siblings that were not read yet: those in a home after a place, all of them if it is empty."""

    home_id: str
    depth: int
    after: tuple[str, str] = ("", "")  # position and id


class _Step(NamedTuple):
    """What one step of a statement read: at most ``limit`` nodes of one home, in order."""

    home_id: str
    depth: int
    ids: list[str]
    positions: list[str]
    limit: int


_AFTER: Final = '(position, entry_id) > (gap.position, gap.entry_id) and entry_id <> %(top)s::text collate "C"'
"""Not the top again: it stands below itself if somebody pushed a cycle."""

# A step reads the nodes of one home. The next step reads the children of the first of these, so that a chain takes one
# statement, and after the last of a chain the next gap. Each step may read as many rows as those before it left over.
_FILL: Final = f"""
  with recursive {LINE},
  step (number, gap, home_id, depth, rows_left, ids, positions) as (
    select 0, 0, ''::text collate "C", 0, %(limit)s::int, '{{}}'::text[] collate "C", '{{}}'::text[] collate "C"
    union all
    select step.number + 1, gap.number, gap.home_id, gap.depth, step.rows_left - cardinality(read.ids),
           read.ids, read.positions
      from step
      cross join lateral (
        select step.gap, step.ids[1] collate "C", step.depth + 1, ''::text collate "C", ''::text collate "C"
         where cardinality(step.ids) > 0 and step.depth < %(max_depth)s
        union all
        select step.gap + 1, (%(homes)s::text[])[step.gap + 1] collate "C", (%(depths)s::int[])[step.gap + 1],
               (%(positions)s::text[])[step.gap + 1] collate "C", (%(ids)s::text[])[step.gap + 1] collate "C"
         where not (cardinality(step.ids) > 0 and step.depth < %(max_depth)s)
      ) gap (number, home_id, depth, position, entry_id)
      cross join lateral (
        select coalesce(array_agg(entry_id order by position, entry_id), '{{}}') collate "C" as ids,
               coalesce(array_agg(position order by position, entry_id), '{{}}') collate "C" as positions
          from {in_order("gap.home_id", "step.rows_left", after=_AFTER)} child
      ) read
     where step.rows_left > 0 and gap.home_id is not null
  )
  select gap, home_id, depth, ids, positions from step where number > 0 order by number"""  # noqa: S608

_FOLLOWED: Final = f"""
  with {LINE}
  select gap.entry_id from unnest(%(homes)s::text[], %(positions)s::text[], %(ids)s::text[])
      as gap (home_id, position, entry_id)
   where exists (select from {in_order("gap.home_id", "1", after=_AFTER)} child)"""  # noqa: S608

# "union" drops rows that it has, so it ends in a cycle; it needs no list of what was seen in each row, as "cycle" does.
_UPWARDS: Final = f"""
  with recursive {LINE},
  up (entry_id, parent_id, archive_id, position) as (
    select wanted.id collate "C", p.parent_id, p.archive_id, p.position from unnest(%(ids)s::text[]) as wanted(id)
     cross join lateral {placement_of("wanted.id")} p where not p.dead
    union
    select up.parent_id, p.parent_id, p.archive_id, p.position from up
     cross join lateral {placement_of("up.parent_id")} p where up.parent_id <> '' and not p.dead
  )
  select entry_id, coalesce(nullif(parent_id, ''), archive_id), position from up"""  # noqa: S608


async def page(snapshot: Snapshot, top: Top, size: int, after: Place | None = None) -> Page:
    """Return at most ``size`` nodes of a tree, from the first one, or those that follow a place.

    The place is that of the last node of the page before. The node itself may have been removed or moved since.

    Raises:
        PlaceRemovedError: The home of that place is no longer in the tree.
    """
    walk = _Walk(snapshot, top, size)
    path = walk.begin() if after is None else walk.go_on(after, await _upwards(snapshot, after))
    await walk.read()
    return await walk.page(path)


async def _upwards(snapshot: Snapshot, place: Place) -> dict[str, Place]:
    """The present places, by id, of the node of a place, of its home there, and of all above them."""
    ids = sorted({place.entry_id, place.home_id} - {""})
    cursor = await snapshot.conn.execute(_UPWARDS, snapshot.state.arguments(ids=ids))
    return {row[0]: Place(*row) for row in await cursor.fetchall()}


class _Walk:
    """The list of nodes and gaps, which becomes complete up to the end of the page."""

    def __init__(self, snapshot: Snapshot, top: Top, size: int) -> None:
        self._snapshot = snapshot
        self._top = top
        self._size = size
        self._deepest = _ALL_LEVELS if top.max_depth is None else top.max_depth
        self._items: list[_Listed | _Gap] = []
        self._followed: set[str] = set()  # nodes that have a next sibling
        self._behind: dict[str, _Gap] = {}  # by the id of the node after which they begin

    def begin(self) -> list[str]:
        """Begin at the first node; return the ids that lead to it: none."""
        if self._top.is_archive:
            self._items = [_Gap(self._top.entry_id, 0)]
        else:
            self._items = [_Listed(Place(self._top.entry_id, "", ""), 0), *self._below(self._top.entry_id, 0)]
        return []

    def go_on(self, after: Place, known: Mapping[str, Place]) -> list[str]:
        """Begin after a place: below it, after it, after its parent, and so on; return the ids that lead to it."""
        tops = [] if self._top.is_archive else [self._top.entry_id]
        if [after.entry_id] == tops:
            self._items = self._below(after.entry_id, 0)
            return tops
        route = [after]
        while route[-1].home_id != self._top.entry_id:
            above = known.get(route[-1].home_id)
            if above is None or len(route) > len(known):
                raise PlaceRemovedError
            route.append(above)
        path = [*tops, *(place.entry_id for place in reversed(route))]
        depth = len(path) - 1
        here = known.get(after.entry_id) == after
        self._items = self._below(after.entry_id, depth) if here else []
        self._items += [
            _Gap(place.home_id, depth - number, (place.position, place.entry_id)) for number, place in enumerate(route)
        ]
        return path

    async def read(self) -> None:
        """Read into gaps until none is before the end of the page."""
        while gaps := self._gaps():
            await self._fill(gaps)

    async def page(self, path: list[str]) -> Page:
        """The nodes of the page, given the ids that lead to the node before it, its own included."""
        listed = [item for item in self._items if isinstance(item, _Listed)]
        kept = listed[: self._size]
        await self._look_behind(kept)
        nodes = []
        for place, depth in kept:
            del path[depth:]
            nodes.append(PagedNode(place, depth, place.entry_id not in self._followed, tuple(path)))
            path.append(place.entry_id)
        return Page(nodes, len(listed) > self._size)

    def _below(self, entry_id: str, depth: int) -> list[_Listed | _Gap]:
        """The gap for the children of a node of that depth; none at the deepest level."""
        return [_Gap(entry_id, depth + 1)] if depth < self._deepest else []

    def _gaps(self) -> list[_Gap]:
        """The gaps before the first node after the page; what stands behind that node is forgotten."""
        gaps = []
        left = self._size + 1
        for number, item in enumerate(self._items):
            if isinstance(item, _Gap):
                gaps.append(item)
                continue
            left -= 1
            if not left:
                del self._items[number + 1 :]
                break
        return gaps

    async def _fill(self, gaps: Sequence[_Gap]) -> None:
        """Read into the gaps, in order, with one statement."""
        most = self._size + 1
        arguments = self._snapshot.state.arguments(
            top=self._top.entry_id,
            limit=most,
            max_depth=self._deepest,
            homes=[gap.home_id for gap in gaps],
            depths=[gap.depth for gap in gaps],
            positions=[gap.after[0] for gap in gaps],
            ids=[gap.after[1] for gap in gaps],
        )
        cursor = await self._snapshot.conn.execute(_FILL, arguments)
        steps: dict[int, list[_Step]] = {}
        for number, home_id, depth, ids, positions in await cursor.fetchall():
            step = _Step(home_id, depth, ids, positions, most)
            most -= len(step.ids)
            steps.setdefault(number, []).append(step)
        numbers = iter(range(1, len(gaps) + 1))
        items: list[_Listed | _Gap] = []
        for item in self._items:
            number = next(numbers) if isinstance(item, _Gap) else 0
            if isinstance(item, _Gap) and number in steps:
                items += self._filled(item, steps[number])
            else:
                items.append(item)
        self._items = items

    def _filled(self, gap: _Gap, steps: Sequence[_Step]) -> list[_Listed | _Gap]:
        """What stands in the place of a gap: each step read the children of the first node of the step before."""
        items: list[_Listed | _Gap] = []
        rests: list[list[_Listed | _Gap]] = []  # what follows the first node of each step and all that is below it
        for number, step in enumerate(steps):
            listed = [
                _Listed(Place(entry_id, step.home_id, position), step.depth)
                for entry_id, position in zip(step.ids, step.positions, strict=True)
            ]
            after = gap.after[1] if number == 0 else ""
            self._behind.pop(after, None)
            self._followed.update(filter(None, [after, *step.ids[:-1]] if listed else []))
            if not listed:
                break
            items.append(listed[0])
            rest = [one for item in listed[1:] for one in (item, *self._below(item.place.entry_id, step.depth))]
            if len(listed) == step.limit:
                last = listed[-1].place
                self._behind[last.entry_id] = _Gap(step.home_id, step.depth, (last.position, last.entry_id))
                rest.append(self._behind[last.entry_id])
            rests.append(rest)
            if number == len(steps) - 1:
                items += self._below(step.ids[0], step.depth)
        for rest in reversed(rests):
            items += rest
        return items

    async def _look_behind(self, kept: Sequence[_Listed]) -> None:
        """Find out which nodes of the page are followed by siblings that were not read."""
        gaps = [self._behind[item.place.entry_id] for item in kept if item.place.entry_id in self._behind]
        if gaps:
            arguments = self._snapshot.state.arguments(
                top=self._top.entry_id,
                homes=[gap.home_id for gap in gaps],
                positions=[gap.after[0] for gap in gaps],
                ids=[gap.after[1] for gap in gaps],
            )
            cursor = await self._snapshot.conn.execute(_FOLLOWED, arguments)
            self._followed.update(row[0] for row in await cursor.fetchall())
