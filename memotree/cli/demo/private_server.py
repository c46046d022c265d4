"""The demo's private server: started on a new folder, found by its announcement, stopped at the end."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from memotree.cli.errors import StartError
from memotree.local.errors import ServerStartError
from memotree.local.server_process import ServerProcess, announced_process_lives

_MARKER: Final = ".memotree-demo"
_LOG: Final = "demo-server.log"


class NotADemoFolderError(StartError):
    """The folder contains files that the demo did not make and must not delete."""

    reason = "NOT_A_DEMO_FOLDER"


def default_folder() -> Path:
    """The folder ``memotree-demo`` below the user's data folder, next to that of the user's own server."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "memotree-demo"


def fresh_folder(folder: Path) -> Path:
    """Makes ``folder`` an empty folder; deletes the data of an earlier demo, and refuses any other content."""
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not (folder / _MARKER).exists():
            raise NotADemoFolderError(
                f"{folder} contains files that are not from a demo; name an empty folder with --data."
            )
        if announced_process_lives(folder):
            raise NotADemoFolderError(f"A server still uses {folder}; stop it first, or name another folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()
    return folder


@contextmanager
def server_on(folder: Path) -> Iterator[str]:
    """Runs a server on ``folder`` with default settings; yields its address."""
    server = ServerProcess.start(
        [sys.executable, "-m", "memotree.cli", "serve", "--data", str(folder), "--port", "0"],
        folder=folder,
        log=folder / _LOG,
        name="The server of the demo",
        environment={name: value for name, value in os.environ.items() if not name.startswith("MEMOTREE_")},
        working_folder=folder,  # so that it does not read a memotree.toml of this process's working folder
    )
    try:
        try:
            address = server.address()
        except ServerStartError as error:
            raise StartError(error.message) from None
        yield address
    finally:
        server.stop()
