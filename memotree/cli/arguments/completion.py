"""Shell completion: offers names from a running server, if it answers at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from memotree.cli.arguments.revision_names import revision
from memotree.cli.target import find_address, find_key, read_choice

if TYPE_CHECKING:
    from memotree.client import Client, Workspace

_FEW = 50
PATIENCE_SECONDS = 0.4
"""The timeout of a completion. A person waits at the prompt, so no answer is better than a late one."""


@contextmanager
def _client(context: typer.Context) -> "Iterator[Client]":
    from memotree.client import Client  # noqa: PLC0415 - imported only by completions that call the server

    address = find_address(context.params.get("address"))
    with Client(address, timeout=PATIENCE_SECONDS, attempts=1, key=find_key(address)) as client:
        yield client


@contextmanager
def _workspace(context: typer.Context) -> "Iterator[Workspace]":
    with _client(context) as client:
        name = context.params.get("workspace") or read_choice(client.address).workspace
        yield client.workspace(name)


def _offers(ask: Callable[[typer.Context], list[tuple[str, str]]]) -> Callable[[typer.Context, str], Any]:
    """A completion that offers the results of ``ask``, and nothing if that fails in any way."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        with suppress(Exception):  # a traceback in the middle of a command line would only disturb
            return [offer for offer in ask(context) if offer[0].startswith(incomplete)]
        return []

    return complete


def _workspaces(context: typer.Context) -> list[tuple[str, str]]:
    with _client(context) as client:
        return [(each.name, each.description) for each in client.workspaces()]


def _sessions(context: typer.Context) -> list[tuple[str, str]]:
    with _workspace(context) as workspace:
        return [(each.id, f"{each.agent} on {each.branch}") for each in workspace.sessions()]


def _branches(context: typer.Context) -> list[tuple[str, str]]:
    with _workspace(context) as workspace:
        return [(each.name, "branch") for each in workspace.branches()]


def _tags(context: typer.Context) -> list[tuple[str, str]]:
    with _workspace(context) as workspace:
        return [(each.name, "tag") for each in workspace.tags()]


def _archives(context: typer.Context) -> list[tuple[str, str]]:
    with _workspace(context) as workspace:
        return [(each.name, each.description) for each in workspace.archives()]


def _jobs(context: typer.Context) -> list[tuple[str, str]]:
    with _client(context) as client:
        return [(each.id, f"{each.kind} {each.subject}, {each.state.lower()}") for each in islice(client.jobs(), _FEW)]


def _nodes(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The titles that begin so; those that several nodes have as paths. A path is completed by its last title."""
    with _workspace(context) as workspace:
        place = context.params
        session = place.get("session") or read_choice(find_address(place.get("address"))).session
        here = workspace.at(revision(workspace, place.get("at") or "") or session)
        above, slash, begun = incomplete.rpartition("/")
        found = here.named(begun, prefix=True, max_candidates=_FEW)
        if slash:
            return [(each.path, each.node.id) for each in found if each.path.startswith(f"{above}/")]
        titles = [each.node.title for each in found]
        return [(each.path if titles.count(each.node.title) > 1 else each.node.title, each.node.id) for each in found]


def nodes(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offers the names of nodes; nothing if that fails in any way."""
    with suppress(Exception):  # a traceback in the middle of a command line would only disturb
        return _nodes(context, incomplete)
    return []


workspaces = _offers(_workspaces)
sessions = _offers(_sessions)
branches = _offers(_branches)
tags = _offers(_tags)
archives = _offers(_archives)
jobs = _offers(_jobs)
revisions = _offers(lambda context: _branches(context) + _tags(context))
