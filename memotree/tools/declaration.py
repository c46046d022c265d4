"""What a program is told about a tool, whichever kind it is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Action = Literal["read", "write", "delete", "execute"]


@dataclass(frozen=True, slots=True)
class Permission:
    """Something that a tool may do.

    Attributes:
        action: What it does.
        resource: To what: ``workspace``, ``server``, ``folder`` or ``host``.
    """

    action: Action
    resource: str


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """A tool as it is declared over every interface; there is one for each tool, so it can be the key of a cache.

    Attributes:
        name: The unique name, in snake_case.
        title: A title for people.
        description: What it does and when to use it.
        category: What it is about.
        parameters: The JSON Schema (2020-12) of its arguments.
        read_only: Whether it changes nothing.
        destructive: Whether it may delete or overwrite something.
        idempotent: Whether the same call again has no further effect.
        open_world: Whether it reaches beyond the server.
        permissions: What it may do, to what.
        examples: Arguments of typical calls.
    """

    name: str
    title: str
    description: str
    category: str
    parameters: Mapping[str, Any]
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool = False
    permissions: tuple[Permission, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The declaration as JSON; every key is always present."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "category": self.category,
            "parameters": dict(self.parameters),
            "read_only": self.read_only,
            "destructive": self.destructive,
            "idempotent": self.idempotent,
            "open_world": self.open_world,
            "permissions": [asdict(permission) for permission in self.permissions],
            "examples": [dict(example) for example in self.examples],
        }
