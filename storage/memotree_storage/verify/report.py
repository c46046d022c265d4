"""The results of a verification: progress and differences."""

from dataclasses import dataclass
from typing import Final

REBUILD: Final = "A rebuild of the workspace repairs it."


@dataclass(frozen=True, slots=True)
class Step:
    """Progress: what is being compared, units done and units in total (0 if unknown)."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is wrong.

    Attributes:
        store: The store that is wrong: ``git``, ``postgres`` or ``qdrant``; or ``cache``, the memory of the server.
        what: The kind of thing that is wrong: ``commit``, ``row``, ``placement``, ``line``, ``ref``, ``count``,
            ``term``, ``point``, ``passage``, ``file``, ``object``, ``outbox``, ``fault``, ``tree``,
            ``node``, ``record`` or ``workspace``.
        description: The actual state, the expected state, and how to repair it.
        commit_id: The commit that it is about, or "".
        node_id: The node or archive that it is about, or "".
    """

    store: str
    what: str
    description: str
    commit_id: str = ""
    node_id: str = ""


def in_postgres(what: str, sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """Report a difference in PostgreSQL, which a rebuild repairs."""
    return Difference("postgres", what, f"{sentence} {REBUILD}", commit_id, node_id)


def in_qdrant(sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """Report a wrong point, which a rebuild repairs."""
    return Difference("qdrant", "point", f"{sentence} {REBUILD}", commit_id, node_id)


def in_git(what: str, sentence: str, *, commit_id: str = "", node_id: str = "") -> Difference:
    """Report a fault of the repository itself."""
    return Difference("git", what, sentence, commit_id, node_id)
