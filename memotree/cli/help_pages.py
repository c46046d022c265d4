"""How help is shown: an on/off option takes no value, and the first page lists its commands under headings in order."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

from memotree.cli.examples import PANELS

_ORDER = {name: place for place, name in enumerate(name for names in PANELS.values() for name in names)}


def _without_flag_values(parameters: list[Any]) -> list[Any]:
    """The parameters; Typer shows the type ``<bool>`` beside flags, which take no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


class HelpfulCommand(TyperCommand):
    """A command whose help shows no value for on/off options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters of the command, with those that Typer adds."""
        return _without_flag_values(super().get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group of commands whose help shows no value for on/off options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters of the group, with those that Typer adds."""
        return _without_flag_values(super().get_params(ctx))


class FirstPage(HelpfulGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands and groups, in the order in which the headings name them."""
        return sorted(super().list_commands(ctx), key=_ORDER.__getitem__)
