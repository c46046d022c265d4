"""``memotree recall``: find the text in memory that is relevant to a question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
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
from memotree.cli.terminal.display import summary_of
from memotree.cli.terminal.output import ID, counted, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from memotree.client import Passage, RecalledNode, RecallResult, Receipt

_INDENT = 6


@command("recall", REVISION)
def recall(
    cli: CliContext,
    question: QueryArgument,
    strategy: StrategyOption = StrategyChoice.HYBRID,
    budget: BudgetOption = 0,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", min=0, max=1000, help="Nodes that lca and collapsed start from; 10 when 0.")
    ] = 0,
    archives: ArchivesOption = [],  # noqa: B006 - typer only reads it
    model: ModelOption = "",
    tags: TagsOption = [],  # noqa: B006 - likewise
    node_types: TypesOption = [],  # noqa: B006 - likewise
    since: SinceOption = "",
    until: UntilOption = "",
    under: UnderOption = "",
    valid_at: ValidAtOption = "",
    outdated: OutdatedOption = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show why each node was found.")] = False,
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", exists=True, dir_okay=False, help="Give the answer of this receipt again."),
    ] = None,
    save_receipt: Annotated[
        Path | None,
        typer.Option("--save-receipt", dir_okay=False, help="Write the receipt to this file."),
    ] = None,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print only the packed Markdown text, ready for a prompt.")
    ] = False,
) -> None:
    """Find the text in memory that is relevant to a question, packed within a token budget."""
    found = cli.here.recall(
        " ".join(question),
        strategy=word(strategy) if receipt is None else None,
        top_k=top_k,
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
        include_trace=trace,
        receipt=None if receipt is None else _read(receipt),
    )
    cli.output.show(found, lambda: found.text if prompt else look(found))
    if (found.passages or found.nodes) and not cli.output.as_json:
        leaves = counted(found.leaves_considered, "leaf", "leaves")
        used = f"{found.tokens_used:,} of {found.token_budget:,} tokens, from {leaves}; "
        sure = f"confidence: {found.confidence} ({found.likelihood:.2f})."
        cli.output.note(Text((used if found.passages else "") + sure, "dim"))
    if found.outdated_left_out and not cli.output.as_json:
        left = f"{counted(found.outdated_left_out, 'node')} left out that do not hold any more; --outdated shows them."
        cli.output.note(Text(left, "dim"))
    if save_receipt is not None and found.receipt is not None:
        _save(found.receipt, save_receipt)


def _save(receipt: "Receipt", path: Path) -> None:
    try:
        path.write_text(receipt.text + "\n", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--save-receipt") from error


def _read(path: Path) -> "Receipt":
    from memotree.client import Receipt  # noqa: PLC0415 - `--help` needs no gRPC

    try:
        return Receipt.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--receipt") from error


def look(found: "RecallResult") -> "RenderableType":
    """The result of a recall, formatted for a person: the best passage first, unlike in the text for a prompt."""
    parts = [_passage(each) for each in sorted(found.passages, key=lambda passage: -passage.score)]
    parts += [_node(each) for each in found.nodes]
    if parts:
        return Group(*parts)
    return Text("Nothing fits the budget." if found.likelihood else "Nothing was found.", "dim")


def _passage(passage: "Passage") -> "RenderableType":
    head = Text.assemble((f"{passage.score:.2f}", "green"), "  ", (passage.archive_name, "bold cyan"))
    for heading in _headings(passage):
        head.append(f" > {heading}", "cyan")
    parts: list[RenderableType] = [head, Padding(Text(passage.text.strip()), (0, 0, 0, _INDENT), expand=False)]
    remarks = [line for each in passage.nodes for line in (*_period(each), *_why(each))]
    parts += [Padding(line, (0, 0, 0, _INDENT), expand=False) for line in remarks]
    return Group(*parts, Text(""))


def _headings(passage: "Passage") -> "Sequence[str]":
    """The headings above the best leaf: a passage may begin in an earlier section than the one that was found."""
    best = max(passage.nodes, key=lambda each: each.score, default=None)
    source = best.node.source if best is not None else None
    return [source.heading] if source is not None and source.heading else passage.headings


def _node(found: "RecalledNode") -> "RenderableType":
    text = found.node.content or summary_of(found.node) or found.node.brief
    head = Text.assemble(
        (f"{found.score:.2f}", "green"), "  ", (found.node.title, "bold cyan"), "  ", (found.node.id, ID)
    )
    parts = [Text(text.strip())] if text else []
    indented = [Padding(part, (0, 0, 0, _INDENT), expand=False) for part in [*parts, *_period(found), *_why(found)]]
    return Group(head, *indented, Text(""))


def _period(found: "RecalledNode") -> list[Text]:
    """The line that says when a node holds; empty for one that always does."""
    parts = [f"valid from {when(found.valid_from)}"] if found.valid_from else []
    parts += [f"valid until {when(found.valid_to)}"] if found.valid_to else []
    parts += [f"superseded by {', '.join(found.superseded_by)}"] if found.superseded_by else []
    changed = next((each for each in found.former if not each.node_id), None)
    if changed is not None:
        by = f" by {changed.changed_by}" if changed.changed_by else ""
        parts.append(f"changed {when(changed.until) if changed.until else 'now'}{by}")
    return [Text.assemble((found.node.id, ID), "  ", ("; ".join(parts), "magenta"))] if parts else []


def _why(found: "RecalledNode") -> list[Text]:
    """The lines that say why a node was found; empty without ``--trace``."""
    if found.trace is None:
        return []
    signals = ", ".join(f"{signal.name} {signal.score:.2f}" for signal in found.trace.signals)
    line = Text.assemble((found.node.id, ID), "  ", (found.trace.reason or found.node.title, "dim"))
    if signals:
        line.append(f"  ({signals})", "dim")
    return [line]
