"""Receipts: how an answer of recall came about, so that the same answer can be given again.

A commit never changes, so most of an answer follows from the commit, the question and the settings. Two inputs are not
part of the commit, and a receipt records them: the time at which nodes had to hold, and in how many versions of the
workspace the words of the question occurred, which later commits and other branches change.
"""

import hashlib
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, NotFoundError
from memotree_storage.index.frequencies import Frequencies
from memotree_storage.model.node import is_id
from memotree_storage.model.validity import LAST
from memotree_storage.model.workspace import WorkspaceNotFoundError

from memotree.forest.recall.filters import Filter
from memotree.forest.recall.question import Question
from memotree.forest.recall.state_view import SessionMovedError, StateView
from memotree.v1 import forest_service_pb2 as pb

METHOD: Final = "recall-3"
"""The version of the method. Change it when the answer to any question changes."""


_COMMIT: Final = re.compile("[0-9a-f]{40}")
_SHOWN: Final = 100
_PAIR: Final = struct.Struct("<II")


class ReceiptNotRepeatableError(FailedPreconditionError):
    """The answer of a receipt cannot be given again, because something that it came from is another now."""

    reason = "RECEIPT_NOT_REPEATABLE"

    @classmethod
    def of(cls, why: str) -> "ReceiptNotRepeatableError":
        """The error with its cause."""
        return cls(f"The answer of this receipt cannot be given again: {why}. Ask without the receipt.")


def request_again(request: pb.RecallRequest) -> pb.RecallRequest:
    """Returns a request with the settings of its receipt; a request without a receipt is returned as it is.

    Raises:
        InvalidInputError: If the query is not that of the receipt, or another field is set, too.
    """
    if not request.HasField("receipt"):
        return request
    receipt = request.receipt
    if _hash(request.query) != receipt.query_sha256:
        raise InvalidInputError.at("query", "is not the one that the receipt is about; its SHA-256 differs.")
    for name in ("revision", "strategy", "top_k", "token_budget", "filter"):
        if getattr(request, name) != getattr(pb.RecallRequest(), name):
            raise InvalidInputError.at(name, "comes from the receipt; leave it out.")
    is_named = _COMMIT.fullmatch(receipt.commit_id) and (not receipt.session_id or is_id(receipt.session_id))
    if not is_named or not receipt.HasField("moment"):
        raise InvalidInputError.at("receipt", "is not a whole receipt; send the one of an answer as it is.")
    return pb.RecallRequest(
        workspace=request.workspace,
        revision=receipt.session_id or receipt.commit_id,
        query=request.query,
        strategy=receipt.strategy,
        top_k=receipt.top_k,
        token_budget=receipt.token_budget,
        budget_covers_text=receipt.budget_covers_text,
        filter=receipt.filter,
        include_trace=request.include_trace,
        receipt=receipt,
    )


@contextmanager
def answering(receipt: pb.RecallReceipt | None) -> Iterator[None]:
    """Within it, errors about the state or the settings of a receipt say that they are about the receipt.

    Raises:
        ReceiptNotRepeatableError: If the commit or the session of the receipt does not exist any more.
        InvalidInputError: If a value of the receipt is none that an answer had.
    """
    try:
        yield
    except (NotFoundError, SessionMovedError) as error:
        if receipt is None or isinstance(error, WorkspaceNotFoundError):
            raise
        raise ReceiptNotRepeatableError.of(f"what it was about is gone. {error.message}") from error
    except InvalidInputError as error:
        if receipt is None or any(fault.field in {"query", "receipt"} for fault in error.violations):
            raise
        raise InvalidInputError.at("receipt", f"is none that an answer had. {error.message}") from error


def check_view(receipt: pb.RecallReceipt, view: StateView) -> None:
    """Checks that a state is the one that a receipt is about.

    Raises:
        ReceiptNotRepeatableError: If the session has other changes or another base now.
    """
    if (receipt.commit_id, receipt.session_digest) != (view.state.commit_id, view.digest):
        raise ReceiptNotRepeatableError.of(
            "it was about staged changes of a session, and these have been changed or committed since"
        )


def check_method(receipt: pb.RecallReceipt, embedding_model: str, rerank_model: str) -> None:
    """Checks that an answer is made as it was for the receipt.

    Raises:
        ReceiptNotRepeatableError: If the method or a model is another one.
    """
    for what, before, now in (
        ("method of ranking", receipt.method, METHOD),
        ("embedding model", receipt.embedding_model, embedding_model),
        ("reranking model", receipt.rerank_model, rerank_model),
    ):
        if before != now:
            raise ReceiptNotRepeatableError.of(f"the {what} was {before[:_SHOWN] or 'none'} and is {now or 'none'} now")


def moment_of(receipt: pb.RecallReceipt) -> float:
    """Returns the time at which nodes had to hold, in seconds since 1970.

    Raises:
        InvalidInputError: If it is no time.
    """
    try:
        return min(receipt.moment.ToMicroseconds() / 1e6, LAST)
    except ValueError as error:
        raise InvalidInputError.at(
            "receipt.moment", "is not a time; send the receipt of an answer as it is."
        ) from error


def term_counts_of(receipt: pb.RecallReceipt) -> Frequencies | None:
    """Returns the frequencies that a receipt records, if they counted.

    Raises:
        InvalidInputError: If they cannot be read.
    """
    if not receipt.HasField("indexed_versions"):
        return None
    if len(receipt.term_counts) % _PAIR.size:
        raise InvalidInputError.at("receipt.term_counts", "is not whole; send the receipt as it is.")
    return Frequencies(dict(_PAIR.iter_unpack(receipt.term_counts)), receipt.indexed_versions)


def make_receipt(
    asked: Question, view: StateView, given: pb.RecallFilter, wanted: Filter, models: tuple[str, str]
) -> pb.RecallReceipt:
    """Returns a receipt without what was dropped and without the hash of the answer.

    Args:
        asked: The question, after it was answered.
        view: The state that was read.
        given: The filter as it was given; at the same state it means the same.
        wanted: The filter as it was read.
        models: The embedding model and the reranking model ("" for none).
    """
    receipt = pb.RecallReceipt(
        commit_id=view.state.commit_id,
        session_id=view.state.session_id or "",
        session_digest=view.digest,
        query_sha256=_hash(asked.text),
        strategy=asked.strategy,
        top_k=asked.top_k,
        token_budget=asked.budget,
        budget_covers_text=asked.covers_text,
        filter=given,
        method=METHOD,
        embedding_model=models[0],
        rerank_model=models[1],
        selected_archives=asked.selected,
    )
    receipt.moment.FromMicroseconds(round(wanted.moment * 1e6))
    if asked.term_counts is not None:
        receipt.indexed_versions = asked.term_counts.versions
        receipt.term_counts = b"".join(_PAIR.pack(*pair) for pair in sorted(asked.term_counts.having.items()))
    return receipt


def answer_hash(answer: pb.RecallResponse) -> str:
    """Returns the SHA-256 of an answer: of the ids and versions of its nodes, and of its text."""
    found = [*(one for passage in answer.passages for one in passage.nodes), *answer.nodes]
    return _hash("\n".join([*(f"{one.node.id} {one.node.etag}" for one in found), answer.text]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
