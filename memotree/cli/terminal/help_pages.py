"""How help and commands are found: flags take no value, headings have an order, and other names of commands work.

A listed command is only its name and the line of the table; what it needs is imported when it is used.
"""

from collections.abc import Callable, Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from memotree.cli.terminal.command_names import ALIASES, unknown_command
from memotree.cli.terminal.command_table import COMMANDS, GROUPS
from memotree.cli.terminal.examples import PANELS, panel
from memotree.cli.terminal.plain_values import read_plainly

_ORDER = {name: place for place, name in enumerate(name for names in PANELS.values() for name in names)}


def _as_ours(parameters: list[Any]) -> list[Any]:
    """The parameters; Typer shows the type ``<bool>`` beside flags, which take no value, and reads all by pydantic."""
    for each in parameters:
        read_plainly(each)
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


class HelpfulCommand(TyperCommand):
    """A command whose help shows no value for on/off options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters of the command, with those that Typer adds."""
        return _as_ours(super().get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group whose help shows no value for on/off options, and whose commands have other names, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters of the group, with those that Typer adds."""
        return _as_ours(super().get_params(ctx))

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
            path = "" if ctx is ctx.find_root() else str(self.name)
            ctx.fail(unknown_command(name, self.commands, path))
        return super().resolve_command(ctx, args)


class ListedCommand(TyperCommand):
    """A command as lists show it; it becomes the command itself when its arguments are read.

    Args:
        path: What names the command after ``memotree``.
        load: Imports a command by its path.
    """

    def __init__(self, path: str, load: Callable[[str], Any]) -> None:
        group, _, name = path.rpartition(" ")
        super().__init__(name, help=COMMANDS[path].line, rich_help_panel=None if group else panel(name))
        self._path = path
        self._load = load

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself."""
        return self._load(self._path).make_context(info_name, args, parent, **extra)


def listed(load: Callable[[str], Any]) -> Iterator[HelpfulGroup | ListedCommand]:
    """All commands and groups of the top level."""
    for path in COMMANDS:
        if " " not in path:
            yield ListedCommand(path, load)
    for name, line in GROUPS.items():
        below = [ListedCommand(path, load) for path in COMMANDS if path.startswith(f"{name} ")]
        yield HelpfulGroup(name=name, commands=below, help=line, no_args_is_help=True, rich_help_panel=panel(name))


class FirstPage(HelpfulGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands and groups, in the order in which the headings name them."""
        return sorted(super().list_commands(ctx), key=_ORDER.__getitem__)
