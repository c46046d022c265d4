"""Summaries over HTTP, the real SDK and PostgreSQL: a failed call is repeated, or a built-in summary is used."""

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from endpoints import CHAT_MODEL, KEY, ModelEndpoint
from integration.models.samples import CHINESE_TEXT, IMPATIENT, TEXT, TIRELESS, MakeModels, of, until
from memotree_storage.postgres import answers
from memotree_storage.store import Store
from model_answers import Fault, first_words, input_data

from memotree.models.cache import AnswerCache, key_of, one_batch
from memotree.models.extractive import MADE_BY, SUMMARY_CHARS, digest_of, summary_of
from memotree.models.meter import Meter
from memotree.models.model_errors import RetryPolicy

pytestmark = pytest.mark.requirement("FOREST-12")


async def test_a_summary_comes_from_the_chat_model_and_names_it(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    summary = await models.summarise_text(TEXT, meter)
    assert summary.text == first_words(TEXT)
    assert (summary.made_by, summary.pending) == (f"{CHAT_MODEL} leaf_summary@1", False)
    assert endpoint.keys == {KEY}
    assert models.has_chat
    used = of("chat", meter)
    assert (used.calls, used.completion_tokens, used.cached) == (1, 20, 0)
    assert used.prompt_tokens > 100


async def test_a_parents_summary_is_made_from_its_childrens_summaries(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    summary = await (await connect()).summarise_children(["The first child.", "The second child."], meter)
    assert summary.text == "The first child. / The second child."
    assert summary.made_by == f"{CHAT_MODEL} parent_summary@1"
    assert input_data(endpoint.chat_calls[0]) == {"child_summaries": ["The first child.", "The second child."]}


async def test_a_text_is_sent_once_to_each_model_even_after_a_restart(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    found = await asyncio.gather(*(models.summarise_text(TEXT, meter) for _ in range(5)))
    again = await (await connect()).summarise_text(TEXT, meter)
    assert {*found, again} == {again}
    assert len(endpoint.chat_calls) == 1
    assert (of("chat", meter).calls, of("chat", meter).cached) == (1, 5)
    await (await connect(chat_model="another-model")).summarise_text(TEXT, meter)
    await (await connect()).summarise_text(f"{TEXT} More.", meter)
    assert len(endpoint.chat_calls) == 3


async def test_an_answer_that_arrived_before_a_cancellation_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops would pay for it again."""
    cache, begun, proceed = AnswerCache(store.database), asyncio.Event(), asyncio.Event()
    keep = answers.keep

    async def late(*arguments: Any) -> None:
        begun.set()
        await proceed.wait()
        await keep(*arguments)

    async def make(keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict.fromkeys(keys, b"paid")

    monkeypatch.setattr(answers, "keep", late)
    asked = asyncio.create_task(cache.answers("summary", "a model", [key_of("x")], make, one_batch))
    await begun.wait()
    asked.cancel()
    await asyncio.sleep(0)
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await cache.find([key_of("x")]) == {key_of("x"): b"paid"}


async def test_a_caller_that_waits_for_a_cancelled_shared_call_makes_the_call_itself(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    endpoint.hold()
    first = asyncio.create_task(models.summarise_text(TEXT, meter))
    await until(lambda: len(endpoint.chat_calls) == 1)
    second = asyncio.create_task(models.summarise_text(TEXT, meter))
    first.cancel()
    endpoint.release()
    assert not (await second).pending
    assert len(endpoint.chat_calls) == 2


TEMPORARY = (
    *(Fault.BUSY, Fault.BROKEN, Fault.CLOSED, Fault.CUT_BODY, Fault.HALF_JSON, Fault.NO_JSON, Fault.EMPTY_CHOICES),
    *(Fault.PROSE, Fault.CUT_OFF, Fault.OTHER_LANGUAGE),
)
OF_VECTORS_OR_LATE = {Fault.WRONG_DIMENSION, Fault.TOO_FEW, Fault.NAN, Fault.TOO_LONG, Fault.SLOW, Fault.RAW}


async def test_after_a_temporary_fault_the_call_is_repeated_and_the_summary_is_made(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    for fault, language in product(TEMPORARY, (TEXT, CHINESE_TEXT)):
        calls, text = len(endpoint.chat_calls), f"{language} {fault.name}"
        endpoint.fail_next(fault)
        summary = await models.summarise_text(text, meter)
        assert (summary.text, summary.pending) == (first_words(text), False), text
        assert len(endpoint.chat_calls) == calls + 2, text
    assert not meter.warnings


async def test_a_permanent_fault_leaves_a_pending_built_in_summary(
    connect: MakeModels, endpoint: ModelEndpoint
) -> None:
    models = await connect(TIRELESS)
    texts = {fault: f"{TEXT} {fault.name}" for fault in Fault if fault not in OF_VECTORS_OR_LATE}
    for fault, text in texts.items():
        meter = Meter()
        endpoint.fail_always(fault)
        summary = await models.summarise_text(text, meter)
        assert (summary.text, summary.made_by, summary.pending) == (summary_of("", text), MADE_BY, True), fault
        parent = await models.summarise_children([text, "Another."], meter)
        assert (parent.text, parent.pending) == (digest_of([text, "Another."]), True), fault
        assert meter.warnings, fault
        assert KEY not in str(meter.warnings), fault
    endpoint.recover()
    again = await connect()
    for fault, text in texts.items():
        assert not (await again.summarise_text(text, Meter())).pending, f"a stand-in was kept as the answer: {fault}"


async def test_a_call_without_an_answer_times_out(connect: MakeModels, endpoint: ModelEndpoint, meter: Meter) -> None:
    endpoint.fail_always(Fault.SLOW, on="chat")
    models = await connect(RetryPolicy(timeout=1.0, attempts=2, first_wait=0.001, longest_wait=0.002))
    assert (await models.summarise_text(TEXT, meter)).pending
    assert len(endpoint.chat_calls) == 2
    assert "too slow" in meter.warnings[0]


async def test_the_wait_that_the_endpoint_requests_is_respected(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = await connect()
    endpoint.fail_next(Fault.BUSY, retry_after="30")
    waits: list[float] = []
    sleep = asyncio.sleep

    async def at_once(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    assert not (await models.summarise_text(TEXT, meter)).pending
    assert [wait for wait in waits if 30 <= wait < 33] == [max(waits)]


async def test_an_error_that_a_retry_cannot_fix_is_not_retried(connect: MakeModels, endpoint: ModelEndpoint) -> None:
    models = await connect(TIRELESS)
    for fault in (Fault.UNAUTHORIZED, Fault.UNKNOWN_MODEL, Fault.NO_MONEY, Fault.REFUSAL, Fault.BUSY):
        calls = len(endpoint.chat_calls)
        endpoint.fail_always(fault, retry_after="7200")  # nor is one waited for that asks for hours
        assert (await models.summarise_text(f"{TEXT} {fault.name}", Meter())).pending, fault
        assert len(endpoint.chat_calls) == calls + 1, fault


async def test_an_unavailable_endpoint_is_not_retried_for_every_summary(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    endpoint.fail_always(Fault.CLOSED)
    found = [await models.summarise_text(f"{TEXT} {number}", meter) for number in range(20)]
    assert all(summary.pending for summary in found)
    assert len(endpoint.chat_calls) == IMPATIENT.failures * IMPATIENT.attempts


async def test_an_unavailable_endpoint_is_called_again_after_a_pause(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect(
        RetryPolicy(timeout=5, attempts=2, first_wait=0.001, longest_wait=0.002, failures=1, cool_down=0.0)
    )
    endpoint.fail_always(Fault.CLOSED)
    assert (await models.summarise_text(TEXT, meter)).pending
    assert (await models.summarise_text(TEXT, meter)).pending
    assert len(endpoint.chat_calls) == 3, "two attempts, then one to see whether it is back"
    endpoint.recover()
    assert not (await models.summarise_text(TEXT, meter)).pending


ODD = (
    None,
    [],
    "text",
    {},
    {"choices": None},
    {"choices": [{}]},
    {"choices": [{"message": "text"}]},
    {"choices": [{"message": {"content": [{"type": "text", "text": "{}"}]}}]},
    {"choices": [{"message": {"content": '{"summary": 7, "summary": null}'}}], "usage": "many"},
    {"error": {"message": "Overloaded."}},
)


async def test_an_answer_of_any_form_causes_no_crash(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    for number, body in enumerate(ODD):
        text, word = f"{TEXT} {number}", f"apple{number}"
        endpoint.reply_next(body)
        summary = await models.summarise_text(text, meter)
        assert (summary.text, summary.pending) == (first_words(text), False), body
        endpoint.reply_next(body)
        assert (await models.embed([word], meter)).shape == (1, endpoint.dimensions), body
        endpoint.reply_next(body)
        assert await models.rerank(word, [word], meter) == [1.0], body
    assert not meter.warnings


async def test_tokens_are_counted_if_the_endpoint_does_not_report_them(
    connect: MakeModels, endpoint: ModelEndpoint
) -> None:
    models = await connect()
    choice = {"index": 0, "message": {"role": "assistant", "content": '{"summary": "An orchard."}'}}
    for number, usage in enumerate((None, {}, "many", {"prompt_tokens": "7", "completion_tokens": -1})):
        meter = Meter()
        endpoint.reply_next({"choices": [choice], "usage": usage})
        assert (await models.summarise_text(f"{TEXT} {number}", meter)).text == "An orchard."
        assert of("chat", meter).prompt_tokens > 100, usage
        assert of("chat", meter).completion_tokens > 0, usage


async def test_a_long_summary_is_cut_at_a_sentence(connect: MakeModels, endpoint: ModelEndpoint, meter: Meter) -> None:
    endpoint.fail_next(Fault.TOO_LONG, on="chat")
    summary = await (await connect()).summarise_text(TEXT, meter)
    assert SUMMARY_CHARS / 2 < len(summary.text) <= SUMMARY_CHARS
    assert summary.text.endswith(".")
    assert not summary.pending


async def test_text_with_half_a_character_is_summarised_and_a_blank_one_needs_no_call(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    assert (await models.summarise_text(" \n", meter)).text == ""
    assert (await models.summarise_children([" "], meter)).text == ""
    assert not endpoint.chat_calls
    assert (await models.summarise_text("A broken \ud800 character.", meter)).text == "A broken ? character."
