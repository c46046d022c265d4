"""How help is shown: an on/off option takes no value, and the first page lists its commands in the order of its headings."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from memotree.cli.examples import PANELS

if TYPE_CHECKING:
    from typer import Context

_ORDER = {name: place for place, name in enumerate(name for names in PANELS.values() for name in names)}


def _without_flag_values(parameters: list[Any]) -> list[Any]:
    """The parameters; Typer shows the type ``<bool>`` beside flags, which take no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


class HelpfulCommand(TyperCommand):
    """A command whose help shows no value for on/off options."""

    def get_params(self, ctx: "Context") -> list[Any]:
        """All parameters of the command, with those that Typer adds."""
        return _without_flag_values(super().get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group of commands whose help shows no value for on/off options."""

    def get_params(self, ctx: "Context") -> list[Any]:
        """All parameters of the group, with those that Typer adds."""
        return _without_flag_values(super().get_params(ctx))


class FirstPage(HelpfulGroup):
    """The group of all commands."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """The commands and groups, in the order in which the headings name them."""
        return sorted(super().list_commands(ctx), key=_ORDER.__getitem__)
