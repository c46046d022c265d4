"""``memotree serve``, ``memotree mcp`` and ``memotree demo``: start servers."""

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.context import NOWHERE, CliContext, command
from memotree.cli.errors import StartError
from memotree.cli.target import find_address
from memotree.extras import install, is_installed

if TYPE_CHECKING:
    from memotree.server.app import MakeSideServer
    from memotree.server.starting import ImportSideServer
    from memotree.settings import Settings


def _folder(text: str) -> Path:
    """The given folder; refuses an empty name, which would mean the working folder by accident."""
    if not str(text).strip():
        raise typer.BadParameter("it is empty; give the path of a folder.")
    return Path(text)


@command("serve", NOWHERE)
def serve(
    cli: CliContext,
    data: Annotated[
        Path | None,
        typer.Option("--data", parser=_folder, metavar="PATH", help="The data folder.", show_default=False),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; loopback only.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes any free one.")] = None,
    http_port: Annotated[
        int | None, typer.Option(help="The port for HTTP and MCP; the next one when not given, 0 takes any free one.")
    ] = None,
    http: Annotated[bool | None, typer.Option("--http/--no-http", help="Whether to serve HTTP and MCP.")] = None,
    log_level: Annotated[str | None, typer.Option(help="The lowest level that is logged.")] = None,
) -> None:
    """Start the server on embedded stores and serve gRPC, HTTP and MCP until Ctrl-C."""
    # only the commands that serve load pydantic, gRPC and the stores
    gc.disable()  # imports make many objects and little garbage; `starting` collects again
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - see above

    from memotree.settings import read_settings  # noqa: PLC0415 - see above

    try:
        reread = partial(
            read_settings,
            data_folder=data,
            host=host,
            port=port,
            http_port=http_port,
            http_enabled=http,
            log_level=log_level,
        )
        settings = reread().settings
        from memotree.server.preflight import check_before_start  # noqa: PLC0415 - wrong settings are told before this

        check_before_start(settings)
        from memotree.server import starting  # noqa: PLC0415 - takes longer: see `preflight`

        starting.serve(
            settings,
            lambda server: _tell(cli, settings, server.address, server.url),
            _side_server(cli) if settings.http_enabled else None,
            reread,
        )
    except MemoTreeError as error:
        raise StartError(error.message) from None
    finally:
        gc.enable()


def _side_server(cli: CliContext) -> "ImportSideServer | None":
    """Imports the server for HTTP and MCP; ``None`` if its libraries are not installed."""
    if not is_installed("mcp"):
        cli.output.note(f"HTTP and MCP are not served; to serve them: {install('mcp')}")
        return None
    return _http_server


def _http_server() -> "MakeSideServer":
    from memotree.gateways.http_server import HttpServer  # noqa: PLC0415 - as in `serve`

    return HttpServer


def _tell(cli: CliContext, settings: "Settings", address: str, url: str) -> None:
    """Prints the address of the server once it listens; a log for programs has it already."""
    folder = settings.data_folder
    facts = {"address": address, "pid": os.getpid(), "data_folder": str(folder), "url": url or None}
    cli.output.show(facts, lambda: None)
    sys.stdout.flush()
    if settings.log_format == "json":
        return
    if url:
        cli.output.note(f"Agents reach it over MCP at {url}/mcp.")
    if find_address("") != address:
        cli.output.note(f"Commands in other terminals find it by MEMOTREE_ADDRESS={address}.")
    cli.output.done(f"MemoTree serves at {address}; its data is in {folder}. Ctrl-C stops it.")


@command("mcp", NOWHERE)
def mcp(
    cli: CliContext,
    data: Annotated[
        Path | None,
        typer.Option("--data", parser=_folder, metavar="PATH", help="The data folder.", show_default=False),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar="MEMOTREE_WORKSPACE",
            help="The workspace of calls that name none, created if needed; by default that of the settings (main).",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            "--address",
            envvar="MEMOTREE_ADDRESS",
            help="Host and port of a server; when not given, the one on the data folder, else a private one.",
        ),
    ] = "",
    tools: Annotated[
        str | None,
        typer.Option(
            help="The tools to offer: everyday (those of an agent's day, the default), all, or names, with commas.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve MCP over standard input and output, for an agent that starts this command itself."""
    del cli  # standard output belongs to the protocol
    gc.disable()  # as in `serve`; `serve_stdio` collects again
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - as in `serve`

    from memotree.settings import load_settings  # noqa: PLC0415 - as in `serve`

    try:
        settings = load_settings(data_folder=data, default_workspace=workspace, mcp_tools=tools)
        import uvloop  # noqa: PLC0415 - as in `serve`

        from memotree.gateways.stdio import ServerChoice, serve_stdio  # noqa: PLC0415 - as in `serve`

        uvloop.run(serve_stdio(ServerChoice(settings, address)))
    except MemoTreeError as error:
        raise StartError(error.message) from None
    finally:
        gc.enable()


@command("demo", NOWHERE)
def demo(
    cli: CliContext,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            parser=_folder,
            metavar="PATH",
            help="The folder for its data, recreated each time; memotree-demo in your data folder when not given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what MemoTree is for, in half a minute: facts, a correction, the past, a branch, documents."""
    from memotree.cli.demo import run_demo  # noqa: PLC0415 - only this command needs it

    run_demo(cli, data)
