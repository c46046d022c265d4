"""Arguments and options that several commands share, and their choices."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.errors import CliError


class BadPairError(CliError):
    """An attribute does not have the form NAME=VALUE."""

    reason = "BAD_PAIR"


class LevelChoice(StrEnum):
    """The levels of detail."""

    TITLE = "title"
    BRIEF = "brief"
    SUMMARY = "summary"
    DETAIL = "detail"


class RelationChoice(StrEnum):
    """The types of relations."""

    REFERENCES = "references"
    INSPIRED_BY = "inspired_by"
    CONTRADICTS = "contradicts"
    EXTENDS = "extends"
    DEPENDS_ON = "depends_on"
    SUPERSEDES = "supersedes"
    PART_OF = "part_of"
    ABOUT = "about"


class SearchChoice(StrEnum):
    """The types of search."""

    FULL_TEXT = "full_text"
    SEMANTIC = "semantic"
    RELATION = "relation"
    HYBRID = "hybrid"


class ModeChoice(StrEnum):
    """How given values are combined with the present ones."""

    MERGE = "merge"
    REPLACE = "replace"
    APPEND = "append"
    PREPEND = "prepend"


def word(choice: StrEnum | None) -> Any:
    """The contract's word for a choice."""
    return None if choice is None else choice.value.upper()


def pairs(given: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` arguments as a mapping."""
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadPairError(f"{pair!r} is not an attribute: write NAME=VALUE.")
        found[name] = value
    return found


NODE_HELP = "The node: its id, the first characters of that (4+), its title, or its path ARCHIVE/TITLE/TITLE."
NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help=NODE_HELP, autocompletion=completion.nodes), NODE_NAME
]
LevelOption = Annotated[
    LevelChoice, typer.Option("--level", "-l", case_sensitive=False, help="How much of a node to show.")
]
MessageOption = Annotated[str, typer.Option("--message", "-m", help="The reason; kept in the body of the commit.")]
EtagOption = Annotated[str, typer.Option("--etag", help="Refuse the change unless the node still has this version.")]
ArchiveOption = Annotated[
    str,
    typer.Option("--archive", "-a", help="The archive: name, id or unique prefix.", autocompletion=completion.archives),
]
ContentOption = Annotated[str | None, typer.Option("--content", "-c", help="The text; `-` reads stdin.")]
FileOption = Annotated[str | None, typer.Option("--file", "-f", help="Read the text from a file; `-` is stdin.")]
EditOption = Annotated[bool, typer.Option("--edit", "-e", help="Write the text in $VISUAL or $EDITOR.")]
TagsOption = Annotated[list[str], typer.Option("--tag", "-t", help="A tag; may be given several times.")]
AttributesOption = Annotated[
    list[str], typer.Option("--attribute", metavar="NAME=VALUE", help="An attribute; may be given several times.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
