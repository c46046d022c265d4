"""A row of the outbox; apart from its statements, since the feature worker reads rows and needs no database."""

from typing import NamedTuple


class Pending(NamedTuple):
    """A row of the outbox, with the fields of its version that the index needs. A tuple: thousands go to the worker.

    ``changed`` says that the version has ended or was overridden, and is not new; ``overrides`` has a pair of line
    number and seq for each line that hides it.
    """

    outbox_id: int
    changed: bool
    counted: bool
    entry_id: str
    blob: str
    archive_id: str
    type: str
    tags: list[str]
    tokens: int
    commit_id: str
    line_id: int
    from_seq: int
    to_seq: int | None
    version_id: int
    overrides: list[list[int]]
