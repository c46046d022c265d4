"""``memotree status | verify | faults | rebuild | reindex``: maintenance of the server and its stores."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.commands.commits import AtOption
from memotree.cli.commands.jobs import end
from memotree.cli.context import SERVER, WORKSPACE, CliContext, command
from memotree.cli.errors import ExitCode, NoWorkspaceError
from memotree.cli.terminal import display
from memotree.cli.terminal.output import counted, facts, table

if TYPE_CHECKING:
    from memotree.client import Difference

_WIDE_ENOUGH = 100
"""The least terminal width, in columns, for a table of differences."""


@command("status", SERVER)
def status(cli: CliContext) -> None:
    """Show whether the server and its stores are healthy."""
    found = cli.client.status()
    chosen = cli.choice
    database_silent = any(store.name == "postgres" and not store.healthy for store in found.stores)

    def look() -> RenderableType:
        head = facts(
            [
                ("server", cli.address),
                ("version", found.version),
                ("workspaces", str(found.workspace_count)),
                ("chosen workspace", chosen.workspace),
                ("chosen session", chosen.session),
                ("embedding model", found.embedding_model),
                ("", found.embedding_notice),
                ("token counter", found.token_counter),
                ("content at most", f"{found.max_content_bytes:,} bytes per node"),
                ("depth at most", f"{found.max_depth:,} levels below a root"),
                ("message at most", f"{found.max_message_bytes:,} bytes"),
                *(("takes no changes", f"{each}: {reason}") for each, reason in found.set_aside.items()),
                *(("stand nowhere", f"{each}: {counted(number, 'node')}") for each, number in found.faults.items()),
                *((("pushed to", found.git_remote_url),) if found.git_remote_url else ()),
                *(("remote is behind", f"{each}: {reason}") for each, reason in found.copies_behind.items()),
                *(("plugin is broken", f"{each}: {reason}") for each, reason in found.plugin_faults.items()),
                *((("commits signed by", found.signing_key),) if found.signing_key else ()),
                ("vectors to flush", "unknown" if database_silent else str(found.index_backlog)),
            ]
        )
        stores = table(
            [("Store", "bold cyan"), "State", "Run by", "Detail"],
            [
                (
                    each.name,
                    Text("healthy", "green") if each.healthy else Text("does not answer", "bold red"),
                    "the server" if each.embedded else "others",
                    each.detail,
                )
                for each in found.stores
            ],
            empty="The server names no stores.",
        )
        return Group(head, stores)

    cli.output.show({"address": cli.address, "server": found, "chosen": chosen}, look)
    if found.set_aside or not all(store.healthy for store in found.stores):
        raise typer.Exit(ExitCode.FAILED)


@command("verify", WORKSPACE)
def verify(cli: CliContext) -> None:
    """Compare Git, PostgreSQL and Qdrant; the exit code is 1 if they differ. All workspaces, if none is chosen."""
    found = {name: _differences(cli, name) for name in _to_verify(cli)}
    differences = [each for some in found.values() for each in some]
    narrow = cli.output.out.width < _WIDE_ENOUGH

    def look() -> RenderableType:
        tables = {name: display.differences(some, narrow=narrow) for name, some in found.items()}
        if len(tables) == 1:
            return next(iter(tables.values()))
        return Group(*(part for name, shown in tables.items() for part in (Text(name, "bold cyan"), shown)))

    by_name = {} if cli.choice.workspace else {"workspaces": found}
    cli.output.show({"differences": differences, **by_name}, look)
    for name, some in found.items():
        if some:
            where = "" if name == cli.choice.workspace else f" --workspace {name}"
            repair = f"; `memotree rebuild{where}` restores rows and vectors from Git"
            mirrored = any(each.store != "git" for each in some)
            cli.output.note(f"{counted(len(some), 'difference')}{repair if mirrored else ''}.")
    if differences:
        raise typer.Exit(ExitCode.FAILED)


@command("faults", WORKSPACE)
def faults(
    cli: CliContext,
    at: AtOption = "",
    pushed: Annotated[
        str, typer.Option(metavar="COMMIT", help="List those that this commit would bring, which git has received.")
    ] = "",
) -> None:
    """List what other programs committed that stands nowhere in the tree or cannot be read, with a way out."""
    if pushed:
        head = next(iter(cli.workspace.at(at).log(page_size=1)))
        found = cli.workspace.check_push(pushed, old_commit_id=head.id)
    else:
        found = list(cli.workspace.at(at).faults())

    def look() -> RenderableType:
        return Group(*(display.fault(each) for each in found)) if found else Text("Every file has its place.")

    cli.output.show({"faults": found}, look)


def _to_verify(cli: CliContext) -> list[str]:
    """The chosen workspace, else all of the server."""
    if cli.choice.workspace:
        return [cli.choice.workspace]
    names = [each.name for each in cli.client.workspaces()]
    if not names:
        raise NoWorkspaceError
    return names


def _differences(cli: CliContext, name: str) -> "list[Difference]":
    from memotree.client import Difference  # noqa: PLC0415 - `--help` needs no gRPC

    found: list[Difference] = []
    with cli.output.progress() as bar:
        for event in cli.client.workspace(name).verify():
            if isinstance(event, Difference):
                found.append(event)
            else:
                bar.at(event.step, event.done, event.total)
    return found


BackgroundOption = Annotated[bool, typer.Option("--background", help="Run it as a job and do not wait.")]


@command("rebuild", WORKSPACE)
def rebuild(cli: CliContext, background: BackgroundOption = False) -> None:
    """Rebuild the rows and vectors of the workspace from Git; staged changes stay."""
    if background:
        end(cli, cli.workspace.start_rebuild(), background=True)
        return
    steps: dict[str, int] = {}
    with cli.output.progress() as bar:
        for event in cli.workspace.rebuild():
            steps[event.step] = event.done
            bar.at(event.step, event.done, event.total)
    cli.output.show(
        {"steps": [{"step": step, "done": done} for step, done in steps.items()]},
        lambda: table(["Step", "Done"], [(step, f"{done:,}") for step, done in steps.items()], empty="Nothing to do."),
    )
    cli.output.done("Rows and vectors are rebuilt from Git.")


@command("reindex", WORKSPACE)
def reindex(
    cli: CliContext,
    model: Annotated[
        str,
        typer.Option(
            "--embedding",
            metavar="MODEL",
            help="Change to this embedding model, for all workspaces: wordllama-l2, all-minilm-l6-v2, "
            "use-multilingual-3, or the one that the settings name with a URL.",
        ),
    ] = "",
    dimensions: Annotated[
        int, typer.Option("--dimensions", min=0, help="With --embedding: the length of its vectors; 0 for its own.")
    ] = 0,
    background: BackgroundOption = False,
) -> None:
    """Compute all vectors of the workspace again, or change the embedding model while searches go on, as a job."""
    if dimensions and not model:
        raise typer.BadParameter("it needs --embedding, which names the model.", param_hint="--dimensions")
    started = cli.client.change_embedding(model, dimensions=dimensions) if model else cli.workspace.start_reindex()
    end(cli, started, background=background)
