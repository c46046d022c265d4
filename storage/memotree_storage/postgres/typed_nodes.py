"""Nodes of some types with their attributes and relations, and nothing else of them: for figures about many nodes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from memotree_storage.postgres.database import fetched
from memotree_storage.postgres.tree import LINE, Snapshot, version_of


@dataclass(frozen=True, slots=True)
class TypedNode:
    """An alive node without its texts.

    Attributes:
        node_id: Its id.
        type: Its type.
        title: Its title.
        tags: Its tags.
        attributes: Its attributes.
        relations: Its relations, each with its type, target and description.
    """

    node_id: str
    type: str
    title: str
    tags: list[str]
    attributes: Mapping[str, str]
    relations: list[list[str]]

    def targets(self, kind: str) -> list[str]:
        """The ids that its relations of a type point to."""
        return [target for found, target, _ in self.relations if found == kind]


_READ: Final = "v.entry_id, v.type, v.title, v.tags, v.attributes, v.relations"
_COMPARED: Final = f"{_READ}, v.dead, v.archive_id, v.targets"

_MOMENT: Final = "v.attributes ->> (%(attributes)s::jsonb ->> v.type)"
_IS_RECENT: Final = f"""coalesce({_MOMENT} !~ '^[0-9]{{4}}(-|$)' or ({_MOMENT}) collate "C" >= %(since)s::text, true)"""
_OF_ARCHIVE: Final = f"v.archive_id = %(archive)s and v.type = any(%(types)s::text[]) and {_IS_RECENT}"
_POINTING: Final = "v.targets && %(ids)s::text[] and v.type = any(%(types)s::text[])"


def _statement(condition: str, more: str = "") -> str:
    """SQL: the alive nodes that satisfy a condition; candidates are those of which any version does."""
    return f"""
  with {LINE},
  candidate as (
    select v.entry_id from work.staged v where v.session_id = %(session)s and {condition}
    union
    select v.entry_id from line join mirror.version v on v.line_id = line.line_id
     where {condition} {more}
  )
  select {_READ} from candidate cross join lateral {version_of("candidate.entry_id", _COMPARED)} v
   where not v.dead and {condition} order by v.entry_id"""  # noqa: S608 - expressions of this module


_RECENT_STATEMENT: Final = _statement(_OF_ARCHIVE)
_POINTING_STATEMENT: Final = _statement(_POINTING, "and v.targets <> '{}'")


async def recent(snapshot: Snapshot, archive_id: str, attributes: Mapping[str, str], since: str) -> list[TypedNode]:
    """Return the nodes of an archive of some types but those whose time, in an attribute, is before a date.

    A text that is no date of ISO 8601 may be a time in another form, so its node is returned, too.

    Args:
        snapshot: The state.
        archive_id: The archive.
        attributes: The types, each with its attribute.
        since: The date, in ISO 8601.
    """
    found = {"archive": archive_id, "types": list(attributes), "attributes": Jsonb(dict(attributes)), "since": since}
    return await _listed(snapshot, _RECENT_STATEMENT, found)


async def pointing_at(snapshot: Snapshot, ids: Iterable[str], types: Collection[str]) -> list[TypedNode]:
    """Return the nodes of some types that have a relation to one of the given ids."""
    return await _listed(snapshot, _POINTING_STATEMENT, {"ids": list(ids), "types": list(types)})


async def _listed(snapshot: Snapshot, statement: str, arguments: Mapping[str, Any]) -> list[TypedNode]:
    async with snapshot.conn.cursor(row_factory=args_row(TypedNode)) as cursor:
        await cursor.execute(statement, snapshot.state.arguments(**arguments))
        return await fetched(cursor)
