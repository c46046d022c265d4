"""What an export to a folder of Markdown, and an import from one, did."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MarkdownExport:
    """What was exported.

    Attributes:
        folder: Where it is.
        commit_id: The commit that the files show.
        archives: How many archives there are.
        nodes: How many nodes there are.
    """

    folder: str
    commit_id: str
    archives: int
    nodes: int


@dataclass(frozen=True, slots=True)
class MarkdownEdit:
    """One thing that an import changes.

    Attributes:
        kind: ``create``, ``update``, ``move`` or ``delete``.
        id: The node or archive.
        title: Its title, or name.
        file: The file that says so; empty for a deletion.
        fields: What an update changes.
        is_archive: Whether it is an archive.
    """

    kind: str
    id: str
    title: str
    file: str = ""
    fields: tuple[str, ...] = ()
    is_archive: bool = False


@dataclass(frozen=True, slots=True)
class MarkdownImport:
    """What an import changed, or would change.

    Attributes:
        file_format: What the folder was read as: ``export``, ``plain``, ``basic-memory`` or ``letta``.
        edits: What changes.
        commit_id: The commit on the branch; empty for a preview, without changes, and with conflicts that are kept.
        base_commit_id: The commit that the folder was compared with.
        is_behind: Whether the branch has moved since that commit, so that the edits are merged into it.
        missing: What the folder does not have any more, and what was kept nevertheless.
        session_id: The session that keeps the conflicts; empty without.
        conflict_count: How many conflicts it keeps.
        warnings: What was left out, as sentences.
    """

    file_format: str
    edits: Sequence[MarkdownEdit] = ()
    commit_id: str = ""
    base_commit_id: str = ""
    is_behind: bool = False
    missing: Sequence[MarkdownEdit] = ()
    session_id: str = ""
    conflict_count: int = 0
    warnings: Sequence[str] = ()
