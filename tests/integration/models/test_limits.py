"""Limits of model calls: simultaneous calls, the budget, and how long answers are kept."""

import asyncio

import pytest
from endpoints import ModelEndpoint
from integration.models.samples import CHINESE_TEXT, TEXT, MakeModels, until
from memotree_storage.model.tokens import count_tokens
from memotree_storage.postgres import answers
from memotree_storage.postgres.database import Database

from memotree.models.embedding import BATCH_TEXTS
from memotree.models.meter import BudgetExhaustedError, Meter

pytestmark = pytest.mark.requirement("FOREST-12")


async def test_the_number_of_simultaneous_calls_is_limited(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect(model_concurrency=3)
    endpoint.hold()
    work = asyncio.gather(*(models.summarise_text(f"{TEXT} {number}", meter) for number in range(12)))
    await until(lambda: endpoint.at_once == 3)
    endpoint.release()
    await work
    assert (endpoint.most_at_once, len(endpoint.chat_calls)) == (3, 12)


async def test_a_budget_stops_before_the_call_that_would_exceed_it(
    connect: MakeModels, endpoint: ModelEndpoint
) -> None:
    models = await connect()
    meter = Meter(max_tokens=1_000)
    results = await asyncio.gather(
        *(models.summarise_text(f"{TEXT} {number}", meter) for number in range(5)), return_exceptions=True
    )
    refused = sum(isinstance(result, BudgetExhaustedError) for result in results)
    assert 0 < refused < 5
    assert len(endpoint.chat_calls) == 5 - refused
    assert meter.tokens <= 1_000
    resumed = Meter(max_tokens=10_000, spent=meter.tokens)
    for number in range(5):
        await models.summarise_text(f"{TEXT} {number}", resumed)
    assert len(endpoint.chat_calls) == 5, "what was made before the stop is not paid for again"


async def test_unused_answers_are_deleted(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter, database: Database
) -> None:
    models = await connect()
    await models.summarise_text(TEXT, meter)
    await models.summarise_text(CHINESE_TEXT, meter)
    async with database.connection() as conn:
        await conn.execute("update work.model_answer set used_at = now() - interval '100 days'")
    await models.summarise_text(TEXT, meter)
    async with database.connection() as conn:
        assert await answers.forget_unused(conn, answers.UNUSED) == 2, "the other text, and the length of the vectors"
    await models.summarise_text(TEXT, meter)
    assert len(endpoint.chat_calls) == 2


async def test_the_answer_of_a_running_batch_is_kept_if_the_next_one_would_exceed_the_budget(
    connect: MakeModels, endpoint: ModelEndpoint
) -> None:
    models = await connect()
    before = len(endpoint.embedding_calls)
    texts = [f"Text number {number}" for number in range(2 * BATCH_TEXTS)]
    meter = Meter(max_tokens=int(BATCH_TEXTS * count_tokens(texts[-1]) * 1.5))
    with pytest.raises(BudgetExhaustedError):
        await models.embed(texts, meter)
    assert len(endpoint.embedding_calls) == before + 1
    assert meter.tokens > 0
    paid = endpoint.embedding_calls[-1]["input"]
    again = Meter()
    await models.embed(paid, again)
    assert len(endpoint.embedding_calls) == before + 1
    assert sum(usage.cached for usage in again.usage) == len(paid)
