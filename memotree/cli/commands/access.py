"""``memotree access``: who may call, with which keys, and what they may do."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from memotree.cli.context import SERVER, WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal.output import ID, facts, table, when

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memotree.client import Grant, Principal
    from memotree.client.enums import RoleName

_ALL: Final = "*"
_LISTED: Final = ", "
_ROLES: Final = ("READER", "WRITER", "REVIEWER", "ADMIN")

PrincipalArgument = Annotated[str, typer.Argument(metavar="NAME", help="The principal: a person or a program.")]
EverywhereOption = Annotated[bool, typer.Option("--everywhere", help="In all workspaces, and for the server itself.")]
BranchesOption = Annotated[
    str,
    typer.Option("--branches", help="Only on these branches: a name, or the beginning of names and *."),
]


ToolsOption = Annotated[
    str | None,
    typer.Option(
        "--tools", help="Only for these tools, separated by commas: names, beginnings with *, name:folder or name:host."
    ),
]


class WorkspaceMissingError(CliError):
    """It is not said where the role holds."""

    reason = "WORKSPACE_MISSING"

    def __init__(self) -> None:
        super().__init__("Say where the role holds: --workspace NAME, or --everywhere.")


class ToolsMissingError(CliError):
    """A role is to be limited to tools, and none is named."""

    reason = "TOOLS_MISSING"

    def __init__(self) -> None:
        super().__init__("Name the tools that the role holds for, or leave out --tools for a role without that limit.")


class RoleUnknownError(CliError):
    """There is no such role."""

    reason = "ROLE_UNKNOWN"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no role; give {', '.join(_ROLES[:-1])} or {_ROLES[-1]}.")


@command("access show", SERVER)
def show(
    cli: CliContext, name: Annotated[str, typer.Argument(metavar="[NAME]", help="The principal; you if left out.")] = ""
) -> None:
    """Show who you are to the server, or another principal, with its roles."""
    found = cli.client.principal(name)
    cli.output.show(found, lambda: _look(found))


@command("access list", SERVER)
def list_(
    cli: CliContext,
    workspace: Annotated[
        str, typer.Option("--workspace", "-w", help="Only those with a role in this workspace, and only these roles.")
    ] = "",
) -> None:
    """List the principals with their roles."""
    found = list(cli.client.principals(workspace))
    cli.output.show(
        {"principals": found},
        lambda: table(
            [("Name", ID), "Address", "Roles"],
            [(each.name, each.email, _roles(each.grants)) for each in found],
            empty="There are no principals.",
        ),
    )


@command("access add", SERVER)
def add(
    cli: CliContext,
    name: PrincipalArgument,
    email: Annotated[str, typer.Option("--email", help="The address with which it authors commits.")] = "",
) -> None:
    """Add a person or program that may call, or change its address."""
    found = cli.client.put_principal(name, email=email)
    cli.output.show(found, lambda: _look(found))


@command("access remove", SERVER)
def remove(cli: CliContext, name: PrincipalArgument) -> None:
    """Remove a principal with its keys and roles; what it has made stays."""
    cli.client.delete_principal(name)
    cli.output.show({"removed": name}, lambda: f"Removed {name}.\n")


@command("access grant", WORKSPACE)
def grant(
    cli: CliContext,
    name: PrincipalArgument,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="READER, WRITER, REVIEWER or ADMIN.")],
    everywhere: EverywhereOption = False,
    branches: BranchesOption = "",
    tools: ToolsOption = None,
) -> None:
    """Give a principal a role in a workspace, or in all."""
    named = [part.strip() for part in (tools or "").split(",") if part.strip()]
    if tools is not None and not named:
        raise ToolsMissingError
    found = cli.client.grant_role(name, _role(role), workspace=_where(cli, everywhere), branches=branches, tools=named)
    cli.output.show(found, lambda: _look(found))


@command("access revoke", WORKSPACE)
def revoke(
    cli: CliContext, name: PrincipalArgument, everywhere: EverywhereOption = False, branches: BranchesOption = ""
) -> None:
    """Take a role away."""
    found = cli.client.revoke_role(name, workspace=_where(cli, everywhere), branches=branches)
    cli.output.show(found, lambda: _look(found))


@command("access create-key", SERVER)
def create_key(
    cli: CliContext,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Whose key it is; yours if left out.")] = "",
    label: Annotated[str, typer.Option("--label", help="What it is for.")] = "",
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="How long it is valid; without an end if left out.")
    ] = None,
) -> None:
    """Make an API key, and print it: it is shown once."""
    made = cli.client.create_key(name, label=label, ttl=None if days is None else timedelta(days=days))
    cli.output.show({"key": made.key, "api_key": made.api_key}, lambda: f"{made.key}\n")
    cli.output.note("This is the only time that the key is shown. Programs take it from MEMOTREE_API_KEY.")


@command("access keys", SERVER)
def keys(
    cli: CliContext,
    owner: Annotated[str, typer.Option("--of", help="Whose keys; yours if left out.")] = "",
    everybody: Annotated[bool, typer.Option("--everybody", help="The keys of all principals.")] = False,
) -> None:
    """List API keys, without the keys themselves."""
    found = list(cli.client.keys(_ALL if everybody else owner))
    cli.output.show(
        {"keys": found},
        lambda: table(
            [("Id", ID), "Of", "For", "Made", "Ends", "Last used"],
            [
                (
                    each.id,
                    each.principal,
                    each.label,
                    when(each.create_time),
                    when(each.expire_time) or "never",
                    when(each.last_use_time) or "never",
                )
                for each in found
            ],
            empty="There are no keys.",
        ),
    )


@command("access delete-key", SERVER)
def delete_key(cli: CliContext, key: Annotated[str, typer.Argument(metavar="ID", help="The id of the key.")]) -> None:
    """End an API key: from now on it proves nothing."""
    cli.client.delete_key(key)
    cli.output.show({"deleted": key}, lambda: f"Ended key {key}.\n")


def _role(text: str) -> "RoleName":
    role = text.upper()
    if role not in _ROLES:
        raise RoleUnknownError(text)
    return cast("RoleName", role)


def _where(cli: CliContext, everywhere: bool) -> str:
    if everywhere:
        return _ALL
    if not cli.choice.workspace:
        raise WorkspaceMissingError
    return cli.choice.workspace


def _look(found: "Principal") -> "RenderableType":
    return facts([("name", found.name), ("address", found.email), ("roles", _roles(found.grants))])


def _roles(grants: "Iterable[Grant]") -> str:
    return "\n".join(
        f"{grant.role} {'everywhere' if grant.workspace == _ALL else f'in {grant.workspace}'}"
        f"{'' if grant.branches == _ALL else f' on {grant.branches}'}"
        f"{f' with {_LISTED.join(grant.tools)}' if grant.tools else ''}"
        for grant in grants
    )
