"""``memotree ask``: prints the steps towards an answer as they are taken, then the answer with citations."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from memotree.cli.arguments.forest_options import (
    ArchivesOption,
    BudgetOption,
    ModelOption,
    OutdatedOption,
    QueryArgument,
    SinceOption,
    StrategyChoice,
    StrategyOption,
    TypesOption,
    UnderOption,
    UntilOption,
    ValidAtOption,
)
from memotree.cli.arguments.options import TagsOption, word
from memotree.cli.arguments.times import sent_time
from memotree.cli.context import REVISION, CliContext, command
from memotree.cli.terminal.display import source_place
from memotree.cli.terminal.output import ID, counted, short
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import Answer, AskStep, Citation

_FEW_TITLES = 4


@command("ask", REVISION)
def ask(
    cli: CliContext,
    question: QueryArgument,
    strategy: StrategyOption = StrategyChoice.HYBRID,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=0, max=20, help="Decisions that the chat model may take; 5 when 0.")
    ] = 0,
    budget: BudgetOption = 0,
    archives: ArchivesOption = [],  # noqa: B006 - typer only reads it
    model: ModelOption = "",
    tags: TagsOption = [],  # noqa: B006 - likewise
    node_types: TypesOption = [],  # noqa: B006 - likewise
    since: SinceOption = "",
    until: UntilOption = "",
    under: UnderOption = "",
    valid_at: ValidAtOption = "",
    outdated: OutdatedOption = False,
) -> None:
    """Answer a question from the memory, with citations.

    Without a chat model the answer is the cited passages themselves.
    """
    from memotree.client import AskStep  # noqa: PLC0415 - `--help` needs no gRPC

    steps: list[AskStep] = []
    answer: Answer | None = None
    for event in cli.here.ask(
        " ".join(question),
        strategy=word(strategy),
        max_steps=max_steps,
        token_budget=budget,
        archives=archives,
        model_id=model,
        tags=tags,
        node_types=node_types,
        since=sent_time(since),
        until=sent_time(until),
        under=under or None,
        valid_at=sent_time(valid_at),
        include_outdated=outdated,
    ):
        if isinstance(event, AskStep):
            steps.append(event)
            if not cli.output.as_json:
                cli.output.note(_step(event))
        else:
            answer = event
    for warning in answer.warnings if answer else ():
        cli.output.warn(in_commands(warning))
    cli.output.show({"steps": steps, "answer": answer}, lambda: None if answer is None else look(answer))


def _step(step: "AskStep") -> Text:
    """One line for a step."""
    line = Text(f"{step.number}. {step.action}", "dim")
    if step.node_id:
        line.append(f" {step.node_id}", f"{ID} dim")
    if step.reasoning:
        line.append(f": {' '.join(step.reasoning.split())}", "dim")
    if step.nodes:
        titles = ", ".join(node.title for node in step.nodes[:_FEW_TITLES])
        more = ", …" if len(step.nodes) > _FEW_TITLES else ""
        line.append(f"  → {counted(len(step.nodes), 'node')}: {titles}{more}", "dim")
    return line


def look(answer: "Answer") -> "RenderableType":
    """An answer with its citations, formatted for a person."""
    parts: list[RenderableType] = [Text(answer.text)]
    if answer.citations:
        parts += [Text(""), Text("Citations", "bold")]
        parts += [citation_line(number, each) for number, each in enumerate(answer.citations, start=1)]
    return Group(*parts)


def citation_line(number: int, cited: "Citation") -> Text:
    """One line for a citation: title, id, and the place in the document."""
    line = Text.assemble(f"{number}. ", (cited.title, "cyan"), "  ", (cited.node_id, ID), style="")
    source = cited.source
    if source is None or source.document_id != cited.archive_name:
        line.append(f"  {cited.archive_name}")
    if source is not None:
        line.append(f"  {source_place(source)}", "dim")
    return line.append(f"  at {short(cited.commit_id)}", "dim")
