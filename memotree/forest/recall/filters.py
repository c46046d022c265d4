"""The filter of a recall, resolved in the snapshot that is read."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil, inf

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.attribute_names import TIME
from memotree_storage.model.times import read_time
from memotree_storage.model.validity import LAST, period
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import Snapshot

from memotree.forest.recall.superseded import Superseded
from memotree.request import lookup
from memotree.v1 import forest_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions that nodes must meet; ``archive_ids=None`` and ``scope_id=""`` mean no condition.

    ``since`` (inclusive) and ``until`` (exclusive) are compared with a node's attribute `time`, else with the time of
    the commit that made its version. A change that is not committed yet is later than any time.

    ``moment`` is the day whose facts are wanted, in seconds since 1970. A node that does not hold any more then is not
    admitted, unless ``with_outdated``; one that does not hold yet is not admitted if ``is_dated``: the caller gave the
    day.
    """

    archive_ids: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    scope_id: str = ""
    moment: float = field(default_factory=time.time)
    is_dated: bool = False
    with_outdated: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether the filter has a condition on times."""
        return self.since is not None or self.until is not None

    @property
    def admits_all(self) -> bool:
        """Whether the filter admits every node of its archives."""
        return not (self.is_timed or self.tags or self.types or self.scope_id)

    def admits(self, version: Version, ended: Superseded | None) -> bool:
        """Whether the filter admits a version; ignores the scope.

        Args:
            version: The version.
            ended: Its end if it is superseded.
        """
        return (
            (self.archive_ids is None or version.archive_id in self.archive_ids)
            and (not self.types or version.type in self.types)
            and self.tags <= set(version.tags)
            and self.admits_time(version.attributes.get(TIME, ""), version.committed_at)
            and self.admits_validity(version.attributes, ended)
        )

    def admits_validity(self, attributes: Mapping[str, str], ended: Superseded | None) -> bool:
        """Whether a node with these attributes, that is superseded or is not, holds as the filter demands."""
        if self.with_outdated:
            return True
        begin, end = period(attributes)
        if ended is not None:
            end = min(end, -inf if ended.is_over and not self.is_dated else ended.at)
        return end > self.moment and (not self.is_dated or begin <= self.moment)

    def admits_time(self, written: str, committed_at: datetime | None) -> bool:
        """Whether the filter admits a node by its attribute `time` and the time of its commit (``None`` if staged)."""
        if not self.is_timed:
            return True
        when = read_time(written) or committed_at
        if when is None:
            return self.until is None
        return (self.since is None or when >= self.since) and (self.until is None or when < self.until)


async def read_filter(
    snapshot: Snapshot, given: pb.RecallFilter, archives: Sequence[ArchiveVersion], moment: float | None = None
) -> Filter:
    """Reads and resolves the filter of a request.

    Args:
        snapshot: The snapshot that is read.
        given: The filter in the request.
        archives: All archives of the snapshot.
        moment: The time at which nodes must hold unless the request names one, in seconds since 1970; now if ``None``.

    Raises:
        ArchiveNotFoundError: If one of the archives does not exist.
        NodeNotFoundError: If the scope node does not exist.
        InvalidInputError: If a time cannot be parsed, or ``until`` is not after ``since``.
    """
    since, until = _moment("filter.since", given.since), _moment("filter.until", given.until)
    valid_at = _moment("filter.valid_at", given.valid_at)
    if since is not None and until is not None and since >= until:
        raise InvalidInputError.at("filter.until", "must be after filter.since; no node can match otherwise.")
    wanted: set[str] | None = None
    if given.archives:
        wanted = {
            lookup.archive_among(archives, text, f"filter.archives[{number}]").entry_id
            for number, text in enumerate(given.archives)
        }
    if given.model_id:
        of_model = {one.entry_id for one in archives if one.model_id == given.model_id}
        wanted = of_model if wanted is None else wanted & of_model
    scope_id = ""
    if given.scope_node_id:
        scope = await lookup.node(snapshot, given.scope_node_id, "filter.scope_node_id")
        scope_id, home = scope.entry_id, {scope.archive_id}
        wanted = home if wanted is None else wanted & home
    return Filter(
        None if wanted is None else frozenset(wanted),
        frozenset(given.tags),
        frozenset(given.node_types),
        since,
        until,
        scope_id,
        (_now() if moment is None else moment) if valid_at is None else min(valid_at.timestamp(), LAST),
        valid_at is not None,
        given.include_outdated,
    )


async def scope_ids(snapshot: Snapshot, wanted: Filter) -> set[str] | None:
    """Returns the ids of the nodes in the filter's scope, or ``None`` if it has no scope."""
    if not wanted.scope_id:
        return None
    return {item.entry_id for item in await tree.subtree(snapshot, [wanted.scope_id])}


def _now() -> float:
    """The time in seconds since 1970, rounded up to microseconds, as a receipt has it."""
    return ceil(time.time() * 1e6) / 1e6


def _moment(field: str, text: str) -> datetime | None:
    if not text:
        return None
    found = read_time(text)
    if found is None:
        raise InvalidInputError.at(field, f"{text[:60]!r} is not a time; write 2023-05-08 or 2023-05-08T13:56:00Z.")
    return found
