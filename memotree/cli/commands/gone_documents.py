"""Finds documents that were ingested from a folder before and whose files are no longer in it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memotree.cli.terminal.output import counted

if TYPE_CHECKING:
    from memotree.cli.context import CliContext
    from memotree.client.document_files import DocumentFile

_MOST_NAMED: Final = 3


def gone_documents(paths: Iterable[str], files: "Iterable[DocumentFile]", known: Mapping[str, str]) -> list[str]:
    """The archives of documents of the given folders that have no file there any more, in order.

    Names are compared only where they surely mean this folder: a file of it that is known shows what stands before the
    names of its other files. A file that is there but was left out is not gone.

    Args:
        paths: The files and folders that were given.
        files: The files that were found, under the names of their documents.
        known: The name of the archive of each document by the document's id.
    """
    folders = [folder for folder in map(Path, paths) if folder.is_dir()]
    named = [(each.path.absolute(), each.name) for each in files if each.name in known]
    gone: set[str] = set()
    for folder in folders:
        root = folder.absolute()
        inside = {path.relative_to(root).as_posix(): name for path, name in named if path.is_relative_to(root)}
        befores = {name.removesuffix(rest) for rest, name in inside.items() if name.endswith(f"/{rest}")}
        for before in befores:
            gone.update(
                archive
                for name, archive in known.items()
                if name.startswith(before) and not (root / name.removeprefix(before)).exists()
            )
    return sorted(gone)


def tell_gone(cli: "CliContext", archives: list[str]) -> None:
    """Says which documents have no file any more, and how one is forgotten."""
    if not archives:
        return
    more = f" and {len(archives) - _MOST_NAMED:,} more" if len(archives) > _MOST_NAMED else ""
    are = "is" if len(archives) == 1 else "are"
    cli.output.note(
        f"{counted(len(archives), 'document')} {are} no longer in this folder: {', '.join(archives[:_MOST_NAMED])}"
        f"{more}. In a session, `memotree archive delete NAME` and `memotree commit` forget one."
    )
