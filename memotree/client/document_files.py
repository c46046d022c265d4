"""Finds the files to ingest: the files that are named, and the documents in the folders that are named.

In a folder, what is hidden, ignored by ``.gitignore``, empty or no text is left out, as ripgrep does it. Links to
folders are not followed, so a loop of links cannot be entered. A file that is named itself is always taken.
"""

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from memotree.client.document_names import name_before, name_in_folder, name_of_file, shortened, whole

HIDDEN: Final = "hidden"
IGNORED: Final = "ignored by .gitignore"
EMPTY: Final = "empty"
NO_TEXT: Final = "not text"
FOLDER_LINK: Final = "a link to a folder"
FILE_LINK: Final = "a link to a file"
"""It may lead out of the folder, and what it leads to has a name of its own; who wants it names it."""
NO_FILE: Final = "not a file"
UNREADABLE: Final = "not readable"

_LOOKED_AT: Final = 8192
"""How many bytes at the beginning of a file are checked to decide whether it is text."""
_IGNORE_FILE: Final = ".gitignore"
_REPOSITORY: Final = ".git"
_NOT_TEXT: Final = (".docx", ".docm", ".epub", ".gz", ".pdf")
"""How the names of documents end whose first bytes do not look like text; a damaged one is an error that is told."""


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file to ingest.

    Attributes:
        path: Where it is.
        shown: The path to show: as it was given, or below the folder as it was given.
        name: The id of its document, and the name of its archive if that is new.
        archive_name: The name that its archive gets even if it is not new, or ``""``.
        content: The content, if it was read already.
    """

    path: Path
    shown: str
    name: str
    archive_name: str = ""
    content: bytes | None = None

    def read(self) -> bytes:
        """Returns the content.

        Raises:
            OSError: If the file cannot be read.
        """
        return self.path.read_bytes() if self.content is None else self.content


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that was left out, and why; nothing is said about what is below such a folder."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files to ingest, each once and in order, and what was left out of the folders."""

    files: Sequence[DocumentFile] = ()
    left_out: Sequence[LeftOut] = ()

    def named(self, known: Container[str], prefix: str = "") -> "FoundFiles":
        """Returns the same files with the names under which they are known already.

        Args:
            known: The ids of the documents that exist.
            prefix: Put before the names of the files, such as ``"handbook/"``.
        """
        if prefix:
            return replace(self, files=[replace(each, name=shortened(prefix + each.name)) for each in self.files])
        files = [
            replace(each, name=name_before(whole(str(each.path)), shortened(each.name), known)) for each in self.files
        ]
        return replace(self, files=files)

    @property
    def same_names(self) -> dict[str, list[str]]:
        """The names that several of the files have, each with their paths."""
        count = Counter(each.name for each in self.files)
        return {
            name: [each.shown for each in self.files if each.name == name] for name, times in count.items() if times > 1
        }


@dataclass(slots=True)
class _Search:
    """The files found so far, by the file that they really are."""

    hidden: bool
    ignored: bool
    files: dict[str, DocumentFile] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def take(self, path: Path, shown: str, name: str) -> None:
        self.files.setdefault(os.path.realpath(path), DocumentFile(path, shown, name))

    def leave(self, shown: str, why: str) -> None:
        self.left_out.append(LeftOut(shown, why))


def find_files(paths: Iterable[str | Path], *, hidden: bool = False, ignored: bool = False) -> FoundFiles:
    """Finds the files to ingest.

    Args:
        paths: Files and folders.
        hidden: Whether to take hidden files and folders, too.
        ignored: Whether to take what ``.gitignore`` files exclude, too.

    Raises:
        FileNotFoundError: If a path does not exist.
    """
    search = _Search(hidden, ignored)
    for given in paths:
        path = Path(given)
        if path.is_dir():
            _search_folder(search, path)
        elif path.exists():
            search.take(path, path.as_posix(), name_of_file(whole(str(path))))
        else:
            raise FileNotFoundError(f"{given} does not exist; name a file or a folder.")
    return FoundFiles(list(search.files.values()), search.left_out)


def _search_folder(search: _Search, folder: Path) -> None:
    top = whole(str(folder))
    rules = {} if search.ignored else _rules_above(top)
    for here, folders, files in os.walk(folder, onerror=lambda error: _unreadable(search, error)):
        at = whole(here)
        if not search.ignored and _IGNORE_FILE in files:
            rules[at] = _read_rules(Path(here))
        kept = []
        for name in sorted(folders):
            why = FOLDER_LINK if (Path(here) / name).is_symlink() else _why_not(search, rules, at, f"{name}/")
            if why:
                search.leave((Path(here) / name).as_posix(), why)
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            path = Path(here) / name
            why = _why_not(search, rules, at, name) or _why_unreadable(path) or (FILE_LINK if path.is_symlink() else "")
            if why:
                search.leave(path.as_posix(), why)
            else:
                search.take(path, path.as_posix(), name_in_folder(top, f"{at}/{name}"))


def _unreadable(search: _Search, error: OSError) -> None:
    search.leave(Path(str(error.filename)).as_posix(), UNREADABLE)


def _why_not(search: _Search, rules: dict[str, GitIgnoreSpec], folder: str, name: str) -> str:
    """Returns why an entry of a folder is left out by its name, or ``""``; the name of a folder ends with a slash."""
    if name.startswith(".") and not search.hidden:
        return HIDDEN
    if name == f"{_REPOSITORY}/":
        return HIDDEN  # never a document, and it may have thousands of files
    return IGNORED if _is_ignored(rules, f"{folder}/{name}") else ""


def _is_ignored(rules: dict[str, GitIgnoreSpec], path: str) -> bool:
    """Whether the ignore file nearest to a path that says anything about it excludes it."""
    for folder in _folders_above(path):
        spec = rules.get(folder)
        verdict = spec.check_file(path.removeprefix(f"{folder}/")).include if spec is not None else None
        if verdict is not None:
            return verdict
    return False


def _folders_above(path: str) -> Iterator[str]:
    """Yields the folders above an absolute path, nearest first."""
    path = path.rstrip("/")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _rules_above(folder: str) -> dict[str, GitIgnoreSpec]:
    """Returns the rules of the ignore files above a folder, up to the top of its Git repository, if it is in one."""
    above = [folder, *_folders_above(folder)]
    top = next((index for index, each in enumerate(above) if Path(f"{each}/{_REPOSITORY}").exists()), 0)
    return {each: _read_rules(Path(each)) for each in above[1 : top + 1] if Path(f"{each}/{_IGNORE_FILE}").is_file()}


def _read_rules(folder: Path) -> GitIgnoreSpec:
    try:
        text = (folder / _IGNORE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return GitIgnoreSpec.from_lines([])
    return GitIgnoreSpec.from_lines(text.splitlines())


def _why_unreadable(path: Path) -> str:
    """Returns why a file does not look like a document, or ``""``.

    A file that may not be read looks like one: that it fails is an error, which the caller should hear of.
    """
    if not path.is_file():
        return NO_FILE
    try:
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT)
    except OSError:
        return ""
    if not head:
        return EMPTY
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16 has NUL bytes
    name = path.name.lower()
    holds_text = head.startswith(b"%PDF-") or (name.endswith(_NOT_TEXT) and not name.endswith(".tar.gz"))
    return "" if wide or holds_text or b"\0" not in head else NO_TEXT
