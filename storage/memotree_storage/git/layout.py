"""The folder of a bare repository: created in one step, checked when it is opened."""

import errno
import secrets
import shutil
from pathlib import Path
from typing import Final

from dulwich.config import ConfigFile

from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from memotree_storage.git.disk import disk_errors, make_folders, sync_folder, sync_tree
from memotree_storage.git.locks import PRIVATE_FOLDER

_HEAD: Final = "ref: refs/heads/main\n"

_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tquotePath = false
\tfsync = all
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tautogc = false
\tfsckObjects = true
\thideRefs = refs/memotree
[repack]
\twriteBitmaps = false
\tupdateServerInfo = false
"""
"""No program may collect garbage here on its own: a plain ``git repack -a -d`` drops a pack whose ref is about to move.
``core.fsync`` makes a push by git as durable as our commits; ``fsckObjects`` refuses malformed objects.
``hideRefs`` refuses pushes to what MemoTree itself keeps in refs, such as the description of the workspace; all of it
can be cloned. ``core.quotePath`` lets git print titles in other scripts than Latin as they are."""

_FOLDERS: Final = ("objects/info", "objects/pack", "refs/heads", "refs/tags", f"{PRIVATE_FOLDER}/locks")


class RepositoryExistsError(AlreadyExistsError):
    """There is already something at the path of the new repository."""

    reason = "REPOSITORY_EXISTS"


class RepositoryMissingError(NotFoundError):
    """There is no repository at this path."""

    reason = "REPOSITORY_MISSING"


class RepositoryFormatError(FailedPreconditionError):
    """The repository has a format that this version does not support."""

    reason = "REPOSITORY_FORMAT"


def create_layout(path: Path, description: str) -> None:
    """Create a bare repository at ``path``: built next to it, synced and renamed, so it exists whole or not at all.

    Raises:
        RepositoryExistsError: ``path`` exists already (an empty folder is replaced).
    """
    with disk_errors("be created"):
        make_folders(path.parent.absolute(), Path(path.absolute().anchor))
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
        try:
            _fill(draft, description)
            _rename(draft, path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(path.parent)


def _fill(folder: Path, description: str) -> None:
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text(_HEAD, encoding="ascii")
    (folder / "config").write_text(_CONFIG, encoding="ascii")
    (folder / "description").write_text(" ".join(description.split()) + "\n", encoding="utf-8")
    sync_tree(folder)


def _rename(draft: Path, path: Path) -> None:
    try:
        draft.rename(path)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise
        message = f"There is already something at the path of repository {path.name!r}; choose another name."
        raise RepositoryExistsError(message, "repository", path.name) from error


def check_layout(path: Path) -> None:
    """Check that ``path`` is a repository that this code can read and write.

    Raises:
        RepositoryMissingError: It is not a repository.
        RepositoryFormatError: Its object format is not SHA-1, or its refs are not stored in files.
    """
    with disk_errors("be opened"):
        if not all((path / name).exists() for name in ("HEAD", "config", "objects", "refs")):
            message = f"There is no Git repository named {path.name!r} here; create it, or check the data folder."
            raise RepositoryMissingError(message, "repository", path.name)
        config = ConfigFile.from_path(str(path / "config"))
    formats = {
        (b"objectformat", b"sha1"): "object format",
        (b"refstorage", b"files"): "ref storage",
    }
    for (key, expected), called in formats.items():
        try:
            found = config.get((b"extensions",), key)
        except KeyError:
            continue
        if found.lower() != expected:
            message = (
                f"Repository {path.name!r} has the {called} {found.decode(errors='replace')!r}, and MemoTree works "
                f"with {expected.decode()!r}; convert it with git first."
            )
            raise RepositoryFormatError(message)
