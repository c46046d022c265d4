"""``memotree serve`` and ``memotree demo``: starting servers."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from memotree.cli.desk import NOWHERE, Desk, command
from memotree.cli.errors import StartError


def _folder(text: str) -> Path:
    """The folder that is named; an empty name would be the working folder, which nobody meant."""
    if not str(text).strip():
        raise typer.BadParameter("it names no folder; give the path of one.")
    return Path(text)


def serve(
    desk: Desk,
    data: Annotated[
        Path | None,
        typer.Option("--data", parser=_folder, metavar="PATH", help="The data folder.", show_default=False),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; loopback only.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes any free one.")] = None,
    log_level: Annotated[str | None, typer.Option(help="The least level that is logged.")] = None,
) -> None:
    """Start the server on embedded stores, until Ctrl-C."""
    # pydantic, gRPC and the stores are only loaded by the one command that serves
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - see above

    from memotree.server import compose  # noqa: PLC0415 - see above
    from memotree.settings import load_settings  # noqa: PLC0415 - see above

    try:
        settings = load_settings(data_folder=data, host=host, port=port, log_level=log_level)
        compose.serve(settings, lambda server: _tell(desk, settings.data_folder, server.address))
    except MemoTreeError as error:
        raise StartError(error.message) from None


def _tell(desk: Desk, folder: Path, address: str) -> None:
    """Says where the server listens, as soon as it does."""
    desk.output.show({"address": address, "pid": os.getpid(), "data_folder": str(folder)}, lambda: None)
    sys.stdout.flush()
    desk.output.done(f"MemoTree serves at {address}; its data is in {folder}. Ctrl-C stops it.")


def demo(
    desk: Desk,
    data: Annotated[
        Path,
        typer.Option("--data", parser=_folder, metavar="PATH", help="Where its data goes; made anew each time."),
    ] = Path("data/demo"),
) -> None:
    """Do the main job on real input: the Python language reference."""
    from memotree.cli.demo import run_demo  # noqa: PLC0415 - one command needs it

    run_demo(desk, data)


def register(app: typer.Typer) -> None:
    """Puts the commands of this module on the command line."""
    command(app, "serve", NOWHERE)(serve)
    command(app, "demo", NOWHERE)(demo)
