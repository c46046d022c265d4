"""Reads which of the changes of the other side a request wants."""

from collections.abc import Iterable
from typing import Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.change_selection import Selection
from memotree_storage.model.node import is_id_prefix

from memotree.request.lookup import InvalidIdError
from memotree.v1 import history_service_pb2 as pb

_MOST: Final = 1000

Request = pb.PreviewMergeRequest | pb.MergeBranchRequest | pb.RevertCommitRequest | pb.CherryPickRequest


def read_selection(request: Request) -> Selection | None:
    """The selection of a request; ``None`` for all changes.

    Raises:
        InvalidInputError: A criterion has too many values, or empty ones.
        InvalidIdError: A name of a node cannot be an id.
    """
    if not request.HasField("only"):
        return None
    only = request.only
    for name, values in (("tags", only.tags), ("agents", only.agents)):
        for number, value in enumerate(_few(f"only.{name}", values)):
            if not value:
                raise InvalidInputError.at(f"only.{name}[{number}]", "is empty.")
    selection = Selection(
        _ids("only.node_ids", only.node_ids),
        _ids("only.subtree_ids", only.subtree_ids),
        tuple(only.tags),
        tuple(only.agents),
    )
    if not selection:
        raise InvalidInputError.at("only", "is empty; leave it out to bring all changes.")
    return selection


def _ids(field: str, texts: Iterable[str]) -> tuple[str, ...]:
    found = _few(field, texts)
    for number, text in enumerate(found):
        if not is_id_prefix(text):
            raise InvalidIdError.of(f"{field}[{number}]", text)
    return found


def _few(field: str, values: Iterable[str]) -> tuple[str, ...]:
    found = tuple(values)
    if len(found) > _MOST:
        raise InvalidInputError.at(field, f"has more than {_MOST} values.")
    return found
