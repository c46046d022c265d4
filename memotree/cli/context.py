"""The context of a command: the server, workspace and session it uses, and its output.

``@command`` makes a function a command: it adds the options for server, workspace and session to the options from the
function's parameters, passes a ``CliContext`` as its first argument, and turns errors into messages and exit codes.
"""

import gc
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from memotree import environment
from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NoSuchNodeError, RevisionAsNodeError, full_id, named_parameters
from memotree.cli.arguments.revision_names import ALSO, revision, revision_parameters
from memotree.cli.errors import (
    CliError,
    ExitCode,
    NoSessionError,
    NoWorkspaceError,
    tell_cli_error,
    tell_client_error,
)
from memotree.cli.target import Choice, TargetUnknownError, find_address, find_key, read_choice, write_choice
from memotree.cli.terminal.examples import epilog, panel
from memotree.cli.terminal.help_pages import HelpfulCommand
from memotree.cli.terminal.output import Output
from memotree.cli.wording import in_commands, own_options

if TYPE_CHECKING:
    from memotree.client import Client, MemoTreeClientError, Revision, Session, Workspace

_PANEL: Final = "Where"

WORKSPACE_VARIABLE: Final = "MEMOTREE_WORKSPACE"
_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "workspace": (
        Annotated[
            str,
            typer.Option(
                "--workspace",
                "-w",
                envvar=WORKSPACE_VARIABLE,
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
                help="Read at this branch, tag, commit or session; when not given, in the chosen session, else at the "
                f"default branch. {ALSO}.",
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

FIRST_WORKSPACE: Final = "main"
"""The workspace that the first ``remember`` or ``ingest`` makes; also that of agents that name none."""

PATIENCE_SECONDS: Final = 300.0
"""How long a call may take. It is long since a large commit takes time and a person can stop it with Ctrl-C."""

NOWHERE: Final = ("as_json",)
SERVER: Final = ("address", "as_json")
WORKSPACE: Final = ("workspace", *SERVER)
SESSION: Final = ("session", *WORKSPACE)
REVISION: Final = ("at", *SESSION)


@dataclass
class CliContext:
    """The server, workspace, session and output of a command; the server is called only when it is needed."""

    workspace_option: str = ""
    session_option: str = ""
    at: str = ""
    address_option: str = ""
    as_json: bool = False
    calls_server: bool = True
    own_options: Mapping[str, str] = field(default_factory=dict)
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        self.output = Output(as_json=self.as_json)

    @cached_property
    def address(self) -> str:
        """The address of the server."""
        return find_address(self.address_option)

    @cached_property
    def choice(self) -> Choice:
        """The workspace and session of the command: those from the options, else those chosen earlier.

        A session belongs to its workspace, so naming another workspace ignores the chosen session.
        """
        chosen = read_choice(self.address)
        workspace = self.workspace_option or chosen.workspace
        session = self.session_option or (chosen.session if workspace == chosen.workspace else "")
        return Choice(workspace, session)

    @cached_property
    def client(self) -> "Client":
        """The connection to the server; its warnings go to stderr."""
        from memotree.client import Client  # noqa: PLC0415 - `--help` and usage errors need no gRPC

        collect_garbage()
        try:
            return Client(
                self.address,
                timeout=PATIENCE_SECONDS,
                on_warning=lambda text: self.output.warn(in_commands(text)),
                contract_names=True,  # `memotree.cli.wording` replaces them
                key=find_key(self.address),
            )
        except ValueError as error:  # a key in clear, or a file of MEMOTREE_TLS or MEMOTREE_CERTIFICATE
            raise TargetUnknownError(str(error)) from None

    @property
    def workspace(self) -> "Workspace":
        """The workspace of the command."""
        if not self.choice.workspace:
            self._see_server()
            raise NoWorkspaceError
        return self.client.workspace(self.choice.workspace)

    def workspace_or_first(self) -> "Workspace":
        """The chosen workspace; if none is, the first one, made if needed and chosen from now on."""
        if self.choice.workspace:
            return self.workspace
        from memotree.client import AlreadyExistsError  # noqa: PLC0415 - as in `client`

        try:
            self.client.create_workspace(FIRST_WORKSPACE)
        except AlreadyExistsError:
            self.output.note(f"No workspace was chosen; {FIRST_WORKSPACE} is from now on.")
        else:
            self.output.note(f"The workspace {FIRST_WORKSPACE} was made for it, and is chosen from now on.")
        self.choose(Choice(FIRST_WORKSPACE, ""))
        return self.workspace

    @property
    def session(self) -> "Session":
        """The session that stages the changes."""
        workspace = self.workspace
        if not self.choice.session:
            self._see_server()
            raise NoSessionError
        return workspace.resume(self.choice.session)

    def _see_server(self) -> None:
        """Fails if no server answers. That error comes first, since choosing a workspace or session needs a server."""
        self.client.status()

    @cached_property
    def reading(self) -> str:
        """The revision to read: what ``--at`` means, else the session; empty for the default branch."""
        return revision(self.workspace, self.at) if self.at else self.choice.session

    @property
    def here(self) -> "Revision":
        """The state to read: ``--at``, else the session, else the default branch."""
        return self.workspace.at(self.reading)

    def choose(self, choice: Choice) -> None:
        """Saves a choice for later commands, and warns if the environment says otherwise."""
        write_choice(self.address, choice)
        self.__dict__.pop("choice", None)
        given = os.environ.get(WORKSPACE_VARIABLE, "")
        if given and choice.workspace and given != choice.workspace:
            self.output.warn(f"{WORKSPACE_VARIABLE} is set to {given}, and later commands follow it; unset it first.")

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if "client" in self.__dict__:
            self.client.close()

    def hint(self, error: "MemoTreeClientError") -> str:
        """A hint that the session in the error was chosen by an earlier command, which a person may not remember."""
        session = self.choice.session
        if session and not self.session_option and session in error.message:
            return "The session was chosen by an earlier command; `memotree session use --none` stops using it."
        if error.reason == "MERGE_CONFLICT":
            return (
                "With --resolve, `memotree branch merge`, `revert`, `cherry-pick` and `import` keep the conflicts in a "
                "session, to be resolved there."
            )
        return ""


_declared: Final[dict[str, tuple[Callable[..., None], tuple[str, ...]]]] = {}
"""The functions of commands, and the options for the place, by path."""


def command(path: str, place: tuple[str, ...] = REVISION) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function whose first parameter is a ``CliContext`` a command, with the options in ``place``.

    Args:
        path: What names the command after ``memotree``, as in ``command_table``.
        place: The options for server, workspace and session, and for the output.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        _declared[path] = (function, place)
        return function

    return declare


def built(path: str) -> Any:
    """The command of Typer for a path; its module was imported before."""
    function, place = _declared[path]
    parameters = list(inspect.signature(function).parameters.values())[1:]
    hints = typing.get_type_hints(function, include_extras=True)

    names, revisions = named_parameters(hints), revision_parameters(hints)
    own = own_options(hints)

    def call(**values: Any) -> None:
        given = {each: values.pop(each) for each in place}

        def work(cli: CliContext) -> None:
            known = _with_revisions(cli, values, revisions)
            function(cli, **_with_ids(cli, known, names, takes_revision="at" in {*given, *values}))

        _run(_context(given, own), work)

    shown = [each.replace(annotation=hints[each.name]) for each in parameters]
    shown += [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[each][1], annotation=_OPTIONS[each][0])
        for each in place
    ]
    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
    call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined] # what inspect reads
    call.__annotations__ = {each.name: each.annotation for each in shown}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    group, _, name = path.rpartition(" ")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=HelpfulCommand, epilog=epilog(path), rich_help_panel=None if group else panel(name))(call)
    return typer.main.get_command(alone)


def _with_revisions(cli: CliContext, values: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """The values of a command's parameters, with revisions as the server knows them."""
    return values | {name: revision(cli.workspace, values[name]) for name in names if values[name]}


def _with_ids(
    cli: CliContext, values: dict[str, Any], names: frozenset[str], *, takes_revision: bool
) -> dict[str, Any]:
    """The values of a command's parameters, with ids in the place of the names of nodes."""
    given = {name: values[name] for name in names if values[name]}
    if not given:
        return values
    at = values["at"] if "at" in values else values.get("new") or cli.reading
    here = cli.workspace.at(at)

    def found(name: str) -> str:
        try:
            return full_id(here, name)
        except NoSuchNodeError:
            if takes_revision:
                _refuse_revision(cli.workspace, name)
            raise

    return values | {
        name: found(value) if isinstance(value, str) else [found(each) for each in value]
        for name, value in given.items()
    }


def _refuse_revision(workspace: "Workspace", name: str) -> None:
    """Refuses the name of a branch or tag where a node is asked for."""
    for kind, refs in (("branch", workspace.branches()), ("tag", workspace.tags())):
        if any(ref.name == name for ref in refs):
            raise RevisionAsNodeError(name, kind)


def collect_garbage() -> None:
    """Collects garbage from now on; `main` turned that off, and what the start made stays until the end."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _context(given: dict[str, Any], own: Mapping[str, str]) -> CliContext:
    return CliContext(
        workspace_option=given.get("workspace", ""),
        session_option=given.get("session", ""),
        at=given.get("at", ""),
        address_option=given.get("address", ""),
        as_json=given["as_json"],
        calls_server="address" in given,
        own_options=own,
    )


def _client_error() -> type[Exception]:
    """The base class of the client's errors if the client was imported; otherwise no such error can be raised."""
    module = sys.modules.get("memotree.client.errors")
    kind: type[Exception] = module.MemoTreeClientError if module else CliError
    return kind


def _warn_of_unknown_variables(cli: CliContext) -> None:
    """Warns of variables that nothing reads; a misspelled one would be ignored in silence."""
    for name, fault in environment.unknown(os.environ) if cli.calls_server else ():
        cli.output.warn(f"{name}: {fault}")


def _run(cli: CliContext, work: Callable[[CliContext], None]) -> None:
    """Runs a command; expected errors end it with a message and an exit code."""
    if not cli.calls_server:  # else the client is imported first
        collect_garbage()
    try:
        _warn_of_unknown_variables(cli)
        work(cli)
        sys.stdout.flush()
    except CliError as error:
        raise typer.Exit(tell_cli_error(cli.output, error)) from None
    except typer.Abort:  # Ctrl-C at a prompt ends a command as it does elsewhere
        cli.output.note("\nStopped; nothing was changed.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:  # the reader has closed our output, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:
        if not isinstance(error, _client_error()):
            raise
        failure: Any = error
        raise typer.Exit(tell_client_error(cli.output, failure, cli.hint(failure), cli.own_options)) from None
    finally:
        cli.close()
