"""Options that choose some of the changes of a merge, pick or revert."""

from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.arguments.node_names import NODE_NAME

if TYPE_CHECKING:
    from memotree.client import ChangeSelection

_AGAIN = "may be given several times"

OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help=f"Only changes of this node or archive; {_AGAIN}."), NODE_NAME
]
BelowOption = Annotated[
    list[str] | None, typer.Option("--below", help=f"Only changes of this and of all below it; {_AGAIN}."), NODE_NAME
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help=f"Only changes of nodes with this tag; {_AGAIN}.")]
ByOption = Annotated[
    list[str] | None, typer.Option("--by", help=f"Only changes that this agent committed last; {_AGAIN}.")
]


def selection(
    only: list[str] | None, below: list[str] | None, tags: list[str] | None, agents: list[str] | None
) -> "ChangeSelection | None":
    """The chosen changes; ``None`` for all."""
    if not any((only, below, tags, agents)):
        return None
    from memotree.client import ChangeSelection  # noqa: PLC0415 - gRPC is loaded when the call is made

    return ChangeSelection(only or (), below or (), tags or (), agents or ())
