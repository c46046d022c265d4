"""``memotree check`` and ``memotree memory-test``: questions with the answers that the memory must give."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import full_id
from memotree.cli.commands.commits import AtOption
from memotree.cli.commands.conflicts import WhoOption, author_of
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, ExitCode
from memotree.cli.terminal.output import counted, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memotree.client import MemoryTestResult

BranchOption = Annotated[
    str,
    typer.Option("--branch", help="The branch; the default branch when not given.", autocompletion=completion.branches),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name: lower-case letters, digits and -; that of its file.")
]


class MemoryTestsFailedError(CliError):
    """A memory test failed; which, has been told."""

    exit_code = ExitCode.FAILED
    reason = "MEMORY_TESTS_FAILED"


@command("check", WORKSPACE)
def check(
    cli: CliContext,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these memory tests.")] = None,
    at: AtOption = "",
    tests_at: Annotated[
        str,
        typer.Option(
            "--tests-at",
            help="The revision that has the tests; the same when not given.",
            autocompletion=completion.revisions,
        ),
    ] = "",
    list_only: Annotated[bool, typer.Option("--list", help="List the tests without running them.")] = False,
) -> None:
    """Run the memory tests: each asks its question, and fails if the answer lacks what is expected."""
    found = list(cli.workspace.check_memory(at, tests_at=tests_at, names=names or (), list_only=list_only))
    failed = 0 if list_only else sum(not each.passed for each in found)
    cli.output.show({"results": found}, lambda: _look(found, run=not list_only))
    if failed:
        raise MemoryTestsFailedError(f"{failed} of {counted(len(found), 'memory test')} failed.")
    if found and not list_only:
        cli.output.done(f"{counted(len(found), 'memory test')} passed.")


def _look(found: "Sequence[MemoryTestResult]", *, run: bool) -> RenderableType:
    if not found:
        return Text("There is no memory test; write one with `memotree memory-test add NAME QUESTION`.", "dim")
    lines: list[RenderableType] = []
    for each in found:
        mark = "·" if not run else "✓" if each.passed else "✗"
        lines.append(Text.assemble(f"{mark} ", (each.test.name, "bold cyan"), f"  {each.test.question}"))
        lines += [Text(f"    {fault}", "yellow") for fault in each.faults]
    return Group(*lines)


@command("memory-test add", WORKSPACE)
def add(
    cli: CliContext,
    name: NameArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    cites: Annotated[
        list[str] | None,
        typer.Option(
            "--cites", help="A node that the answer must cite, or one below it; may be repeated.", metavar="NODE"
        ),
    ] = None,
    has: Annotated[
        list[str] | None,
        typer.Option("--has", help="A text that the answer must have; may be repeated.", metavar="TEXT"),
    ] = None,
    lacks: Annotated[
        list[str] | None,
        typer.Option("--lacks", help="A text that it must not have; repeatable.", metavar="TEXT"),
    ] = None,
    budget: Annotated[int, typer.Option(help="The most tokens of the answer; 0 for 2000.", min=0, max=200_000)] = 0,
    archive: Annotated[
        list[str] | None,
        typer.Option(help="An archive to ask; all when not given.", autocompletion=completion.archives),
    ] = None,
    branch: BranchOption = "",
    agent: WhoOption = "",
) -> None:
    """Write a memory test, and commit it; one of the same name is replaced."""
    from memotree.client import MemoryTest  # noqa: PLC0415 - gRPC is loaded when the call is made

    here = cli.workspace.at(branch)
    test = MemoryTest(
        name,
        question,
        tuple(full_id(here, node) for node in cites or ()),
        tuple(has or ()),
        tuple(lacks or ()),
        budget,
        tuple(archive or ()),
    )
    commit_id = cli.workspace.put_memory_tests([test], branch=branch, author=author_of(agent))
    cli.output.show({"commit_id": commit_id, "test": test}, lambda: None)
    cli.output.done(f"The memory test {name} is committed at {short(commit_id)}. `memotree check {name}` runs it.")


@command("memory-test delete", WORKSPACE)
def delete(cli: CliContext, name: NameArgument, branch: BranchOption = "", agent: WhoOption = "") -> None:
    """Delete a memory test, and commit that."""
    commit_id = cli.workspace.put_memory_tests(deleted=[name], branch=branch, author=author_of(agent))
    cli.output.show({"commit_id": commit_id, "deleted": name}, lambda: None)
    cli.output.done(f"The memory test {name} is deleted at {short(commit_id)}.")
