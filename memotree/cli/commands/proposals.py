"""``memotree proposal``: propose changes, review them, and merge what was approved."""

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import word
from memotree.cli.commands.commits import LimitOption
from memotree.cli.commands.conflicts import WhoOption, author_of
from memotree.cli.commands.refs import StyleChoice
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.terminal import display
from memotree.cli.terminal.output import facts, short, table, when

if TYPE_CHECKING:
    from memotree.client import Proposal, ProposalCheck, ProposalDetail, ProposalEvent, Review

NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="The number of the proposal.", min=1)]
TextOption = Annotated[str, typer.Option("--message", "-m", help="What there is to say about it.")]


class StatusChoice(StrEnum):
    """What became of a proposal."""

    OPEN = "open"
    MERGED = "merged"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


@command("proposal create", WORKSPACE)
def create(
    cli: CliContext,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="One line.")],
    description: Annotated[str, typer.Option("--description", "-d", help="Why it is proposed.")] = "",
    branch: Annotated[
        str,
        typer.Option(help="The branch that is proposed, in place of the session.", autocompletion=completion.branches),
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            help="The branch that shall get it; that of the session, or the default branch, when not given.",
            autocompletion=completion.branches,
        ),
    ] = "",
    merge: Annotated[bool, typer.Option("--merge", help="Let the last missing approval merge it.")] = False,
    agent: WhoOption = "",
) -> None:
    """Propose the changes of the session, on a branch of their own, or an existing branch."""
    session = "" if branch else cli.session.id
    made = cli.workspace.propose(
        title,
        description,
        session=session,
        branch=branch,
        target=target,
        author=author_of(agent),
        merge_when_approved=merge,
    )
    cli.output.show(made, lambda: None)
    cli.output.done(f"Proposal {made.number}: {made.branch} at {short(made.head_commit_id)}, for {made.target_branch}.")
    if session:
        cli.output.note("The session goes on on that branch: what it commits there comes to the proposal.")


@command("proposal list", WORKSPACE)
def list_proposals(
    cli: CliContext,
    status: Annotated[StatusChoice | None, typer.Option(help="Only those with this status.")] = None,
    target: Annotated[str, typer.Option(help="Only those for this branch.", autocompletion=completion.branches)] = "",
    limit: LimitOption = 50,
) -> None:
    """List the proposals, newest first."""
    found = list(islice(cli.workspace.proposals(status=word(status), target=target), limit))
    cli.output.show(
        {"proposals": found},
        lambda: table(
            [("#", "bold cyan"), "Title", "By", "For", "Status", "Approved by", ("Last change", "dim")],
            [
                (
                    str(each.number),
                    each.title,
                    each.author,
                    each.target_branch,
                    each.status.lower(),
                    ", ".join(each.approved_by),
                    when(each.update_time),
                )
                for each in found
            ],
            empty="There is no proposal; make one with `memotree proposal create TITLE`.",
        ),
    )


@command("proposal show", WORKSPACE)
def show(
    cli: CliContext,
    number: NumberArgument,
    check: Annotated[bool, typer.Option("--check", help="Run its checks: structure, conflicts, memory tests.")] = False,
) -> None:
    """Show a proposal: what it changes, what is missing until it can be merged, and what was said about it."""
    found = cli.workspace.proposal(number, run_checks=check)
    changes = []
    if found.proposal.status == "OPEN" and found.proposal.head_commit_id:
        preview = cli.workspace.preview_merge(found.proposal.head_commit_id, found.proposal.target_branch)
        changes = list(preview.changes)
    cli.output.show({"proposal": found, "changes": changes}, lambda: Group(_look(found), display.entries(changes)))


def _look(found: "ProposalDetail") -> RenderableType:
    proposal = found.proposal
    parts: list[RenderableType] = [
        facts(
            [
                ("proposal", Text(f"{proposal.number}: {proposal.title}", "bold cyan")),
                ("by", f"{proposal.author}, {when(proposal.create_time)}"),
                ("branch", f"{proposal.branch} at {short(proposal.head_commit_id)}, for {proposal.target_branch}"),
                ("status", proposal.status.lower()),
                ("approved by", ", ".join(proposal.approved_by) or "nobody yet"),
            ]
        )
    ]
    parts += [Text(proposal.description)] if proposal.description else []
    parts += [Text(f"{_mark(check)} {check.name}: {check.detail}") for check in found.checks]
    parts += [Text(_told(event)) for event in found.events]
    parts += [Text(each, "yellow") for each in found.blockers if proposal.status == "OPEN"]
    return Group(*parts)


def _mark(check: "ProposalCheck") -> str:
    return "✓" if check.passed else "✗"


def _told(event: "ProposalEvent") -> str:
    about = f" on {event.node_id}{f' {event.field}' if event.field else ''}" if event.node_id else ""
    said = f": {event.text}" if event.text else ""
    return f"{when(event.time)}  {event.by} {event.kind.lower()}{about} at {short(event.head_commit_id)}{said}"


@command("proposal comment", WORKSPACE)
def comment(
    cli: CliContext,
    number: NumberArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The comment.")],
    node: Annotated[
        str,
        typer.Option(help="The node that it is about.", autocompletion=completion.nodes),
        NODE_NAME,
    ] = "",
    field: Annotated[str, typer.Option(help="The field of that node, such as title or content.")] = "",
    agent: WhoOption = "",
) -> None:
    """Comment on a proposal, or on a node or field in it."""
    found = cli.workspace.comment(number, text, node=node or None, field=field, author=author_of(agent))
    cli.output.show(found, lambda: None)
    cli.output.done(f"The comment is on proposal {number}.")


CommitOption = Annotated[
    str,
    typer.Option("--commit", help="The commit that was reviewed; the present one of its branch when not given."),
]


@command("proposal approve", WORKSPACE)
def approve(
    cli: CliContext, number: NumberArgument, text: TextOption = "", commit: CommitOption = "", agent: WhoOption = ""
) -> None:
    """Approve a proposal of somebody else, as it is now."""
    seen = commit or cli.workspace.proposal(number).proposal.head_commit_id
    _tell(cli, cli.workspace.approve(number, seen, text, reviewer=author_of(agent)), "approved")


@command("proposal reject", WORKSPACE)
def reject(
    cli: CliContext,
    number: NumberArgument,
    text: Annotated[str, typer.Option("--message", "-m", help="Why.")],
    commit: CommitOption = "",
    agent: WhoOption = "",
) -> None:
    """Reject a proposal, which closes it; it can be reopened."""
    seen = commit or cli.workspace.proposal(number).proposal.head_commit_id
    _tell(cli, cli.workspace.reject(number, seen, text, reviewer=author_of(agent)), "rejected")


def _tell(cli: CliContext, review: "Review", verb: str) -> None:
    proposal = review.proposal
    cli.output.show(review, lambda: None)
    cli.output.done(f"Proposal {proposal.number} is {verb}.")
    if proposal.merge_commit_id:
        _tell_merged(cli, proposal)
    elif proposal.status == "OPEN":
        way_on = f"`memotree proposal merge {proposal.number}` merges it."
        cli.output.note(" ".join(review.blockers) or way_on)


def _tell_merged(cli: CliContext, proposal: "Proposal") -> None:
    cli.output.done(
        f"Proposal {proposal.number} is merged into {proposal.target_branch}, now at {short(proposal.merge_commit_id)}."
    )


@command("proposal merge", WORKSPACE)
def merge_proposal(
    cli: CliContext,
    number: NumberArgument,
    message: Annotated[
        str, typer.Option("--message", "-m", help="The commit message; one that names the proposal when not given.")
    ] = "",
    style: Annotated[
        StyleChoice,
        typer.Option(
            help="A commit with both sides as parents, the branch moved to the proposal, or a commit without its "
            "history."
        ),
    ] = StyleChoice.COMMIT,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete its branch then; the commits stay in Git.")
    ] = False,
    agent: WhoOption = "",
) -> None:
    """Merge a proposal into its target branch, if the protection of that allows it."""
    from memotree.client import MergeStyle  # noqa: PLC0415 - gRPC is loaded when the call is made

    made = cli.workspace.merge_proposal(
        number, style=MergeStyle[style.name], message=message, delete_branch=delete_branch, author=author_of(agent)
    )
    cli.output.show(made, lambda: None)
    _tell_merged(cli, made)


@command("proposal edit", WORKSPACE)
def edit(
    cli: CliContext,
    number: NumberArgument,
    title: Annotated[str | None, typer.Option(help="The new title.")] = None,
    description: Annotated[str | None, typer.Option("--description", "-d", help="The new description.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take it back.")] = False,
    reopen: Annotated[bool, typer.Option("--reopen", help="Open it again.")] = False,
    text: TextOption = "",
    agent: WhoOption = "",
) -> None:
    """Change what a proposal says, withdraw it, or open it again."""
    status = StatusChoice.WITHDRAWN if withdraw else StatusChoice.OPEN if reopen else None
    made = cli.workspace.change_proposal(
        number, title=title, description=description, status=word(status), text=text, author=author_of(agent)
    )
    cli.output.show(made, lambda: None)
    cli.output.done(f"Proposal {made.number} is {made.status.lower()}: {made.title}")
