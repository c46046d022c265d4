"""Questions of the same moment in one request: a hybrid search asks for vectors and for terms at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc
from qdrant_client import grpc as wire

_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""The server does not answer at all, so there is no use in asking again."""

_MOST: Final = 8
"""Questions in one request, twice what a hybrid search asks; its slowest question delays the answer to all."""

Answers = Sequence[wire.BatchResult]
_Send = Callable[[list[wire.QueryPoints]], Awaitable[Answers]]
_Batch = list[tuple[list[wire.QueryPoints], asyncio.Future[Answers]]]


class QuestionBatches:
    """Sends the questions that tasks ask in one turn of the event loop in one request.

    If the server refuses the questions of several tasks, those of each are sent alone, so that one task's fault fails
    only its own.

    Args:
        send: Sends a request with some questions and returns their answers in order.
    """

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._waiting: _Batch = []
        self._sending: set[asyncio.Task[None]] = set()

    async def ask(self, questions: list[wire.QueryPoints]) -> Answers:
        """Return the answers to some questions in order; raise what ``send`` raises."""
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[Answers] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._start)
        self._waiting.append((questions, answers))
        return await answers

    def _start(self) -> None:
        """Start the requests for all questions that wait."""
        waiting, self._waiting = self._waiting, []
        batch: _Batch = []
        for one in waiting:
            if batch and sum(len(questions) for questions, _ in batch) + len(one[0]) > _MOST:
                self._start_one(batch)
                batch = []
            batch.append(one)
        self._start_one(batch)

    def _start_one(self, batch: _Batch) -> None:
        task = asyncio.create_task(self._run(batch))
        self._sending.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._sending.discard)

    async def _run(self, batch: _Batch) -> None:
        try:
            found = await self._send([question for questions, _ in batch for question in questions])
        except asyncio.CancelledError:
            for _, answers in batch:
                answers.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, those who asked get it
            if len(batch) > 1 and not _is_away(error):  # one question may be at fault, which the others did not ask
                for one in batch:
                    self._start_one([one])
                return
            for _, answers in batch:
                if not answers.done():
                    answers.set_exception(error)
            return
        start = 0
        for questions, answers in batch:
            if not answers.done():  # whoever asked was cancelled otherwise
                answers.set_result(found[start : start + len(questions)])
            start += len(questions)


def _is_away(error: Exception) -> bool:
    return isinstance(error, grpc.aio.AioRpcError) and error.code() in _AWAY
