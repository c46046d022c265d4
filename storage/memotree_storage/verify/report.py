"""What a verification says: progress, and differences."""

from dataclasses import dataclass
from typing import Final

REBUILD: Final = "A rebuild of the workspace repairs it."


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is: what is compared now, units done and in all (0 when not known)."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be.

    Attributes:
        store: The store that is wrong: ``git``, ``postgres`` or ``qdrant``.
        what: What is wrong there: ``commit``, ``row``, ``placement``, ``line``, ``ref``, ``count``, ``term``,
            ``point``, ``passage``, ``file``, ``object``, ``outbox``, ``fault`` or ``workspace``.
        description: What is there, what should be, and how it is repaired.
        commit_id: The commit it concerns, or "".
        node_id: The node or archive it concerns, or "".
    """

    store: str
    what: str
    description: str
    commit_id: str = ""
    node_id: str = ""


def in_postgres(what: str, sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """A difference that a rebuild repairs in PostgreSQL."""
    return Difference("postgres", what, f"{sentence} {REBUILD}", commit_id, node_id)


def in_qdrant(sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """A wrong point, which a rebuild repairs."""
    return Difference("qdrant", "point", f"{sentence} {REBUILD}", commit_id, node_id)


def in_git(what: str, sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """A fault of the repository itself."""
    return Difference("git", what, sentence, commit_id, node_id)
