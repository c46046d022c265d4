"""``memotree audit``: who called what."""

from typing import Annotated

import typer

from memotree.cli.arguments.times import said_time
from memotree.cli.context import SERVER, CliContext, command
from memotree.cli.terminal.output import ID, table, when


@command("audit", SERVER)
def audit(
    cli: CliContext,
    principal: Annotated[str, typer.Option("--principal", help="Only calls of this principal.")] = "",
    method: Annotated[str, typer.Option("--method", help="Only this RPC, such as CommitChanges, or this tool.")] = "",
    workspace: Annotated[str, typer.Option("--of", help="Only this workspace, by name or id; a deleted one too.")] = "",
    code: Annotated[str, typer.Option("--code", help="Only this status, such as PERMISSION_DENIED.")] = "",
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Only calls from this time on.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only calls before this time.")] = "",
    most: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 50,
) -> None:
    """List who called what, newest first."""
    found = []
    for record in cli.client.audit_records(
        principal=principal,
        method=method,
        workspace=workspace,
        code=code,
        since=said_time("--since", since),
        until=said_time("--until", until),
    ):
        found.append(record)
        if len(found) == most:
            break
    cli.output.show(
        {"records": found},
        lambda: table(
            [("When", "dim"), "Who", "By", ("What", ID), "Workspace", "Outcome", "ms"],
            [
                (
                    when(each.time),
                    each.principal,
                    each.interface,
                    each.tool or each.method.rpartition("/")[2],
                    each.workspace,
                    each.reason or each.code,
                    f"{each.elapsed_ms:.1f}",
                )
                for each in found
            ],
            empty="No calls.",
        ),
    )
