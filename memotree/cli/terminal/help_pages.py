"""How help and commands are found: flags take no value, headings have an order, and other names of commands work."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

from memotree.cli.terminal.command_names import ALIASES, unknown_command
from memotree.cli.terminal.examples import PANELS

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
    """A group whose help shows no value for on/off options, and whose commands have other names, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters of the group, with those that Typer adds."""
        return _without_flag_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command with this name, else the one for which it is another name."""
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, ALIASES.get(cmd_name, ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first argument names, and the others.

        Raises:
            typer.TyperException: There is none; the message says what it may have meant.
        """
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name)):
            top = ctx.find_root()
            path = "" if ctx is top else str(self.name)
            ctx.fail(unknown_command(name, self.commands, path, top.command.commands))
        return super().resolve_command(ctx, args)


class FirstPage(HelpfulGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands and groups, in the order in which the headings name them."""
        return sorted(super().list_commands(ctx), key=_ORDER.__getitem__)
