"""What a backup holds: the list at its end, which names every file in it by its hash, and the backup it builds on."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from memotree_storage.errors import CorruptError
from memotree_storage.model.node import is_id

FORMAT: Final = 2
"""The format of a backup file. Format 1 had neither rows of PostgreSQL nor a backup to build on."""

_OLDEST: Final = 1
_TABLE: Final = re.compile(r"[a-z_]{1,60}")


class BackupDamagedError(CorruptError):
    """The file is not a whole backup."""

    reason = "BACKUP_DAMAGED"

    def __init__(self, why: str) -> None:
        super().__init__(f"This is not a whole backup: {why}. Nothing was changed; use another backup.")


@dataclass(frozen=True, slots=True)
class SavedTable:
    """Rows of a table of the schema ``work``, in the text format of COPY.

    Attributes:
        table: The name of the table.
        columns: The columns, in the order of the file.
        file: The name of the file in the backup.
        rows: How many rows it has.
        bytes: Its size.
        sha256: Its hash.
    """

    table: str
    columns: tuple[str, ...]
    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedWorkspace:
    """A workspace in a backup.

    Attributes:
        id: Its id.
        name: Its name at the time of the backup.
        bundle: The name of its bundle in the file; "" if nothing has changed since the backup that this one builds on.
        bytes: The size of the bundle.
        sha256: The hash of the bundle.
        refs: All its branches, tags and other refs with the ids of their objects.
        complete: Whether the bundle has all objects, and not only those that the earlier backups lack.
        tables: Its rows of the schema ``work``; ``None`` if PostgreSQL did not answer, or format 1.
    """

    id: str
    name: str
    bundle: str
    bytes: int
    sha256: str
    refs: dict[str, str]
    complete: bool = True
    tables: tuple[SavedTable, ...] | None = None


@dataclass(frozen=True, slots=True)
class BackupList:
    """The list of a backup.

    Attributes:
        workspaces: The workspaces.
        created_at: When the backup was begun.
        memotree: The version of MemoTree that made it.
        since: The hash of the list of the backup that this one builds on; "" for a whole backup.
        work_format: The format of the schema ``work``.
        sha256: The hash of this list.
    """

    workspaces: tuple[SavedWorkspace, ...]
    created_at: datetime
    memotree: str = ""
    since: str = ""
    work_format: int = 0
    sha256: str = field(default="", compare=False)

    def of(self, workspace_id: str) -> SavedWorkspace | None:
        """The workspace with this id; ``None`` if the backup lacks it."""
        return next((each for each in self.workspaces if each.id == workspace_id), None)


def encode_list(listed: BackupList) -> bytes:
    """The list as a file: JSON that a person can read."""
    fields = {
        "format": FORMAT,
        "memotree": listed.memotree,
        "created_at": listed.created_at.isoformat(timespec="seconds"),
        "since": listed.since,
        "work_format": listed.work_format,
        "workspaces": [asdict(each) for each in listed.workspaces],
    }
    try:
        return (json.dumps(fields, ensure_ascii=False, indent=2) + "\n").encode()
    except UnicodeEncodeError:  # the name of a ref need not be UTF-8
        return (json.dumps(fields, indent=2) + "\n").encode()


def parse_list(text: bytes) -> BackupList:
    """The list in a file.

    Raises:
        BackupDamagedError: It is none, or of a later version of MemoTree.
    """
    try:
        found = json.loads(text)
        if found["format"] not in range(_OLDEST, FORMAT + 1):
            raise BackupDamagedError(f"it has format {found['format']}, and this version of MemoTree knows {FORMAT}")
        return BackupList(
            tuple(_workspace(each) for each in found["workspaces"]),
            datetime.fromisoformat(found["created_at"]),
            found["memotree"],
            found.get("since", ""),
            found.get("work_format", 0),
            hashlib.sha256(text).hexdigest(),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BackupDamagedError(str(error).strip("'\"") or type(error).__name__) from error


def _workspace(found: dict[str, Any]) -> SavedWorkspace:
    if not is_id(found["id"]):  # it becomes the name of a folder
        raise BackupDamagedError(f"{found['id']!r} is not the id of a workspace")
    refs = found["refs"]
    if not all(isinstance(each, str) for each in (found["name"], found["bundle"], *refs, *refs.values())):
        raise BackupDamagedError("a name or an id in its list is no text")
    tables = found.pop("tables", None)
    return SavedWorkspace(**found, tables=None if tables is None else tuple(map(saved_table, tables)))


def saved_table(found: dict[str, Any]) -> SavedTable:
    """A table in a list.

    Raises:
        BackupDamagedError: It has no name that a table of ours can have.
    """
    table = SavedTable(**{**found, "columns": tuple(found["columns"])})
    for name in (table.table, *table.columns):
        if not _TABLE.fullmatch(name):  # it becomes the name of a file
            raise BackupDamagedError(f"{name!r} is no table and no column")
    return table
