"""The errors of a name that should mean one node: a title, or a path of titles."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from memotree_storage.errors import FieldViolation, InvalidInputError, NotFoundError


class NoNodeNamedError(NotFoundError):
    """No node has this title or path."""

    reason = "NO_NODE_NAMED"

    def __init__(self, field: str, name: str, next_step: str) -> None:
        super().__init__(f"{field}: No node has the id, title or path {name[:100]!r}. {next_step}", "node", name)


class AmbiguousNodeNameError(InvalidInputError):
    """Several nodes have this title or path; ``nodes`` lists them."""

    reason = "AMBIGUOUS_NODE_NAME"
    nodes: Sequence[Any] = ()

    @classmethod
    def among(cls, field: str, name: str, nodes: Sequence[Any], told: Iterable[str]) -> Self:
        """The error that lists the candidates; ``told`` has the id of each, and what tells it from the others."""
        sentence = f"{name[:100]!r} could be each of these nodes; give the id of one: {', '.join(told)}."
        error = cls(f"{field}: {sentence}", [FieldViolation(field, sentence)])
        error.nodes = tuple(nodes)
        return error
