"""Questions of one moment go in one request; each asker gets the own answers, or the failure."""

import asyncio
from collections.abc import Sequence

import grpc
import pytest
from memotree_storage.qdrant.batches import QuestionBatches
from qdrant_client import grpc as wire


class Server:
    """Answers each question with a hit whose version is the question's limit."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.failing = self.away = False
        self.refused = -1
        self.asked = asyncio.Event()

    async def send(self, questions: list[wire.QueryPoints]) -> Sequence[wire.BatchResult]:
        self.requests.append([question.limit for question in questions])
        self.asked.set()
        await asyncio.sleep(0)
        if self.away:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
        if self.failing or self.refused in [question.limit for question in questions]:
            raise ValueError("the server refuses")
        return [wire.BatchResult(result=[wire.ScoredPoint(version=question.limit)]) for question in questions]


def questions(*limits: int) -> list[wire.QueryPoints]:
    return [wire.QueryPoints(limit=limit) for limit in limits]


def limits(answers: Sequence[wire.BatchResult]) -> list[int]:
    return [answer.result[0].version for answer in answers]


async def test_questions_of_one_turn_are_one_request() -> None:
    server = Server()
    batches = QuestionBatches(server.send)
    both = await asyncio.gather(batches.ask(questions(1, 2)), batches.ask(questions(3)))
    assert [limits(answers) for answers in both] == [[1, 2], [3]]
    assert server.requests == [[1, 2, 3]]
    assert limits(await batches.ask(questions(4))) == [4]
    assert server.requests == [[1, 2, 3], [4]]


async def test_many_questions_are_several_requests() -> None:
    server = Server()
    batches = QuestionBatches(server.send)
    all_answers = await asyncio.gather(*(batches.ask(questions(2 * n, 2 * n + 1)) for n in range(6)))
    assert [limits(answers) for answers in all_answers] == [[2 * n, 2 * n + 1] for n in range(6)]
    assert server.requests == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]]
    await batches.ask(questions(*range(20)))
    assert server.requests[2:] == [list(range(20))], "the questions of one asker stay together"


@pytest.mark.parametrize("fault", ["failing", "away"])
async def test_everyone_who_asked_gets_the_failure(fault: str) -> None:
    server = Server()
    batches = QuestionBatches(server.send)
    setattr(server, fault, True)
    found = await asyncio.gather(batches.ask(questions(1)), batches.ask(questions(2)), return_exceptions=True)
    assert [type(error) for error in found] == [{"failing": ValueError, "away": grpc.aio.AioRpcError}[fault]] * 2
    assert fault == "failing" or server.requests == [[1, 2]], "one that is away is not asked once more"
    setattr(server, fault, False)
    assert limits(await batches.ask(questions(3))) == [3]


async def test_a_question_that_is_refused_fails_only_who_asked_it() -> None:
    server = Server()
    server.refused = 2
    batches = QuestionBatches(server.send)
    found = await asyncio.gather(*(batches.ask(questions(number)) for number in (1, 2, 3)), return_exceptions=True)
    shown = [str(each) if isinstance(each, Exception) else limits(each) for each in found]
    assert shown == [[1], "the server refuses", [3]]


async def test_who_is_cancelled_takes_nothing_from_the_others() -> None:
    server = Server()
    batches = QuestionBatches(server.send)
    gone, other = (asyncio.create_task(batches.ask(questions(number))) for number in (1, 2))
    await server.asked.wait()
    gone.cancel()
    assert limits(await other) == [2]
    with pytest.raises(asyncio.CancelledError):
        await gone
