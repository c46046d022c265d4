"""``memotree query`` and ``memotree conversation``: the chat model answers, which may call tools, and what is kept."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from memotree.cli.arguments.forest_options import ArchivesOption, BudgetOption, QueryArgument, UnderOption
from memotree.cli.arguments.options import TagsOption
from memotree.cli.commands.ask import citation_line
from memotree.cli.context import REVISION, WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.terminal.output import ID, table, when
from memotree.cli.wording import in_commands

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import QueryAnswer, QueryCall, QueryPlan, QueryTurn

_SHOWN = 100

ConversationArgument = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Its name.")]

_WHY = {
    "CALL_LIMIT": "All calls that it may have were made; --max-calls allows more.",
    "FAULTY_CALLS": "The model went on with calls that cannot be made, and had to answer.",
    "TOKEN_LIMIT": "The next call of the model would exceed --max-tokens.",
    "ANSWER_CUT": "The answer is cut at the limit of the model.",
    "TIME_LIMIT": "The time of --timeout is over.",
    "MODEL_FAILED": "The model failed after tools had been called.",
}
"""Why a query ended, unless the model simply answered."""


class QueryOptionsError(CliError):
    """Options that do not go together."""

    reason = "QUERY_OPTIONS"


@command("query", REVISION)
def query(
    cli: CliContext,
    question: QueryArgument,
    tools: Annotated[bool, typer.Option("--tools", help="Let the model call tools.")] = False,
    allowed: Annotated[
        str,
        typer.Option("--allowed-tools", metavar="TOOLS", help="The only tools that it may call, separated by commas."),
    ] = "",
    plan: Annotated[bool, typer.Option("--plan", help="Show which tools it would call, and call none.")] = False,
    max_calls: Annotated[
        int, typer.Option("--max-calls", min=0, max=20, help="The most calls of tools; 5 when 0.")
    ] = 0,
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", min=0, help="The most tokens that it reads and writes; no limit when 0."),
    ] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, max=600, help="Seconds after which it ends; 120 when 0.")
    ] = 0,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=2, help="How freely the model chooses its words.")
    ] = None,
    conversation: Annotated[
        str, typer.Option("--conversation", help="A name: earlier questions are known, and this one is kept.")
    ] = "",
    agent: Annotated[str, typer.Option("--agent", help="Who asks.", envvar="MEMOTREE_AGENT")] = "",
    budget: BudgetOption = 0,
    archives: ArchivesOption = [],  # noqa: B006 - typer only reads it
    tags: TagsOption = [],  # noqa: B006 - likewise
    under: UnderOption = "",
) -> None:
    """Ask the chat model of the server, which answers from the memory and calls tools with --tools."""
    from memotree.client import QueryAnswer, QueryText  # noqa: PLC0415 - `--help` needs no gRPC

    names = [name.strip() for name in allowed.split(",") if name.strip()]
    if names and not (tools or plan):
        raise QueryOptionsError("--allowed-tools names tools for --tools or --plan; give one of these, too.")
    if plan and conversation:
        raise QueryOptionsError("--plan answers nothing that --conversation could keep; leave one of them out.")
    text = " ".join(question)
    given: dict[str, Any] = {
        "tools_enabled": tools or plan,
        "allowed_tools": names,
        "max_tool_calls": max_calls,
        "max_model_tokens": max_tokens,
        "timeout_seconds": timeout,
        "token_budget": budget,
        "archives": archives,
        "tags": tags,
        "under": under or None,
    }
    if plan:
        found = cli.here.plan_query(text, **given)
        cli.output.show(found, lambda: _plan(found))
        return
    answer: QueryAnswer | None = None
    for event in cli.here.stream_query(
        text, temperature=temperature, conversation_id=conversation, agent=agent, **given
    ):
        if isinstance(event, QueryAnswer):
            answer = event
        elif not isinstance(event, QueryText) and event.result is not None and not cli.output.as_json:
            cli.output.note(_call(event))
    if answer is None:
        return
    for warning in answer.warnings:
        cli.output.warn(in_commands(warning))
    if answer.end in _WHY and not cli.output.as_json:
        cli.output.note(Text(_WHY[answer.end], "dim"))
    cli.output.show(answer, lambda: _look(answer))


def _call(call: "QueryCall") -> Text:
    """One line for a call that has ended."""
    line = Text(f"{call.number}. ", "dim").append(_short(call.name), f"{ID} dim")
    line.append(f" {_short(call.arguments_json)}", "dim")
    if call.result is not None and call.result.error is not None:
        line.append(f"  → {call.result.error.code}", "dim")
    return line


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _SHOWN else f"{one[:_SHOWN]}…"


def _look(answer: "QueryAnswer") -> "RenderableType":
    parts: list[RenderableType] = [Text(answer.text or "The model gave no answer.")]
    cited = [source.citation for source in answer.sources if source.cited]
    if cited:
        parts += [Text(""), Text("Sources", "bold")]
        parts += [citation_line(number, each) for number, each in enumerate(cited, start=1)]
    if answer.tools_used:
        parts += [Text(""), Text(f"Tools: {', '.join(answer.tools_used)}", "dim")]
    return Group(*parts)


@command("conversation list", WORKSPACE)
def listed(cli: CliContext) -> None:
    """List your conversations, the one that was used last first."""
    found = cli.workspace.conversations()
    cli.output.show(
        {"conversations": found},
        lambda: table(
            [("Conversation", ID), "Turns", ("Last used", "dim")],
            [(each.name, str(each.turn_count), when(each.use_time)) for each in found],
            empty="You have no conversation here; give one a name with `memotree query --conversation NAME`.",
        ),
    )


@command("conversation show", WORKSPACE)
def show(cli: CliContext, conversation: ConversationArgument) -> None:
    """Show the questions and answers of a conversation of yours."""
    found = cli.workspace.conversation(conversation)
    cli.output.show(found, lambda: Group(*(Text(line) for turn in found.turns for line in _lines(turn))))


@command("conversation delete", WORKSPACE)
def delete(cli: CliContext, conversation: ConversationArgument) -> None:
    """Delete a conversation of yours for good."""
    cli.workspace.delete_conversation(conversation)
    cli.output.show({"deleted": conversation}, lambda: None)
    cli.output.done(f"The conversation {conversation} is deleted.")


def _lines(turn: "QueryTurn") -> tuple[str, str]:
    return f"> {turn.question}", f"{turn.answer}\n"


def _plan(plan: "QueryPlan") -> "RenderableType":
    return Group(
        Text(f"strategy  {plan.strategy.lower()}"),
        table(
            [("", ""), ("Tool", ID), "Parameters", "Purpose"],
            [
                (str(step.number), step.tool, _short(json.dumps(step.parameters, ensure_ascii=False)), step.purpose)
                for step in plan.steps
            ],
            empty="No tool is needed.",
        ),
    )
