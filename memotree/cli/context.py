"""The desk a command works at: the server, workspace and session it means, and where it prints.

``@command`` puts a function on the command line: it adds the options that name the place to those of the function's own
parameters, gives it a ``CliContext`` as its first argument, and turns errors into sentences and exit codes.
"""

import inspect
import os
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from memotree.cli import completion
from memotree.cli.errors import (
    CliError,
    ExitCode,
    NoSessionError,
    NoWorkspaceError,
    tell_cli_error,
    tell_client_error,
)
from memotree.cli.output import Output
from memotree.cli.target import Choice, find_address, read_choice, write_choice
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from memotree.client import Client, MemoTreeClientError, Revision, Session, Workspace

_PANEL: Final = "Where"
_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "workspace": (
        Annotated[
            str,
            typer.Option(
                "--workspace",
                "-w",
                envvar="MEMOTREE_WORKSPACE",
                help="Name or id of the workspace; the chosen one when not given.",
                autocompletion=completion.workspaces,
                rich_help_panel=_PANEL,
            ),
        ],
        "",
    ),
    "session": (
        Annotated[
            str,
            typer.Option(
                "--session",
                "-s",
                envvar="MEMOTREE_SESSION",
                help="The session; the chosen one when not given.",
                autocompletion=completion.sessions,
                rich_help_panel=_PANEL,
            ),
        ],
        "",
    ),
    "at": (
        Annotated[
            str,
            typer.Option(
                "--at",
                help="Read at a branch, tag, commit or session; in the chosen session, else at the default branch, "
                "when not given.",
                autocompletion=completion.revisions,
                rich_help_panel=_PANEL,
            ),
        ],
        "",
    ),
    "address": (
        Annotated[
            str,
            typer.Option(
                "--address",
                envvar="MEMOTREE_ADDRESS",
                help="Host and port of the server; the one that runs on this machine when not given.",
                rich_help_panel=_PANEL,
            ),
        ],
        "",
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Print one JSON document; messages go to stderr.")],
        False,
    ),
}

PATIENCE_SECONDS: Final = 300.0
"""How long a call may take: a person can stop it with Ctrl-C; a large commit may need its time."""

NOWHERE: Final = ("as_json",)
SERVER: Final = ("address", "as_json")
WORKSPACE: Final = ("workspace", *SERVER)
SESSION: Final = ("session", *WORKSPACE)
REVISION: Final = ("at", *SESSION)


@dataclass
class CliContext:
    """What a command works with; the server is called only when something of it is asked for."""

    workspace_option: str = ""
    session_option: str = ""
    at: str = ""
    address_option: str = ""
    as_json: bool = False
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        self.output = Output(as_json=self.as_json)

    @cached_property
    def address(self) -> str:
        """The server that is meant."""
        return find_address(self.address_option)

    @cached_property
    def choice(self) -> Choice:
        """The workspace and session that are meant: those of the flags before those chosen earlier.

        A session belongs to its workspace: naming another workspace leaves the chosen session out.
        """
        chosen = read_choice(self.address)
        workspace = self.workspace_option or chosen.workspace
        session = self.session_option or (chosen.session if workspace == chosen.workspace else "")
        return Choice(workspace, session)

    @cached_property
    def client(self) -> "Client":
        """The connection to the server; its warnings go to stderr."""
        from memotree.client import Client  # noqa: PLC0415 - `--help` and usage errors need no gRPC

        return Client(
            self.address, timeout=PATIENCE_SECONDS, on_warning=lambda text: self.output.warn(in_commands(text))
        )

    @property
    def workspace(self) -> "Workspace":
        """The workspace that is meant."""
        if not self.choice.workspace:
            self._see_server()
            raise NoWorkspaceError
        return self.client.workspace(self.choice.workspace)

    @property
    def session(self) -> "Session":
        """The session that changes go to."""
        workspace = self.workspace
        if not self.choice.session:
            self._see_server()
            raise NoSessionError
        return workspace.resume(self.choice.session)

    def _see_server(self) -> None:
        """Fails when no server answers: that comes before a choice, which can only be made with one."""
        self.client.status()

    @property
    def here(self) -> "Revision":
        """The state that is read: that of ``--at``, else the session's, else the default branch's."""
        return self.workspace.at(self.at or self.choice.session)

    def choose(self, choice: Choice) -> None:
        """Notes a choice for the commands to come."""
        write_choice(self.address, choice)

    def close(self) -> None:
        """Gives the connection up, if there is one."""
        if "client" in self.__dict__:
            self.client.close()

    def hint(self, error: "MemoTreeClientError") -> str:
        """What a person may not see: that the session came from an earlier choice."""
        session = self.choice.session
        if session and not self.session_option and session in error.message:
            return "The session was chosen by an earlier command; `memotree session use --none` forgets it."
        return ""


def command(
    app: typer.Typer, name: str, place: tuple[str, ...] = REVISION
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Puts a function whose first parameter is a ``CliContext`` on the command line, with the options of ``place``."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        hints = typing.get_type_hints(function, include_extras=True)

        def call(**values: Any) -> None:
            given = {each: values.pop(each) for each in place}
            _run(_context(given), lambda cli: function(cli, **values))

        shown = [each.replace(annotation=hints[each.name]) for each in parameters]
        shown += [
            inspect.Parameter(
                each, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[each][1], annotation=_OPTIONS[each][0]
            )
            for each in place
        ]
        keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
        call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined] # what inspect reads
        call.__annotations__ = {each.name: each.annotation for each in shown}
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        app.command(name)(call)
        return function

    return register


def _context(given: dict[str, Any]) -> CliContext:
    return CliContext(
        workspace_option=given.get("workspace", ""),
        session_option=given.get("session", ""),
        at=given.get("at", ""),
        address_option=given.get("address", ""),
        as_json=given["as_json"],
    )


def _client_error() -> type[Exception]:
    """The base of the client's errors, if the client was ever imported; else nothing can have raised one."""
    module = sys.modules.get("memotree.client.errors")
    kind: type[Exception] = module.MemoTreeClientError if module else CliError
    return kind


def _run(cli: CliContext, work: Callable[[CliContext], None]) -> None:
    """Does the work of a command; errors that are meant for people end it with a sentence and an exit code."""
    try:
        work(cli)
        sys.stdout.flush()
    except CliError as error:
        raise typer.Exit(tell_cli_error(cli.output, error)) from None
    except typer.Abort:  # Ctrl-C at a prompt, which ends a command as it does anywhere else
        cli.output.note("\nStopped; nothing was changed.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:  # the reader of our output has seen enough, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:
        if not isinstance(error, _client_error()):
            raise
        told: Any = error
        raise typer.Exit(tell_client_error(cli.output, told, cli.hint(told))) from None
    finally:
        cli.close()
