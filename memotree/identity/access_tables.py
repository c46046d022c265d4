"""The tables of who may call, in memory. A change replaces what belongs to the principals that it touched."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from memotree_storage.postgres.access import AccessRows, KeyRow

from memotree.request.principal import Grant, Principal, Role

_NO_ROWS: Final = AccessRows((), (), ())


class AccessTables:
    """Principals with their roles, and their keys.

    Args:
        rows: The rows of all principals.
    """

    def __init__(self, rows: AccessRows = _NO_ROWS) -> None:
        self._principals: dict[str, Principal] = {}
        self._administrators: set[str] = set()
        self._keys: dict[str, list[KeyRow]] = {}
        self._by_id: dict[str, KeyRow] = {}
        self._by_digest: dict[bytes, KeyRow] = {}
        self._proved: dict[str, Principal] = {}  # by the id of the key that proved it
        self._add(rows)

    def __iter__(self) -> Iterator[Principal]:
        """Yield all principals, in no order."""
        return iter(self._principals.values())

    def find(self, name: str) -> Principal | None:
        """The principal of a name; ``None`` if there is none."""
        return self._principals.get(name)

    def key(self, key_id: str) -> KeyRow | None:
        """The key of an id; ``None`` if there is none."""
        return self._by_id.get(key_id)

    def key_of_digest(self, digest: bytes) -> KeyRow | None:
        """The key that has a digest; ``None`` if none has it."""
        return self._by_digest.get(digest)

    def proved_by(self, key: KeyRow) -> Principal | None:
        """Whoever proves with a key who it is; ``None`` if there is no such principal. Made once for each key."""
        found = self._proved.get(key.key_id)
        if found is None and (whose := self._principals.get(key.principal)) is not None:
            found = replace(whose, key_id=key.key_id, expires_at=key.expires_at)
            self._proved[key.key_id] = found
        return found

    def keys_of(self, name: str) -> Sequence[KeyRow]:
        """The keys of a principal, the oldest first."""
        return self._keys.get(name, ())

    def all_keys(self) -> Sequence[KeyRow]:
        """All keys, in no order."""
        return list(self._by_id.values())

    @property
    def is_administered(self) -> bool:
        """Whether somebody with a valid key administers the server."""
        return any(self._administers(name) for name in self._administrators)

    def ends_administration(self, names: Collection[str], rows: AccessRows) -> bool:
        """Whether somebody administers the server now, and nobody would if these names had these rows."""
        if not any(self._administers(name) for name in names):
            return False
        others = self._administrators.difference(names)
        return not any(self._administers(name) for name in others) and not AccessTables(rows).is_administered

    def replace(self, names: Collection[str], rows: AccessRows) -> None:
        """Put rows in the place of all that belongs to the principals of these names."""
        for name in names:
            self._principals.pop(name, None)
            self._administrators.discard(name)
            for key in self._keys.pop(name, ()):
                del self._by_id[key.key_id], self._by_digest[key.digest]
                self._proved.pop(key.key_id, None)
        self._add(rows)

    def forget_workspace(self, workspace_id: str) -> None:
        """Forget the roles in a workspace, which was deleted with them."""
        for found in [each for each in self if each.grants_in(workspace_id)]:
            left = tuple(grant for grant in found.grants if grant.workspace_id != workspace_id)
            self._principals[found.name] = Principal(found.name, found.email, left)
            for key in self.keys_of(found.name):
                self._proved.pop(key.key_id, None)

    def _add(self, rows: AccessRows) -> None:
        grants: dict[str, list[Grant]] = defaultdict(list)
        for row in rows.grants:
            with suppress(KeyError):  # the role of a later version gives nothing
                role = Role[row.role.upper()]
                grants[row.principal].append(Grant(row.workspace_id, row.branches, role, tuple(row.tools)))
        for each in rows.principals:
            made = Principal(each.name, each.email, tuple(grants[each.name]))
            self._principals[each.name] = made
            if made.calling().server_role >= Role.ADMIN:
                self._administrators.add(each.name)
        for key in rows.keys:
            self._keys.setdefault(key.principal, []).append(key)
            self._by_id[key.key_id] = self._by_digest[key.digest] = key

    def _administers(self, name: str) -> bool:
        return name in self._administrators and not all(is_over(key.expires_at) for key in self.keys_of(name))


def is_over(end: datetime | None) -> bool:
    """Whether a time has come; ``None`` never does."""
    return end is not None and end <= datetime.now(UTC)
